//! Stats of a process for people: its allocator, its memory, its heap, and what to know beside that.

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
        self.line(out, "PSS", &known(stats.pss_bytes), "the same, shared pages split among their processes")?;
        self.line(out, "USS", &known(stats.uss_bytes), "held by this process alone")?;
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
        self.line(out, "resident", &amount(heap.resident_bytes), "heap memory that is resident, at most")?;
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
        self.line(out, "resident", &amount(estimate.held_bytes), "heap memory that is resident")?;
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

    use snug_inspect::report::{AllocatorUsed, How};

    fn stats(allocator: Option<(Kind, How)>, heap: Option<Heap>, glibc_heap: Option<HeapSize>) -> Stats {
        let used = |(kind, how)| AllocatorUsed {
            kind,
            version: Some("1.0".into()),
            how,
            file: "/usr/lib/a.so".into(),
        };
        Stats {
            pid: 7,
            role: "puma worker 0".into(),
            command: "puma: cluster worker 0: 5 [shop]".into(),
            live_unknown: (heap.is_none() && glibc_heap.is_none()).then(|| "this is why".into()),
            allocator: allocator.map(used),
            settings: [("narenas".into(), "2".into()), ("thp".into(), "0".into())].into(),
            warnings: Vec::new(),
            rss_bytes: 150 << 20,
            pss_bytes: Some(90 << 20),
            uss_bytes: Some(70 << 20),
            swap_bytes: Some(0),
            threads: 5,
            cpu_s: 1.5,
            minor_faults: 1000,
            major_faults: 0,
            heap,
            glibc_heap,
        }
    }

    #[test]
    fn each_allocator_has_what_is_known_of_it() {
        let class = |size_bytes, slabs, slab_bytes, outstanding_blocks| Class {
            size_bytes,
            slabs,
            slab_bytes,
            outstanding_blocks,
            ..Class::default()
        };
        let counted = Heap {
            live_requested_bytes: 60_000_000,
            live_allocated_bytes: 64_000_000,
            cached_bytes: Some(0),
            slab_free_bytes: 5_000_000,
            dirty_bytes: Some(2_000_000),
            metadata_bytes: Some(4096),
            resident_bytes: 71_000_000,
            fragmentation: 0.0986,
            purged_bytes: 3_000_000_000,
            purges: 1200,
            idle_purges: 1,
            thread_caches: 5,
            counted: true,
            classes: vec![class(16, 40, 640_000, 30_000), class(32, 0, 0, 0), class(64, 2, 0, 0)],
            ..Heap::default()
        };
        let estimate = HeapSize { live_bytes: 80_000_000, held_bytes: 120_000_000 };
        let snug = Some((Kind::Snug, How::Preloaded));
        let glibc = Some((Kind::Glibc, How::CLibrary));
        let mut odd = stats(None, None, None);
        odd.command = odd.role.clone();
        (odd.pss_bytes, odd.uss_bytes, odd.swap_bytes) = (None, None, Some(1 << 20));
        odd.settings.clear();
        odd.warnings = vec!["something is wrong; fix: do that".into(), "and that".into()];
        let cases = [
            ("snug", stats(snug, Some(counted.clone()), None)),
            ("snug, which has done little", stats(snug, Some(Heap::default()), None)),
            ("snug, compiled into a program under glibc", stats(glibc, Some(counted), None)),
            ("glibc", stats(glibc, None, Some(estimate))),
            ("jemalloc", stats(Some((Kind::Jemalloc, How::LinkedStatically)), None, None)),
            ("what is hardly known", odd),
        ];
        let writer = StatsText { colours: false, classes: true };
        let told = cases.map(|(name, stats)| {
            format!("== {name}\n{}", snug_base::testing::written(|out| writer.write(&stats, out)))
        });
        expect_test::expect_file!["../golden/stats.txt"].assert_eq(&told.concat());
    }
}
