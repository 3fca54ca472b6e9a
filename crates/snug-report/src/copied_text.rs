//! Memory that forked workers copied, and why, for people: a table of causes, then one of workers.

use std::io::{self, Write};

use snug_base::terminal::{self, bytes, counted, printable, styled};
use snug_heap::page_change::Cause;
use snug_live::copied::{Copied, Shares};

/// Writes both tables.
pub fn write(copied: &Copied, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let workers = counted(copied.workers.len(), "worker");
    let title = match copied.workers.as_slice() {
        [one] => format!("memory of worker {}, forked by {}", one.pid, one.parent),
        _ => format!("memory of {workers} forked below process {}, added up", copied.pid),
    };
    writeln!(out, "{}", styled(&title, terminal::BOLD, colours))?;
    let sum = &copied.sum;
    let all = sum.anonymous_bytes().max(1);
    let mut line = |name: &str, count: u64, meaning: &str| {
        let share = format!("{:.1} %", count as f64 * 100.0 / all as f64);
        let (size, meaning) = (bytes(count as f64), styled(meaning, terminal::FAINT, colours));
        writeln!(out, "{}", format!("  {name:19}{size:>9}{share:>9}  {meaning}").trim_end())
    };
    line("shared", sum.shared_bytes, "with the parent or other workers: it costs nothing")?;
    line("copied", sum.copied_bytes, "the parent's page differs, or another one holds the same; by cause:")?;
    for of in &sum.causes {
        let (name, meaning) = described(of.cause);
        line(&format!("  {name}"), of.bytes, meaning)?;
    }
    line("new", sum.new_bytes, "the parent has nothing there")?;
    line("anonymous memory", sum.anonymous_bytes(), "all of these")?;
    if sum.swapped_bytes > 0 {
        line("swap", sum.swapped_bytes, "swapped out, beside that")?;
    }
    if copied.workers.len() > 1 {
        by_worker(copied, colours, out)?;
    }
    for note in &copied.notes {
        writeln!(out, "\n{} {note}", styled("note:", terminal::WARNING, colours))?;
    }
    Ok(())
}

/// Columns of the table of workers: the causes that are anywhere.
fn by_worker(copied: &Copied, colours: bool, out: &mut dyn Write) -> io::Result<()> {
    let causes: Vec<Cause> = copied.sum.causes.iter().map(|of| of.cause).collect();
    let headings = ["shared", "copied"].into_iter();
    let headings = headings.chain(causes.iter().map(|cause| described(*cause).0)).chain(["new"]);
    let headings: Vec<&str> = headings.collect();
    let cells = |shares: &Shares| -> Vec<String> {
        let sizes = [shares.shared_bytes, shares.copied_bytes].into_iter();
        let sizes = sizes.chain(causes.iter().map(|cause| shares.of(*cause))).chain([shares.new_bytes]);
        sizes.map(|size| if size == 0 { "-".into() } else { bytes(size as f64) }).collect()
    };
    let widths: Vec<usize> = headings.iter().map(|heading| heading.len().max(8) + 2).collect();
    let row = |cells: &[String]| -> String {
        cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect()
    };
    let titles: Vec<String> = headings.iter().map(|heading| heading.to_string()).collect();
    let head = format!("  {:>8}{}  worker", "PID", row(&titles));
    writeln!(out, "\n{}", styled(&head, terminal::BOLD, colours))?;
    for worker in &copied.workers {
        writeln!(out, "  {:>8}{}  {}", worker.pid, row(&cells(&worker.shares)), printable(&worker.role))?;
    }
    Ok(())
}

fn described(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::WrittenBack => {
            ("written back", "the same bytes: counts of references up and down again, marks of a collector")
        }
        Cause::Counts => ("counts", "only counts of references to Python's objects differ"),
        Cause::Collector => {
            ("collector", "and what a collector notes of objects: gc.freeze(), Process.warmup avoid that")
        }
        Cause::Allocator => {
            ("free blocks", "and what malloc, Python or Ruby keeps in its memory and in free blocks")
        }
        Cause::Code => {
            ("code", "and what an interpreter notes in code that it runs: a warm-up makes it early")
        }
        Cause::Holes => ("holes", "and new blocks, beside those of the parent or in their place"),
        Cause::FreePages => {
            ("free pages", "the parent has no block there: a purge before the fork avoids that")
        }
        Cause::Changed => ("changed", "blocks that both have"),
        Cause::Variables => ("variables", "of the program and its libraries"),
        Cause::Stacks => ("stacks", "of threads"),
        Cause::Rewritten => {
            ("rewritten", "more than half differs: filled anew, or new in both since the fork")
        }
        Cause::Unread => ("not compared", "the parent's page is in swap, or has gone meanwhile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use snug_live::copied::{CauseSize, Worker};

    fn shares(megabytes: u64, causes: &[(Cause, u64)]) -> Shares {
        let causes =
            causes.iter().map(|(cause, megabytes)| CauseSize { cause: *cause, bytes: megabytes << 20 });
        let causes: Vec<CauseSize> = causes.collect();
        let copied_bytes = causes.iter().map(|of| of.bytes).sum();
        Shares { shared_bytes: megabytes << 20, copied_bytes, new_bytes: 1 << 20, swapped_bytes: 0, causes }
    }

    #[test]
    fn causes_and_workers_have_lines() {
        use Cause::*;
        let all = [
            WrittenBack,
            Counts,
            Collector,
            Allocator,
            Code,
            Holes,
            FreePages,
            Changed,
            Variables,
            Stacks,
            Rewritten,
            Unread,
        ];
        let worker = |pid, megabytes, causes: &[(Cause, u64)]| Worker {
            pid,
            parent: 7,
            role: "gunicorn worker".into(),
            allocator: None,
            shares: shares(megabytes, causes),
        };
        let of = |workers: Vec<Worker>, swapped_bytes| {
            let sum = Shares::sum(workers.iter().map(|worker| &worker.shares));
            let sum = Shares { swapped_bytes, ..sum };
            let copied = Copied { pid: 7, workers, sum, notes: vec!["something is missing".into()] };
            snug_base::testing::written(|out| write(&copied, false, out))
        };
        let first = worker(8, 80, &[(WrittenBack, 12), (Code, 3)]);
        let several = of(vec![first, worker(9, 90, &[(WrittenBack, 4)])], 0);
        let one = of(vec![worker(8, 80, &all.map(|cause| (cause, 2)))], 5 << 20);
        expect_test::expect_file!["../golden/copied.txt"].assert_eq(&(several + &one));
    }
}
