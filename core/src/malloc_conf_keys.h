/* malloc_conf_keys.h: the keys of MALLOC_CONF, jemalloc's list of settings, and what each means here. The one table of
 * them: malloc_conf.c reads settings by it, and tools/update-options writes docs/how-to/jemalloc.md from it. */
#ifndef SNUG_MALLOC_CONF_KEYS_H
#define SNUG_MALLOC_CONF_KEYS_H

#include <stdint.h>

enum conf_class {
  CONF_MAPPED,  /* has the effect that the sentence says */
  CONF_ALREADY, /* what it asks for is so anyway, or means nothing here: accepted in silence */
  CONF_ABSENT,  /* what it asks for is not there: one warning, unless it asks for nothing */
};

enum conf_value {
  CONF_BOOL,   /* true or false */
  CONF_NUMBER, /* 0 and more */
  CONF_SIGNED, /* -1 and more */
  CONF_WORD,   /* anything */
};

/* What malloc_conf.c does about it. */
enum conf_effect {
  EFFECT_NONE,
  EFFECT_ARENAS,
  EFFECT_BACKGROUND,
  EFFECT_DECAY,
  EFFECT_THP,
  EFFECT_STATS,
  EFFECT_STATS_LETTERS,
  EFFECT_ZERO,
  EFFECT_XMALLOC,
  EFFECT_CONFIRM,
  EFFECT_ABORT_CONF,
  EFFECT_PROFILE, /* the five of them are looked at together, when all lists are read */
  EFFECT_PROFILE_ACTIVE,
  EFFECT_PROFILE_DISTANCE,
  EFFECT_PROFILE_PREFIX,
  EFFECT_PROFILE_FINAL,
};

struct conf_key {
  char name[28]; /* * at its end stands for anything */
  uint8_t class; /* enum conf_class, and so on */
  uint8_t value;
  uint8_t effect;
  const char *sentence; /* what it does here, or why nothing: after "NAME: " */
};

#define MAPPED(name, value, effect, sentence) {name, CONF_MAPPED, value, effect, sentence}
#define ALREADY(name, value, sentence) {name, CONF_ALREADY, value, EFFECT_NONE, sentence}
#define ABSENT(name, value, sentence) {name, CONF_ABSENT, value, EFFECT_NONE, sentence}
#define SHARED "threads share all slabs, and keep few blocks for themselves, as many as they use"
#define NO_HUGE "tables have no huge pages; thp says where the heap has"
#define ON_DEMAND "with prof:true, profiles are written by prof.dump, and at the end by prof_final:true"
#define NO_LEAK_REPORT "with prof:true, prof_final:true writes a profile of what is live; there is no report of leaks"
#define NO_THREADS "profiles are of the process, and all its threads are sampled alike"
#define NO_RECORDS "it is about records that profiles here do not have"
#define OWN_EXTENTS "it is about how jemalloc keeps extents; the heap here has none"
#define OLD "jemalloc 5 has it no more"

static const struct conf_key conf_keys[] = {
    MAPPED("narenas", CONF_NUMBER, EFFECT_ARENAS, "arenas_max; rarely needed, there is one until threads wait for it"),
    MAPPED("background_thread", CONF_BOOL, EFFECT_BACKGROUND,
           "background; the helper thread is there only when needed"),
    MAPPED("dirty_decay_ms", CONF_SIGNED, EFFECT_DECAY,
           "0: free pages go back at once, purge_cpu_percent:100; -1: only when asked for, purge_cpu_percent:0,"
           "background:0; else as ever, in 200 ms if the CPU budget allows"),
    MAPPED("thp", CONF_WORD, EFFECT_THP, "always: thp:1; never: thp:0; default: thp:2"),
    MAPPED("stats_print", CONF_BOOL, EFFECT_STATS, "malloc_stats_print at exit; stats_print of SNUG may forbid it"),
    MAPPED("stats_print_opts", CONF_WORD, EFFECT_STATS_LETTERS, "the letters of that"),
    MAPPED("prof", CONF_BOOL, EFFECT_PROFILE,
           "profile; samples of what is allocated, which prof.dump writes for jeprof and snug profile shows"),
    MAPPED("prof_active", CONF_BOOL, EFFECT_PROFILE_ACTIVE,
           "with prof:true; false: no samples until prof.active or snug profile switches them on"),
    MAPPED("lg_prof_sample", CONF_NUMBER, EFFECT_PROFILE_DISTANCE,
           "with prof:true, one sample in every 2^N bytes, N from 1 to 30; fewer while that makes over 100 a second"),
    MAPPED("prof_prefix", CONF_WORD, EFFECT_PROFILE_PREFIX,
           "with prof:true, how the files of profiles are called; empty: they need a name"),
    MAPPED("prof_final", CONF_BOOL, EFFECT_PROFILE_FINAL, "with prof:true, a profile when the program ends by itself"),
    MAPPED("zero", CONF_BOOL, EFFECT_ZERO, "all blocks are zeroed, without thread caches: for debugging"),
    MAPPED("xmalloc", CONF_BOOL, EFFECT_XMALLOC, "no memory ends the process with a message"),
    MAPPED("abort_conf", CONF_BOOL, EFFECT_ABORT_CONF, "whatever is warned about in these settings ends the process"),
    MAPPED("confirm_conf", CONF_BOOL, EFFECT_CONFIRM, "says this for each key, on stderr"),

    ALREADY("muzzy_decay_ms", CONF_SIGNED, "there are no muzzy pages: what goes back goes back at once"),
    ALREADY("tcache", CONF_BOOL, SHARED),
    ALREADY("tcache_max", CONF_NUMBER, SHARED),
    ALREADY("lg_tcache_max", CONF_NUMBER, SHARED),
    ALREADY("tcache_ncached_max", CONF_WORD, SHARED),
    ALREADY("tcache_nslots_small_min", CONF_NUMBER, SHARED),
    ALREADY("tcache_nslots_small_max", CONF_NUMBER, SHARED),
    ALREADY("tcache_nslots_large", CONF_NUMBER, SHARED),
    ALREADY("lg_tcache_nslots_mul", CONF_SIGNED, SHARED),
    ALREADY("tcache_gc_incr_bytes", CONF_NUMBER, SHARED),
    ALREADY("tcache_gc_delay_bytes", CONF_NUMBER, SHARED),
    ALREADY("lg_tcache_flush_small_div", CONF_NUMBER, SHARED),
    ALREADY("lg_tcache_flush_large_div", CONF_NUMBER, SHARED),
    ALREADY("percpu_arena", CONF_WORD, SHARED),
    ALREADY("narenas_ratio", CONF_WORD, SHARED),
    ALREADY("max_background_threads", CONF_NUMBER, "there is one helper thread at most"),
    ALREADY("retain", CONF_BOOL, "the heap keeps its addresses"),
    ALREADY("metadata_thp", CONF_WORD, NO_HUGE),
    ALREADY("huge_arena_pac_thp", CONF_BOOL, NO_HUGE),
    ALREADY("hpa", CONF_BOOL, NO_HUGE),
    ALREADY("hpa_*", CONF_WORD, NO_HUGE),
    ALREADY("oversize_threshold", CONF_NUMBER, "blocks of 1 MiB and more have a mapping of their own"),
    ALREADY("lg_extent_max_active_fit", CONF_NUMBER, OWN_EXTENTS),
    ALREADY("cache_oblivious", CONF_BOOL, OWN_EXTENTS),
    ALREADY("disable_large_size_classes", CONF_BOOL, OWN_EXTENTS),
    ALREADY("process_madvise_max_batch", CONF_NUMBER, OWN_EXTENTS),
    ALREADY("slab_sizes", CONF_WORD, "slabs are of a few pages, by size class"),
    ALREADY("bin_shards", CONF_WORD, SHARED),
    ALREADY("dss", CONF_WORD, "the heap never uses sbrk"),
    ALREADY("trust_madvise", CONF_BOOL, "pages given back by madvise read as zero, on Linux"),
    ALREADY("mutex_max_spin", CONF_SIGNED, "locks spin as long as it pays"),
    ALREADY("abort", CONF_BOOL, "misuse always ends the process, with a message"),
    ALREADY("debug_double_free_max_scan", CONF_NUMBER, "double frees are found when blocks reach their slab"),
    ALREADY("calloc_madvise_threshold", CONF_NUMBER, "calloc knows which pages are zero"),
    ALREADY("log", CONF_WORD, "it is for those who write jemalloc"),
    ALREADY("stats_interval_opts", CONF_WORD, "there is no stats_interval"),
    ALREADY("prof_accum", CONF_BOOL, "profiles always count what was ever allocated, too"),
    ALREADY("prof_unbias", CONF_BOOL, "each sample has a weight of its own, and profiles have sums of weights"),
    ALREADY("prof_bt_max", CONF_NUMBER, "stacks have up to 64 frames"),
    ALREADY("prof_thread_active_init", CONF_BOOL, NO_THREADS),
    ALREADY("prof_sys_thread_name", CONF_BOOL, NO_THREADS),
    ALREADY("prof_pid_namespace", CONF_BOOL, "files are called by the process's id as the process sees it"),
    ALREADY("prof_stats", CONF_BOOL, NO_RECORDS),
    ALREADY("prof_time_resolution", CONF_WORD, NO_RECORDS),
    ALREADY("prof_recent_alloc_max", CONF_SIGNED, NO_RECORDS),
    ALREADY("lg_dirty_mult", CONF_SIGNED, OLD),
    ALREADY("decay_time", CONF_SIGNED, OLD),
    ALREADY("purge", CONF_WORD, OLD),
    ALREADY("lg_chunk", CONF_NUMBER, OLD),
    ALREADY("munmap", CONF_BOOL, OLD),
    ALREADY("lg_tcache_gc_sweep", CONF_SIGNED, OLD),
    ALREADY("quarantine", CONF_NUMBER, OLD),
    ALREADY("redzone", CONF_BOOL, OLD),
    ALREADY("valgrind", CONF_BOOL, OLD),

    ABSENT("lg_prof_interval", CONF_SIGNED, ON_DEMAND),
    ABSENT("prof_gdump", CONF_BOOL, ON_DEMAND),
    ABSENT("prof_leak", CONF_BOOL, NO_LEAK_REPORT),
    ABSENT("prof_leak_error", CONF_BOOL, NO_LEAK_REPORT),
    ABSENT("prof_log", CONF_BOOL, ON_DEMAND),
    ABSENT("junk", CONF_WORD, "blocks are not filled; SNUG=guard:1 fills freed ones and finds who uses them"),
    ABSENT("stats_interval", CONF_SIGNED, "statistics are printed at exit only, by stats_print:true"),
    ABSENT("utrace", CONF_BOOL, "calls are not traced"),
    ABSENT("zero_realloc", CONF_WORD, "realloc(p, 0) frees p, as in the C library"),
    ABSENT("experimental_infallible_new", CONF_BOOL, "operator new throws bad_alloc; xmalloc:true ends the process"),
    ABSENT("lg_san_uaf_align", CONF_SIGNED, "SNUG=guard:1 finds who uses freed blocks"),
    ABSENT("san_guard_small", CONF_NUMBER, "SNUG=guard:1 guards all blocks"),
    ABSENT("san_guard_large", CONF_NUMBER, "SNUG=guard:1 guards all blocks"),
    ALREADY("experimental_*", CONF_WORD, OWN_EXTENTS),
};

enum { CONF_KEY_COUNT = sizeof conf_keys / sizeof conf_keys[0] };

#undef MAPPED
#undef ALREADY
#undef ABSENT
#undef SHARED
#undef NO_HUGE
#undef ON_DEMAND
#undef NO_LEAK_REPORT
#undef NO_THREADS
#undef NO_RECORDS
#undef OWN_EXTENTS
#undef OLD

#endif
