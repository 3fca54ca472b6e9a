//! The resident memory of a process, for people: a table that adds up to its RSS.

use std::io::{self, Write};

use snug_base::terminal::{self, bytes, printable, styled};
use snug_inspect::kinds::Kind;
use snug_live::residence::{MemoryPart, Residence};

/// Writes the table.
pub fn write(residence: &Residence, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let rss = residence.rss_bytes;
    let title = format!("memory of process {}", residence.pid);
    writeln!(out, "{}", styled(&title, terminal::BOLD, colours))?;
    let mut line = |name: &str, count: Option<u64>, share: bool, meaning: &str| {
        let share = match count {
            Some(count) if share => format!("{:.1} %", count as f64 * 100.0 / rss.max(1) as f64),
            _ => String::new(),
        };
        let size = count.map_or_else(|| "unknown".into(), |count| bytes(count as f64));
        let meaning = styled(meaning, terminal::FAINT, colours);
        writeln!(out, "{}", format!("  {name:19}{size:>9}{share:>9}  {meaning}").trim_end())
    };
    for part in &residence.parts {
        let (name, meaning) = described(part.part, residence.allocator);
        line(name, Some(part.bytes), true, &meaning)?;
        if part.part == MemoryPart::Other {
            for other in &residence.largest_others {
                line("", Some(other.bytes), false, &printable(&other.name))?;
            }
        }
    }
    line("RSS", Some(rss), true, "all of these")?;
    line("page tables", residence.page_tables_bytes, false, "of the kernel, beside RSS")?;
    if residence.swap_bytes != Some(0) {
        line("swap", residence.swap_bytes, false, "swapped out, beside RSS")?;
    }
    for note in &residence.notes {
        writeln!(out, "\n{} {note}", styled("note:", terminal::WARNING, colours))?;
    }
    Ok(())
}

fn described(part: MemoryPart, allocator: Option<Kind>) -> (&'static str, String) {
    let of = allocator.map_or_else(|| "the allocator".to_string(), |kind| kind.name().to_string());
    match part {
        MemoryPart::LiveBlocks if allocator == Some(Kind::Glibc) => {
            ("used blocks", format!("from malloc ({of}), estimated from its heaps"))
        }
        MemoryPart::LiveBlocks => ("used blocks", format!("from malloc ({of}), as far as resident")),
        MemoryPart::FreeBlocks => ("free blocks", format!("held by {of}, not in use")),
        MemoryPart::Metadata => ("tables", format!("of {of}, as far as resident")),
        MemoryPart::GuardedBlocks => ("guarded blocks", "samples before a page that can't be touched".into()),
        MemoryPart::RubySlots => {
            ("Ruby's slots", "pages of its objects, without what these have from malloc".into())
        }
        MemoryPart::RubyTransientHeap => {
            ("Ruby's young data", "its transient heap, for short arrays and hashes".into())
        }
        MemoryPart::PythonArenas => ("Python's arenas", "its objects of up to 512 bytes".into()),
        MemoryPart::PythonMimalloc => ("Python's mimalloc", "the allocator in Python, of its objects".into()),
        MemoryPart::V8Heap => ("V8's heap", "objects of JavaScript".into()),
        MemoryPart::Stacks => ("stacks", "of threads".into()),
        MemoryPart::Code => ("code", "of the program and its libraries".into()),
        MemoryPart::Files => ("files", "mapped and only read; constants of libraries".into()),
        MemoryPart::Data => ("data", "variables of the program and its libraries".into()),
        MemoryPart::GeneratedCode => ("generated code", "made at run time, as by a JIT".into()),
        MemoryPart::Shared => ("shared memory", "that other processes may hold, too".into()),
        MemoryPart::Other => ("other", "anonymous memory; the largest mappings:".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_live::residence::{NamedMapping, PartSize};

    #[test]
    fn the_table_ends_with_the_sum() {
        use MemoryPart::*;
        let parts = [
            LiveBlocks,
            FreeBlocks,
            Metadata,
            GuardedBlocks,
            RubySlots,
            RubyTransientHeap,
            PythonArenas,
            PythonMimalloc,
            V8Heap,
            Stacks,
            Code,
            Files,
            Data,
            GeneratedCode,
            Shared,
            Other,
        ];
        let mut residence = Residence {
            pid: 7,
            rss_bytes: (25 << 20) * parts.len() as u64,
            allocator: Some(Kind::Snug),
            parts: parts.map(|part| PartSize { part, bytes: 25 << 20 }).to_vec(),
            largest_others: vec![NamedMapping { name: "7f00-7f10".into(), bytes: 20 << 20 }],
            page_tables_bytes: Some(300 << 10),
            swap_bytes: Some(0),
            notes: vec!["something is missing".into()],
        };
        let mut told = snug_base::testing::written(|out| write(&residence, false, out));
        residence.parts.retain(|of| matches!(of.part, LiveBlocks | FreeBlocks));
        for allocator in [Some(Kind::Glibc), None] {
            (residence.allocator, residence.page_tables_bytes, residence.swap_bytes) =
                (allocator, None, None);
            told += &snug_base::testing::written(|out| write(&residence, false, out));
        }
        expect_test::expect_file!["../golden/residence.txt"].assert_eq(&told);
    }
}
