//! Stacks of a process's threads: around their stack pointers, as far as the C library says, or a limit.

use std::ops::Range;

use crate::proc::Pid;
use crate::smaps::ResidentMapping;

/// glibc's default where no limit is set for stacks.
const DEFAULT_BYTES: u64 = 2 << 20;

/// The stacks of threads that wait in a system call, other than the first one's, whose mapping has a name. `read` copies
/// memory of the process.
pub fn thread_stacks(
    pid: Pid,
    mappings: &[ResidentMapping],
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Range<u64>> {
    let limit = stack_limit(&std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default());
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let pointers = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("syscall")).ok()?;
        stack_pointer(&text)
    });
    let stacks = pointers.filter_map(|pointer| {
        let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&pointer))?;
        let is_of_thread = mapping.is_anonymous() && mapping.name != "[heap]";
        is_of_thread.then(|| {
            let known = own_range(pointer, mapping, &read);
            known.unwrap_or_else(|| within_limit(mapping, limit))
        })
    });
    stacks.collect()
}

/// The last but one word of `/proc/PID/task/TID/syscall`. None: the thread runs, or may not be looked at.
fn stack_pointer(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace().rev();
    u64::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()
}

/// The soft limit of `/proc/PID/limits`, from which glibc takes the size of a thread's stack.
fn stack_limit(limits: &str) -> u64 {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max stack size"));
    line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(DEFAULT_BYTES)
}

/// As much of a mapping as the limit allows.
fn within_limit(mapping: &ResidentMapping, limit: u64) -> Range<u64> {
    mapping.start..mapping.end.min(mapping.start.saturating_add(limit))
}

/// On x86-64, glibc keeps a thread's own structure at the upper end of its stack (nptl/descr.h, `struct pthread`). It
/// begins with its own address, twice, and says where the stack begins and how long it is. None: it is not found.
fn own_range(
    pointer: u64,
    mapping: &ResidentMapping,
    read: &impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Range<u64>> {
    const SEARCHED_BYTES: u64 = 256 << 10;
    const STRUCTURE_BYTES: usize = 2304;
    let start = pointer & !63;
    let length = SEARCHED_BYTES.min(mapping.end - start) as usize;
    let words: Vec<u64> = read(start, length)?
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let own = (0..words.len().saturating_sub(STRUCTURE_BYTES / 8)).step_by(8).find(|index| {
        let address = start + *index as u64 * 8;
        words[*index] == address && words[index + 2] == address
    })?;
    let address = start + own as u64 * 8;
    let pairs = words[own..own + STRUCTURE_BYTES / 8].windows(2).map(|pair| (pair[0], pair[1]));
    let mut stacks = pairs.filter(|(block, bytes)| {
        block % 4096 == 0 && bytes % 4096 == 0 && *block < pointer && {
            let end = block.saturating_add(*bytes);
            end > address && end <= address + (64 << 10)
        }
    });
    stacks.next().map(|(block, bytes)| block..block + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_base::random::Random;

    #[test]
    fn pointers_and_limits_are_read() {
        let text = "202 0x7f9f 0x189 0x0 0x0 0x0 0xffffffff 0x7f9f53dffc90 0x7f9f5863a308\n";
        assert_eq!(stack_pointer(text), Some(0x7f9f_53df_fc90));
        assert_eq!(stack_pointer("-1 0x7ffda1a5a4c8 0x7f9f5863a308"), Some(0x7ffd_a1a5_a4c8));
        assert_eq!(stack_pointer("running\n"), None);
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax stack size            8388608              unlimited            bytes\n";
        assert_eq!(stack_limit(limits), 8 << 20);
        assert_eq!(
            stack_limit("Max stack size            unlimited            unlimited            bytes\n"),
            2 << 20
        );
    }

    #[test]
    fn the_structure_at_the_end_says_how_long_a_stack_is() {
        let mapping = ResidentMapping { start: 0x10000, end: 0x40000, ..ResidentMapping::default() };
        let mut memory = vec![0u64; 0x30000 / 8];
        let own = 0x20000u64 + 0x3000;
        let index = ((own - mapping.start) / 8) as usize;
        (memory[index], memory[index + 2]) = (own, own);
        (memory[index + 200], memory[index + 201]) = (0x14000, 0x10000);
        let read = |at: u64, length: usize| {
            let from = ((at - mapping.start) / 8) as usize;
            Some(memory[from..from + length / 8].iter().flat_map(|word| word.to_le_bytes()).collect())
        };
        assert_eq!(own_range(0x22ff0, &mapping, &read), Some(0x14000..0x24000));
        assert_eq!(own_range(0x24000, &mapping, &read), None);
    }

    #[test]
    fn a_limit_may_be_any_number() {
        let mapping = ResidentMapping { start: 0x10000, end: 0x40000, ..ResidentMapping::default() };
        for (limit, end) in [(0, 0x10000), (4096, 0x11000), (u64::MAX - 4095, 0x40000), (u64::MAX, 0x40000)] {
            assert_eq!(within_limit(&mapping, limit), 0x10000..end, "{limit:#x}");
        }
    }

    #[test]
    fn structures_of_who_means_harm_are_ranges_or_none() {
        let mut random = Random::new(65);
        let mapping = ResidentMapping { start: 0x10000, end: 0x40000, ..ResidentMapping::default() };
        let mut found = 0;
        for _ in 0..500 {
            let pointer = mapping.start + random.below(mapping.end - mapping.start);
            let place = mapping.start..mapping.end;
            let mut bytes = random.hostile_bytes((place.end - place.start) as usize, &[place]);
            let own = (pointer & !63) - mapping.start + 64 * random.below(8);
            for at in [own, own + 16] {
                let piece = bytes.get_mut(at as usize..at as usize + 8);
                piece
                    .into_iter()
                    .for_each(|piece| piece.copy_from_slice(&(mapping.start + own).to_le_bytes()));
            }
            let read =
                |at: u64, length: usize| Some(bytes[(at - mapping.start) as usize..][..length].to_vec());
            if let Some(stack) = own_range(pointer, &mapping, &read) {
                found += 1;
                assert!(stack.start < stack.end, "{stack:x?}");
            }
        }
        assert!(found > 50, "{found}");
    }
}
