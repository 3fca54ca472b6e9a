//! The keys of MALLOC_CONF, jemalloc's list of settings, and what libsnug.so makes of a list. Pure.

use crate::kinds::closest;

/// What the library does about a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyClass {
    /// It has the effect that its sentence says.
    Mapped,
    /// What it asks for is so anyway, or means nothing.
    Already,
    /// What it asks for is not there.
    Absent,
}

/// What a value may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyValue {
    Bool,
    Number,
    Signed,
    Word,
}

/// What a key changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    None,
    Arenas,
    Background,
    Decay,
    Thp,
    Stats,
    /// Something that is no option of SNUG.
    Other,
}

/// One key.
struct KeyRow {
    name: &'static str,
    class: KeyClass,
    value: KeyValue,
    effect: Effect,
    /// What it does, or why nothing.
    sentence: &'static str,
}

const fn key(
    name: &'static str,
    class: KeyClass,
    value: KeyValue,
    effect: Effect,
    sentence: &'static str,
) -> KeyRow {
    KeyRow { name, class, value, effect, sentence }
}

/// Written by tools/update-options from core/src/malloc_conf_keys.h.
#[rustfmt::skip]
const KEYS: &[KeyRow] = &[
    // malloc_conf:begin
    key("narenas", KeyClass::Mapped, KeyValue::Number, Effect::Arenas, "arenas_max; rarely needed, there is one until threads wait for it"),
    key("background_thread", KeyClass::Mapped, KeyValue::Bool, Effect::Background, "background; the helper thread is there only when needed"),
    key("dirty_decay_ms", KeyClass::Mapped, KeyValue::Signed, Effect::Decay, "0: free pages go back at once, purge_cpu_percent:100; -1: only when asked for, purge_cpu_percent:0,background:0; else as ever, in 200 ms if the CPU budget allows"),
    key("thp", KeyClass::Mapped, KeyValue::Word, Effect::Thp, "always: thp:1; never: thp:0; default: thp:2"),
    key("stats_print", KeyClass::Mapped, KeyValue::Bool, Effect::Stats, "malloc_stats_print at exit; stats_print of SNUG may forbid it"),
    key("stats_print_opts", KeyClass::Mapped, KeyValue::Word, Effect::Other, "the letters of that"),
    key("prof", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "profile; samples of what is allocated, which prof.dump writes for jeprof and snug profile shows"),
    key("prof_active", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "with prof:true; false: no samples until prof.active or snug profile switches them on"),
    key("lg_prof_sample", KeyClass::Mapped, KeyValue::Number, Effect::Other, "with prof:true, one sample in every 2^N bytes, N from 1 to 30; fewer while that makes over 100 a second"),
    key("prof_prefix", KeyClass::Mapped, KeyValue::Word, Effect::Other, "with prof:true, how the files of profiles are called; empty: they need a name"),
    key("prof_final", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "with prof:true, a profile when the program ends by itself"),
    key("zero", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "all blocks are zeroed, without thread caches: for debugging"),
    key("xmalloc", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "no memory ends the process with a message"),
    key("abort_conf", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "whatever is warned about in these settings ends the process"),
    key("confirm_conf", KeyClass::Mapped, KeyValue::Bool, Effect::Other, "says this for each key, on stderr"),
    key("muzzy_decay_ms", KeyClass::Already, KeyValue::Signed, Effect::None, "there are no muzzy pages: what goes back goes back at once"),
    key("tcache", KeyClass::Already, KeyValue::Bool, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_max", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("lg_tcache_max", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_ncached_max", KeyClass::Already, KeyValue::Word, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_nslots_small_min", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_nslots_small_max", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_nslots_large", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("lg_tcache_nslots_mul", KeyClass::Already, KeyValue::Signed, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_gc_incr_bytes", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("tcache_gc_delay_bytes", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("lg_tcache_flush_small_div", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("lg_tcache_flush_large_div", KeyClass::Already, KeyValue::Number, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("percpu_arena", KeyClass::Already, KeyValue::Word, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("narenas_ratio", KeyClass::Already, KeyValue::Word, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("max_background_threads", KeyClass::Already, KeyValue::Number, Effect::None, "there is one helper thread at most"),
    key("retain", KeyClass::Already, KeyValue::Bool, Effect::None, "the heap keeps its addresses"),
    key("metadata_thp", KeyClass::Already, KeyValue::Word, Effect::None, "tables have no huge pages; thp says where the heap has"),
    key("huge_arena_pac_thp", KeyClass::Already, KeyValue::Bool, Effect::None, "tables have no huge pages; thp says where the heap has"),
    key("hpa", KeyClass::Already, KeyValue::Bool, Effect::None, "tables have no huge pages; thp says where the heap has"),
    key("hpa_*", KeyClass::Already, KeyValue::Word, Effect::None, "tables have no huge pages; thp says where the heap has"),
    key("oversize_threshold", KeyClass::Already, KeyValue::Number, Effect::None, "blocks of 1 MiB and more have a mapping of their own"),
    key("lg_extent_max_active_fit", KeyClass::Already, KeyValue::Number, Effect::None, "it is about how jemalloc keeps extents; the heap here has none"),
    key("cache_oblivious", KeyClass::Already, KeyValue::Bool, Effect::None, "it is about how jemalloc keeps extents; the heap here has none"),
    key("disable_large_size_classes", KeyClass::Already, KeyValue::Bool, Effect::None, "it is about how jemalloc keeps extents; the heap here has none"),
    key("process_madvise_max_batch", KeyClass::Already, KeyValue::Number, Effect::None, "it is about how jemalloc keeps extents; the heap here has none"),
    key("slab_sizes", KeyClass::Already, KeyValue::Word, Effect::None, "slabs are of a few pages, by size class"),
    key("bin_shards", KeyClass::Already, KeyValue::Word, Effect::None, "threads share all slabs, and keep few blocks for themselves, as many as they use"),
    key("dss", KeyClass::Already, KeyValue::Word, Effect::None, "the heap never uses sbrk"),
    key("trust_madvise", KeyClass::Already, KeyValue::Bool, Effect::None, "pages given back by madvise read as zero, on Linux"),
    key("mutex_max_spin", KeyClass::Already, KeyValue::Signed, Effect::None, "locks spin as long as it pays"),
    key("abort", KeyClass::Already, KeyValue::Bool, Effect::None, "misuse always ends the process, with a message"),
    key("debug_double_free_max_scan", KeyClass::Already, KeyValue::Number, Effect::None, "double frees are found when blocks reach their slab"),
    key("calloc_madvise_threshold", KeyClass::Already, KeyValue::Number, Effect::None, "calloc knows which pages are zero"),
    key("log", KeyClass::Already, KeyValue::Word, Effect::None, "it is for those who write jemalloc"),
    key("stats_interval_opts", KeyClass::Already, KeyValue::Word, Effect::None, "there is no stats_interval"),
    key("prof_accum", KeyClass::Already, KeyValue::Bool, Effect::None, "profiles always count what was ever allocated, too"),
    key("prof_unbias", KeyClass::Already, KeyValue::Bool, Effect::None, "each sample has a weight of its own, and profiles have sums of weights"),
    key("prof_bt_max", KeyClass::Already, KeyValue::Number, Effect::None, "stacks have up to 64 frames"),
    key("prof_thread_active_init", KeyClass::Already, KeyValue::Bool, Effect::None, "profiles are of the process, and all its threads are sampled alike"),
    key("prof_sys_thread_name", KeyClass::Already, KeyValue::Bool, Effect::None, "profiles are of the process, and all its threads are sampled alike"),
    key("prof_pid_namespace", KeyClass::Already, KeyValue::Bool, Effect::None, "files are called by the process's id as the process sees it"),
    key("prof_stats", KeyClass::Already, KeyValue::Bool, Effect::None, "it is about records that profiles here do not have"),
    key("prof_time_resolution", KeyClass::Already, KeyValue::Word, Effect::None, "it is about records that profiles here do not have"),
    key("prof_recent_alloc_max", KeyClass::Already, KeyValue::Signed, Effect::None, "it is about records that profiles here do not have"),
    key("lg_dirty_mult", KeyClass::Already, KeyValue::Signed, Effect::None, "jemalloc 5 has it no more"),
    key("decay_time", KeyClass::Already, KeyValue::Signed, Effect::None, "jemalloc 5 has it no more"),
    key("purge", KeyClass::Already, KeyValue::Word, Effect::None, "jemalloc 5 has it no more"),
    key("lg_chunk", KeyClass::Already, KeyValue::Number, Effect::None, "jemalloc 5 has it no more"),
    key("munmap", KeyClass::Already, KeyValue::Bool, Effect::None, "jemalloc 5 has it no more"),
    key("lg_tcache_gc_sweep", KeyClass::Already, KeyValue::Signed, Effect::None, "jemalloc 5 has it no more"),
    key("quarantine", KeyClass::Already, KeyValue::Number, Effect::None, "jemalloc 5 has it no more"),
    key("redzone", KeyClass::Already, KeyValue::Bool, Effect::None, "jemalloc 5 has it no more"),
    key("valgrind", KeyClass::Already, KeyValue::Bool, Effect::None, "jemalloc 5 has it no more"),
    key("lg_prof_interval", KeyClass::Absent, KeyValue::Signed, Effect::None, "with prof:true, profiles are written by prof.dump, and at the end by prof_final:true"),
    key("prof_gdump", KeyClass::Absent, KeyValue::Bool, Effect::None, "with prof:true, profiles are written by prof.dump, and at the end by prof_final:true"),
    key("prof_leak", KeyClass::Absent, KeyValue::Bool, Effect::None, "with prof:true, prof_final:true writes a profile of what is live; there is no report of leaks"),
    key("prof_leak_error", KeyClass::Absent, KeyValue::Bool, Effect::None, "with prof:true, prof_final:true writes a profile of what is live; there is no report of leaks"),
    key("prof_log", KeyClass::Absent, KeyValue::Bool, Effect::None, "with prof:true, profiles are written by prof.dump, and at the end by prof_final:true"),
    key("junk", KeyClass::Absent, KeyValue::Word, Effect::None, "blocks are not filled; SNUG=guard:1 fills freed ones and finds who uses them"),
    key("stats_interval", KeyClass::Absent, KeyValue::Signed, Effect::None, "statistics are printed at exit only, by stats_print:true"),
    key("utrace", KeyClass::Absent, KeyValue::Bool, Effect::None, "calls are not traced"),
    key("zero_realloc", KeyClass::Absent, KeyValue::Word, Effect::None, "realloc(p, 0) frees p, as in the C library"),
    key("experimental_infallible_new", KeyClass::Absent, KeyValue::Bool, Effect::None, "operator new throws bad_alloc; xmalloc:true ends the process"),
    key("lg_san_uaf_align", KeyClass::Absent, KeyValue::Signed, Effect::None, "SNUG=guard:1 finds who uses freed blocks"),
    key("san_guard_small", KeyClass::Absent, KeyValue::Number, Effect::None, "SNUG=guard:1 guards all blocks"),
    key("san_guard_large", KeyClass::Absent, KeyValue::Number, Effect::None, "SNUG=guard:1 guards all blocks"),
    key("experimental_*", KeyClass::Already, KeyValue::Word, Effect::None, "it is about how jemalloc keeps extents; the heap here has none"),
    // malloc_conf:end
];

/// More arenas than this there are not.
const ARENAS_MAX: i64 = 64;

/// The binary logarithms of the distances between samples that there are.
const DISTANCE_LOW: u32 = 1;
const DISTANCE_HIGH: u32 = 30;

/// What the library makes of one pair of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// As it is written, without spaces around it.
    pub key: String,
    pub value: String,
    pub fate: KeyFate,
    /// Options of SNUG that it sets, and to what.
    pub sets: Vec<(&'static str, u32)>,
    /// What it does here, why nothing, or what to write instead.
    pub text: String,
}

/// What becomes of a pair, before SNUG and other sources are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFate {
    /// It changes something, or would if that were not so by default.
    Taken,
    /// What it asks for is so anyway.
    AlreadySo,
    /// It is about something that there is no need for here.
    NotNeeded,
    /// It asks for what is not there.
    NotThere,
    /// It is written wrong.
    Ignored,
}

/// Reads a list as the library does at its start.
pub fn read(list: &str) -> Vec<Pair> {
    let parts = list.split(',').filter(|part| !part.trim_matches(' ').is_empty());
    parts
        .map(|part| {
            let (key, value) = part.split_once(':').map_or((part, None), |(key, value)| (key, Some(value)));
            read_pair(key.trim_matches(' '), value.map(|value| value.trim_matches(' ')))
        })
        .collect()
}

/// Looks at the keys of profiles together, when all lists are read: without `prof:true` they ask for nothing.
pub fn settle_profiles<'a>(pairs: impl Iterator<Item = &'a mut Pair>) {
    let mut pairs: Vec<&mut Pair> = pairs.filter(|pair| pair.fate != KeyFate::Ignored).collect();
    let last = |name: &str| pairs.iter().rev().find(|pair| pair.key == name).map(|pair| pair.value.clone());
    let is_on = last("prof").as_deref() == Some("true");
    let begins = is_on && last("prof_active").as_deref() != Some("false");
    let distance = last("lg_prof_sample").and_then(|value| value.parse::<u32>().ok());
    let setting = distance.map_or(1, |lg| 1 << lg.clamp(DISTANCE_LOW, DISTANCE_HIGH));
    for pair in pairs.iter_mut().filter(|pair| is_of_profiles(&pair.key)) {
        let sets = || if begins { vec![("profile", setting)] } else { Vec::new() };
        match pair.key.as_str() {
            _ if !is_on && pair.fate == KeyFate::NotThere => pair.fate = KeyFate::AlreadySo,
            "prof" | "lg_prof_sample" if is_on && pair.value != "false" => {
                (pair.fate, pair.sets) = (KeyFate::Taken, sets());
            }
            "prof_active" if is_on && pair.value == "false" => pair.fate = KeyFate::Taken,
            "lg_prof_sample" | "prof_active" | "prof_prefix" | "prof_final" if !is_on => {
                pair.fate = KeyFate::NotNeeded;
            }
            _ => {}
        }
    }
}

fn is_of_profiles(key: &str) -> bool {
    key == "prof" || key.starts_with("prof_") || key.starts_with("lg_prof_")
}

fn read_pair(name: &str, value: Option<&str>) -> Pair {
    let pair = |fate, sets, text: String| Pair {
        key: name.into(),
        value: value.unwrap_or_default().into(),
        fate,
        sets,
        text,
    };
    let Some(row) = KEYS.iter().find(|row| row.is_called(name)) else {
        let hint = nearest(name).map(|nearest| format!("; did you mean {nearest}:...?"));
        return pair(
            KeyFate::Ignored,
            Vec::new(),
            format!("no key of jemalloc's{}", hint.unwrap_or_default()),
        );
    };
    let Some(number) = value.and_then(|value| row.parse(value)) else {
        return pair(KeyFate::Ignored, Vec::new(), format!("no value of {name}; use {}", row.value_text()));
    };
    let (fate, sets) = match row.class {
        KeyClass::Already => (KeyFate::NotNeeded, Vec::new()),
        KeyClass::Absent if asks(value.unwrap_or_default()) => (KeyFate::NotThere, Vec::new()),
        KeyClass::Absent => (KeyFate::AlreadySo, Vec::new()),
        KeyClass::Mapped => row.effect.of(number),
    };
    pair(fate, sets, row.sentence.into())
}

impl KeyRow {
    /// A `*` at the end of a row's name stands for anything.
    fn is_called(&self, name: &str) -> bool {
        self.name.strip_suffix('*').map_or(self.name == name, |beginning| name.starts_with(beginning))
    }

    /// A value as a number, words as 0; None if it is none that the key can have.
    fn parse(&self, value: &str) -> Option<i64> {
        let number = || match value.strip_prefix('-').unwrap_or(value) {
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => value.parse::<i64>().ok(),
            _ => None,
        };
        match (self.value, self.effect) {
            (KeyValue::Bool, _) => value.parse::<bool>().ok().map(i64::from),
            (KeyValue::Number, _) => number().filter(|_| !value.starts_with('-')),
            (KeyValue::Signed, _) => number().filter(|number| *number >= -1),
            (KeyValue::Word, Effect::Thp) => {
                ["never", "always", "default"].iter().position(|word| *word == value).map(|at| at as i64)
            }
            (KeyValue::Word, _) => Some(i64::from(!value.is_empty())),
        }
    }

    /// What a value may be, as the end of "use ...".
    fn value_text(&self) -> &'static str {
        match (self.value, self.effect) {
            (KeyValue::Bool, _) => "true or false",
            (KeyValue::Number, _) => "a number",
            (KeyValue::Signed, _) => "a number, or -1",
            (KeyValue::Word, Effect::Thp) => "always, never or default",
            (KeyValue::Word, _) => "another word",
        }
    }
}

impl Effect {
    /// What this value changes.
    fn of(self, value: i64) -> (KeyFate, Vec<(&'static str, u32)>) {
        let on = u32::from(value != 0);
        let sets = match (self, value) {
            (Effect::Arenas, value) => vec![("arenas_max", value.min(ARENAS_MAX) as u32)],
            (Effect::Background, _) => vec![("background", on)],
            (Effect::Thp, value) => vec![("thp", value as u32)],
            (Effect::Stats, _) => vec![("stats_print", on)],
            (Effect::Decay, 0) => vec![("purge_cpu_percent", 100)],
            (Effect::Decay, -1) => vec![("purge_cpu_percent", 0), ("background", 0)],
            (Effect::Decay | Effect::None, _) | (Effect::Other, 0) => {
                return (KeyFate::AlreadySo, Vec::new())
            }
            (Effect::Other, _) => Vec::new(),
        };
        (KeyFate::Taken, sets)
    }
}

/// Whether what is not there was asked for, rather than forbidden.
fn asks(value: &str) -> bool {
    !["false", "0", "-1", "free", "none"].contains(&value)
}

/// The key that a misspelt one may mean: with `=` for `:`, in curly quotes, or with slips.
fn nearest(name: &str) -> Option<&'static str> {
    let word = name.split('=').next().unwrap_or(name);
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = || KEYS.iter().map(|row| row.name);
    names().find(|name| *name == word).or_else(|| closest(word, names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(list: &str) -> Vec<KeyFate> {
        read(list).into_iter().map(|pair| pair.fate).collect()
    }

    #[test]
    fn what_people_deploy_is_translated() {
        let pairs =
            read("narenas:2,background_thread:true, dirty_decay_ms:1000 ,metadata_thp:auto,junk:true");
        let found: Vec<(&str, KeyFate)> = pairs.iter().map(|pair| (pair.key.as_str(), pair.fate)).collect();
        assert_eq!(
            found,
            [
                ("narenas", KeyFate::Taken),
                ("background_thread", KeyFate::Taken),
                ("dirty_decay_ms", KeyFate::AlreadySo),
                ("metadata_thp", KeyFate::NotNeeded),
                ("junk", KeyFate::NotThere),
            ]
        );
        assert_eq!(pairs[0].sets, [("arenas_max", 2)]);
        assert!(pairs[0].text.contains("there is one until threads wait"), "{}", pairs[0].text);
        assert_eq!(read("narenas:9999")[0].sets, [("arenas_max", 64)]);
        assert_eq!(read("dirty_decay_ms:0")[0].sets, [("purge_cpu_percent", 100)]);
        assert_eq!(read("dirty_decay_ms:-1")[0].sets, [("purge_cpu_percent", 0), ("background", 0)]);
        assert_eq!(fates("prof:false,zero:false"), [KeyFate::AlreadySo; 2]);
        assert_eq!(fates("zero:true"), [KeyFate::Taken]);
    }

    #[test]
    fn keys_of_profiles_are_looked_at_together() {
        let settled = |list: &str| {
            let mut pairs = read(list);
            settle_profiles(pairs.iter_mut());
            pairs
        };
        let fates = |list: &str| settled(list).into_iter().map(|pair| pair.fate).collect::<Vec<_>>();
        let pairs = settled("lg_prof_sample:19,prof:true,prof_gdump:true,prof_accum:true,prof_prefix:/tmp/a");
        assert_eq!(pairs[0].sets, [("profile", 1 << 19)]);
        assert_eq!(pairs[1].sets, [("profile", 1 << 19)]);
        let found: Vec<KeyFate> = pairs.iter().map(|pair| pair.fate).collect();
        let taken = KeyFate::Taken;
        assert_eq!(found, [taken, taken, KeyFate::NotThere, KeyFate::NotNeeded, taken]);
        assert_eq!(settled("prof:true")[0].sets, [("profile", 1)]);
        assert_eq!(settled("prof:true,lg_prof_sample:0")[0].sets, [("profile", 2)]);
        assert_eq!(settled("prof:true,lg_prof_sample:99")[0].sets, [("profile", 1 << 30)]);
        let idle = settled("prof:true,prof_active:false,lg_prof_sample:19");
        assert!(idle.iter().all(|pair| pair.fate == taken && pair.sets.is_empty()), "{idle:?}");
        let (already, unneeded) = (KeyFate::AlreadySo, KeyFate::NotNeeded);
        assert_eq!(
            fates("prof:false,lg_prof_sample:19,prof_gdump:true,prof_final:true"),
            [already, unneeded, already, unneeded]
        );
        assert_eq!(fates("prof:yes,prof_final:true"), [KeyFate::Ignored, unneeded]);
    }

    #[test]
    fn what_is_written_wrong_is_told_from_the_rest() {
        let texts: Vec<String> =
            read("narenas=2,\u{201c}thp:always,tcahe:true,quux:1,thp:maybe,retain:yes,narenas,:1")
                .into_iter()
                .map(|pair| {
                    assert_eq!(pair.fate, KeyFate::Ignored, "{}", pair.key);
                    pair.text
                })
                .collect();
        assert_eq!(
            texts,
            [
                "no key of jemalloc's; did you mean narenas:...?",
                "no key of jemalloc's; did you mean thp:...?",
                "no key of jemalloc's; did you mean tcache:...?",
                "no key of jemalloc's",
                "no value of thp; use always, never or default",
                "no value of retain; use true or false",
                "no value of narenas; use a number",
                "no key of jemalloc's",
            ]
        );
        assert_eq!(
            fates(" ,,narenas:-1,dirty_decay_ms:-2,lg_prof_interval:-1"),
            [KeyFate::Ignored, KeyFate::Ignored, KeyFate::AlreadySo]
        );
    }

    #[test]
    fn a_star_stands_for_any_ending() {
        assert_eq!(fates("hpa_dirty_mult:0.25,hpa_:1,hpa:true"), [KeyFate::NotNeeded; 3]);
        assert_eq!(fates("hpa_dirty_mult,xhpa_:1"), [KeyFate::Ignored; 2]);
        assert_eq!(
            fates("experimental_tcache_gc:true,experimental_infallible_new:true"),
            [KeyFate::NotNeeded, KeyFate::NotThere]
        );
    }

    #[test]
    fn every_beginning_of_a_key_suggests_one() {
        for row in KEYS.iter().filter(|row| !row.name.ends_with('*')) {
            assert!(nearest(&format!("{}=1", row.name)) == Some(row.name), "{}", row.name);
        }
    }
}
