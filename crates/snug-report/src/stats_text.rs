//! Stats of a process for people: what it is, its memory, its heap, and what to know beside that.

use std::io::{self, Write};

use snug_base::terminal::{self, bytes, plural, printable, short_count, styled};
use snug_heap::account::Heap;
use snug_heap::counters::Class;
use snug_heap::glibc_heap::HeapSize;
use snug_inspect::kinds::Kind;
use snug_live::stats::Stats;

/// Writes text. `classes` adds the size classes.
pub struct StatsText {
    pub colours: bool,
    pub classes: bool,
}

impl StatsText {
    pub fn write(&self, stats: &Stats, out: &mut dyn Write) -> io::Result<()> {
        let heading = |text: &str| styled(text, terminal::BOLD, self.colours);
        writeln!(out, "{}", heading(&format!("{} {}", stats.pid, printable(&stats.role))))?;
        if stats.command != stats.role {
            writeln!(out, "{}", printable(&stats.command).chars().take(100).collect::<String>())?;
        }
        writeln!(out, "\n{}", heading("memory of the process"))?;
        let known = |count: Option<u64>| count.map_or_else(|| "unknown".into(), |count| bytes(count as f64));
        self.line(out, "RSS", &bytes(stats.rss_bytes as f64), "resident, shared pages included")?;
        self.line(
            out,
            "PSS",
            &known(stats.pss_bytes),
            "the same, shared pages divided among those who share them",
        )?;
        self.line(out, "USS", &known(stats.uss_bytes), "what only this process holds")?;
        if stats.swap_bytes.is_some_and(|swap| swap > 0) {
            self.line(out, "swap", &known(stats.swap_bytes), "swapped out")?;
        }
        writeln!(out, "\n{}", heading(&format!("heap: {}", printable(&allocator(stats)))))?;
        match (&stats.heap, &stats.glibc_heap) {
            (Some(heap), _) => self.heap(out, heap)?,
            (None, Some(estimate)) => self.estimate(out, estimate)?,
            (None, None) => {
                self.line(out, "live", "unknown", stats.live_unknown.as_deref().unwrap_or_default())?;
            }
        }
        if !stats.settings.is_empty() {
            let settings: Vec<String> =
                stats.settings.iter().map(|(name, value)| format!("{name}:{value}")).collect();
            writeln!(out, "\n{}\n  {}", heading("settings"), printable(&settings.join(", ")))?;
        }
        for warning in &stats.warnings {
            let note = styled("note:", terminal::WARNING, self.colours);
            writeln!(out, "\n{note} {}", printable(warning))?;
        }
        match &stats.heap {
            Some(heap) if self.classes => self.classes(out, &heap.classes),
            _ => Ok(()),
        }
    }
}

impl StatsText {
    fn line(&self, out: &mut dyn Write, name: &str, value: &str, meaning: &str) -> io::Result<()> {
        writeln!(out, "  {name:14}{value:>9}  {}", styled(meaning, terminal::FAINT, self.colours))
    }

    fn heap(&self, out: &mut dyn Write, heap: &Heap) -> io::Result<()> {
        let amount = |count: u64| bytes(count as f64);
        let asked = match heap.counted {
            true => format!("in use; {} of it asked for", amount(heap.live_requested_bytes)),
            false => "in use or kept by threads: too little was done to be counted yet".into(),
        };
        self.line(out, "live", &amount(heap.live_allocated_bytes), &asked)?;
        let threads = format!("freed blocks kept at hand by {}", many(heap.thread_caches, "thread"));
        let counted = |count: Option<u64>| count.map_or_else(|| "–".into(), amount);
        self.line(out, "cached", &counted(heap.cached_bytes), &threads)?;
        self.line(out, "free in slabs", &amount(heap.slab_free_bytes), "free blocks between live ones")?;
        self.line(out, "dirty", &counted(heap.dirty_bytes), "free pages, not given back yet")?;
        self.line(out, "metadata", &counted(heap.metadata_bytes), "tables of the allocator")?;
        self.line(
            out,
            "resident",
            &amount(heap.resident_bytes),
            "all of the heap that holds memory, at most",
        )?;
        let share = format!("{:.1} %", heap.fragmentation * 100.0);
        self.line(out, "fragmentation", &share, "of that is not live")?;
        let purges = format!("in {}, {} of them when idle", many(heap.purges, "purge"), heap.idle_purges);
        self.line(out, "given back", &amount(heap.purged_bytes), &purges)
    }

    fn estimate(&self, out: &mut dyn Write, estimate: &HeapSize) -> io::Result<()> {
        let amount = |count: u64| bytes(count as f64);
        self.line(
            out,
            "live",
            &amount(estimate.live_bytes),
            "in use; estimated from the chunks in its heaps",
        )?;
        self.line(out, "resident", &amount(estimate.held_bytes), "all of its heaps that is in memory")?;
        let share = format!("{:.1} %", estimate.fragmentation() * 100.0);
        self.line(out, "fragmentation", &share, "of that is not live")
    }

    fn classes(&self, out: &mut dyn Write, classes: &[Class]) -> io::Result<()> {
        let title = format!("{:>8}{:>9}{:>12}{:>12}{:>9}", "size", "slabs", "memory", "blocks", "in use");
        writeln!(out, "\n{}\n{title}", styled("size classes", terminal::BOLD, self.colours))?;
        for class in classes.iter().filter(|class| class.slabs > 0) {
            let used = match class.slab_bytes {
                0 => "-".into(),
                held => format!("{:.0} %", class.outstanding_bytes() as f64 / held as f64 * 100.0),
            };
            let (memory, blocks) =
                (bytes(class.slab_bytes as f64), short_count(class.outstanding_blocks as f64));
            writeln!(out, "{:>8}{:>9}{memory:>12}{blocks:>12}{used:>9}", class.size_bytes, class.slabs)?;
        }
        Ok(())
    }
}

fn allocator(stats: &Stats) -> String {
    match &stats.allocator {
        None => "unknown allocator".into(),
        // The page of counters is that of a copy for calls of the program's own: libsnug-prefixed.a, the crate snug-alloc.
        Some(used) if stats.heap.is_some() && used.kind != Kind::Snug => {
            format!("snug, compiled into the program; not counted here: what {} serves", used.kind.name())
        }
        Some(used) => {
            let version = used.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
            format!("{}{version}, {} ({})", used.kind.name(), used.how.text(), used.file)
        }
    }
}

fn many(count: u64, thing: &str) -> String {
    format!("{} {}", short_count(count as f64), plural(count as f64, thing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_is_a_dash() {
        let line = |heap: &Heap, name: &str| {
            let writer = StatsText { colours: false, classes: false };
            let text = snug_base::testing::written(|out| writer.heap(out, heap));
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
            line[name.len() + 2..]
                .split("  ")
                .find(|cell| !cell.trim().is_empty())
                .unwrap()
                .trim()
                .to_string()
        };
        let counted = Heap {
            cached_bytes: Some(0),
            dirty_bytes: Some(2_000_000),
            metadata_bytes: Some(4096),
            counted: true,
            ..Heap::default()
        };
        let names = ["cached", "dirty", "metadata"];
        assert_eq!(names.map(|name| line(&counted, name)), ["0 B", "2.00 MB", "4.10 kB"]);
        assert_eq!(names.map(|name| line(&Heap::default(), name)), ["–"; 3]);
    }
}
