/* mallctl_rows.h: the names of mallctl as one table: the type of each, what it reads as, and what writing it does.
 * mallctl.c answers by it. core/tests/jemalloc/names.h says what jemalloc's manual has. */
#ifndef SNUG_MALLCTL_ROWS_H
#define SNUG_MALLCTL_ROWS_H

#include "account.h"
#include "mallctl.h"

/* What a row reads as; and what the account says: as it is, or what arenas share, in bytes, in pages or as a count. */
enum value {
  VALUE_NONE, /* it can't be read */
  VALUE_ZERO,
  VALUE_ONE,
  VALUE_NEVER, /* -1 */
  VALUE_DISABLED,
  VALUE_FALSE_TEXT,
  VALUE_NO_TEXT,
  VALUE_FREE_TEXT,
  VALUE_VERSION,
  VALUE_DEBUG,
  VALUE_QUANTUM,
  VALUE_PAGE,
  VALUE_TCACHE_MAX,
  VALUE_LARGE_MIN,
  VALUE_EPOCH,
  VALUE_BACKGROUND,
  VALUE_STATS_PRINT,
  VALUE_STATS_LETTERS,
  VALUE_ABORT_CONF,
  VALUE_CONFIRM,
  VALUE_ZEROES,
  VALUE_XMALLOC,
  VALUE_DECAY,
  VALUE_THP,
  VALUE_ARENAS_MAX,
  VALUE_THREAD_ARENA,
  VALUE_SMALL_BYTES,
  VALUE_PROF_ACTIVE,
  VALUE_PROF_LG_SAMPLE,
  VALUE_OPT_PROF,
  VALUE_OPT_PROF_ACTIVE,
  VALUE_OPT_PROF_FINAL,
  VALUE_OPT_PROF_PREFIX,
  VALUE_OPT_LG_SAMPLE,
  VALUE_NEW_ARENA,
  VALUE_NEW_CACHE,
  VALUE_LOOKUP, /* the arena of a pointer, which is given as a value is */
  VALUE_OF_ACCOUNT = 64,
  VALUE_SHARED = 128,
  VALUE_SHARED_PAGES = 192,
};
_Static_assert((int)VALUE_LOOKUP < (int)VALUE_OF_ACCOUNT && (int)ACCOUNT_COUNT <= 64, "a value fits into a byte");

enum action {
  DO_NOTHING, /* it can't be written */
  DO_KEEP,    /* only what is so already may be written */
  DO_REFRESH,
  DO_SWITCH_BACKGROUND,
  DO_SWITCH_PROFILE,
  DO_DUMP,
  DO_RESET,
  DO_FLUSH,
  DO_PURGE,
  DO_FORGET_CACHE,
};

struct row {
  char name[36]; /* # is an arena */
  uint8_t type;  /* enum mallctl_type, and so on: numbers, which the loader leaves alone */
  uint8_t get;
  uint8_t set;
};

#define ACCOUNT(which) (VALUE_OF_ACCOUNT + ACCOUNT_##which)
#define SHARED(which) (VALUE_SHARED + ACCOUNT_##which)
#define SHARED_PAGES(which) (VALUE_SHARED_PAGES + ACCOUNT_##which)

static const struct row rows_of_tree[] = {
    {"version", MALLCTL_TEXT, VALUE_VERSION, DO_NOTHING},
    {"epoch", MALLCTL_U64, VALUE_EPOCH, DO_REFRESH},
    {"background_thread", MALLCTL_BOOL, VALUE_BACKGROUND, DO_SWITCH_BACKGROUND},
    {"max_background_threads", MALLCTL_SIZE, VALUE_ONE, DO_KEEP},

    {"config.cache_oblivious", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.debug", MALLCTL_BOOL, VALUE_DEBUG, DO_NOTHING},
    {"config.fill", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.lazy_lock", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.malloc_conf", MALLCTL_TEXT, VALUE_NO_TEXT, DO_NOTHING},
    {"config.opt_safety_checks", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.prof", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"config.prof_libgcc", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.prof_libunwind", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.stats", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"config.utrace", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"config.xmalloc", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},

    {"opt.abort", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"opt.abort_conf", MALLCTL_BOOL, VALUE_ABORT_CONF, DO_NOTHING},
    {"opt.confirm_conf", MALLCTL_BOOL, VALUE_CONFIRM, DO_NOTHING},
    {"opt.cache_oblivious", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"opt.trust_madvise", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"opt.retain", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"opt.dss", MALLCTL_TEXT, VALUE_DISABLED, DO_NOTHING},
    {"opt.narenas", MALLCTL_UNSIGNED, VALUE_ARENAS_MAX, DO_NOTHING},
    {"opt.percpu_arena", MALLCTL_TEXT, VALUE_DISABLED, DO_NOTHING},
    {"opt.oversize_threshold", MALLCTL_SIZE, VALUE_LARGE_MIN, DO_NOTHING},
    {"opt.background_thread", MALLCTL_BOOL, VALUE_BACKGROUND, DO_NOTHING},
    {"opt.max_background_threads", MALLCTL_SIZE, VALUE_ONE, DO_NOTHING},
    {"opt.dirty_decay_ms", MALLCTL_SIGNED, VALUE_DECAY, DO_NOTHING},
    {"opt.muzzy_decay_ms", MALLCTL_SIGNED, VALUE_ZERO, DO_NOTHING},
    {"opt.stats_print", MALLCTL_BOOL, VALUE_STATS_PRINT, DO_NOTHING},
    {"opt.stats_print_opts", MALLCTL_TEXT, VALUE_STATS_LETTERS, DO_NOTHING},
    {"opt.stats_interval", MALLCTL_SIGNED, VALUE_NEVER, DO_NOTHING},
    {"opt.stats_interval_opts", MALLCTL_TEXT, VALUE_NO_TEXT, DO_NOTHING},
    {"opt.junk", MALLCTL_TEXT, VALUE_FALSE_TEXT, DO_NOTHING},
    {"opt.zero", MALLCTL_BOOL, VALUE_ZEROES, DO_NOTHING},
    {"opt.utrace", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"opt.xmalloc", MALLCTL_BOOL, VALUE_XMALLOC, DO_NOTHING},
    {"opt.tcache", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"opt.tcache_max", MALLCTL_SIZE, VALUE_TCACHE_MAX, DO_NOTHING},
    {"opt.thp", MALLCTL_TEXT, VALUE_THP, DO_NOTHING},
    {"opt.metadata_thp", MALLCTL_TEXT, VALUE_DISABLED, DO_NOTHING},
    {"opt.zero_realloc", MALLCTL_TEXT, VALUE_FREE_TEXT, DO_NOTHING},

    {"opt.prof", MALLCTL_BOOL, VALUE_OPT_PROF, DO_NOTHING},
    {"opt.prof_prefix", MALLCTL_TEXT, VALUE_OPT_PROF_PREFIX, DO_NOTHING},
    {"opt.prof_active", MALLCTL_BOOL, VALUE_OPT_PROF_ACTIVE, DO_NOTHING},
    {"opt.prof_thread_active_init", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"opt.lg_prof_sample", MALLCTL_SIZE, VALUE_OPT_LG_SAMPLE, DO_NOTHING},
    {"opt.lg_prof_interval", MALLCTL_SIGNED, VALUE_NEVER, DO_NOTHING},
    {"opt.prof_accum", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"opt.prof_gdump", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"opt.prof_final", MALLCTL_BOOL, VALUE_OPT_PROF_FINAL, DO_NOTHING},
    {"opt.prof_leak", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},
    {"opt.prof_leak_error", MALLCTL_BOOL, VALUE_ZERO, DO_NOTHING},

    {"prof.active", MALLCTL_BOOL, VALUE_PROF_ACTIVE, DO_SWITCH_PROFILE},
    {"prof.thread_active_init", MALLCTL_BOOL, VALUE_ONE, DO_KEEP},
    {"prof.dump", MALLCTL_TEXT, VALUE_NONE, DO_DUMP},
    {"prof.reset", MALLCTL_SIZE, VALUE_NONE, DO_RESET},
    {"prof.interval", MALLCTL_U64, VALUE_ZERO, DO_NOTHING},
    {"prof.lg_sample", MALLCTL_SIZE, VALUE_PROF_LG_SAMPLE, DO_NOTHING},

    {"thread.arena", MALLCTL_UNSIGNED, VALUE_THREAD_ARENA, DO_KEEP},
    {"thread.tcache.enabled", MALLCTL_BOOL, VALUE_ONE, DO_KEEP},
    {"thread.tcache.flush", MALLCTL_ACTION, VALUE_NONE, DO_FLUSH},
    {"thread.idle", MALLCTL_ACTION, VALUE_NONE, DO_FLUSH},

    {"arena.#.initialized", MALLCTL_BOOL, VALUE_ONE, DO_NOTHING},
    {"arena.#.decay", MALLCTL_ACTION, VALUE_NONE, DO_PURGE},
    {"arena.#.purge", MALLCTL_ACTION, VALUE_NONE, DO_PURGE},
    {"arena.#.dss", MALLCTL_TEXT, VALUE_DISABLED, DO_NOTHING},
    {"arena.#.dirty_decay_ms", MALLCTL_SIGNED, VALUE_DECAY, DO_KEEP},
    {"arena.#.muzzy_decay_ms", MALLCTL_SIGNED, VALUE_ZERO, DO_KEEP},

    {"tcache.create", MALLCTL_UNSIGNED, VALUE_NEW_CACHE, DO_NOTHING},
    {"tcache.flush", MALLCTL_UNSIGNED, VALUE_NONE, DO_FORGET_CACHE},
    {"tcache.destroy", MALLCTL_UNSIGNED, VALUE_NONE, DO_FORGET_CACHE},

    {"arenas.create", MALLCTL_UNSIGNED, VALUE_NEW_ARENA, DO_NOTHING},
    {"arenas.narenas", MALLCTL_UNSIGNED, ACCOUNT(ARENAS), DO_NOTHING},
    {"arenas.dirty_decay_ms", MALLCTL_SIGNED, VALUE_DECAY, DO_KEEP},
    {"arenas.muzzy_decay_ms", MALLCTL_SIGNED, VALUE_ZERO, DO_KEEP},
    {"arenas.nbins", MALLCTL_UNSIGNED, VALUE_ZERO, DO_NOTHING}, /* Redis 8 asserts that it is known */
    {"arenas.nhbins", MALLCTL_UNSIGNED, VALUE_ZERO, DO_NOTHING},
    {"arenas.nlextents", MALLCTL_UNSIGNED, VALUE_ZERO, DO_NOTHING},
    {"arenas.lookup", MALLCTL_UNSIGNED, VALUE_LOOKUP, DO_NOTHING},
    {"arenas.quantum", MALLCTL_SIZE, VALUE_QUANTUM, DO_NOTHING},
    {"arenas.page", MALLCTL_SIZE, VALUE_PAGE, DO_NOTHING},
    {"arenas.tcache_max", MALLCTL_SIZE, VALUE_TCACHE_MAX, DO_NOTHING},

    {"stats.allocated", MALLCTL_SIZE, ACCOUNT(ALLOCATED), DO_NOTHING},
    {"stats.active", MALLCTL_SIZE, ACCOUNT(ACTIVE), DO_NOTHING},
    {"stats.metadata", MALLCTL_SIZE, ACCOUNT(METADATA), DO_NOTHING},
    {"stats.metadata_thp", MALLCTL_SIZE, VALUE_ZERO, DO_NOTHING},
    {"stats.resident", MALLCTL_SIZE, ACCOUNT(RESIDENT), DO_NOTHING},
    {"stats.mapped", MALLCTL_SIZE, ACCOUNT(MAPPED), DO_NOTHING},
    {"stats.retained", MALLCTL_SIZE, ACCOUNT(RETAINED), DO_NOTHING},
    {"stats.background_thread.num_threads", MALLCTL_SIZE, ACCOUNT(JANITORS), DO_NOTHING},
    {"stats.background_thread.num_runs", MALLCTL_U64, ACCOUNT(JANITORS_EVER), DO_NOTHING},
    {"stats.arenas.#.nthreads", MALLCTL_UNSIGNED, SHARED(THREADS), DO_NOTHING},
    {"stats.arenas.#.dss", MALLCTL_TEXT, VALUE_DISABLED, DO_NOTHING},
    {"stats.arenas.#.dirty_decay_ms", MALLCTL_SIGNED, VALUE_DECAY, DO_NOTHING},
    {"stats.arenas.#.muzzy_decay_ms", MALLCTL_SIGNED, VALUE_ZERO, DO_NOTHING},
    {"stats.arenas.#.pactive", MALLCTL_SIZE, SHARED_PAGES(ACTIVE), DO_NOTHING},
    {"stats.arenas.#.pdirty", MALLCTL_SIZE, SHARED_PAGES(DIRTY), DO_NOTHING},
    {"stats.arenas.#.pmuzzy", MALLCTL_SIZE, VALUE_ZERO, DO_NOTHING},
    {"stats.arenas.#.mapped", MALLCTL_SIZE, SHARED(MAPPED), DO_NOTHING},
    {"stats.arenas.#.retained", MALLCTL_SIZE, SHARED(RETAINED), DO_NOTHING},
    {"stats.arenas.#.base", MALLCTL_SIZE, SHARED(METADATA), DO_NOTHING},
    {"stats.arenas.#.internal", MALLCTL_SIZE, VALUE_ZERO, DO_NOTHING},
    {"stats.arenas.#.metadata_thp", MALLCTL_SIZE, VALUE_ZERO, DO_NOTHING},
    {"stats.arenas.#.tcache_bytes", MALLCTL_SIZE, SHARED(CACHED), DO_NOTHING},
    {"stats.arenas.#.resident", MALLCTL_SIZE, SHARED(RESIDENT), DO_NOTHING},
    {"stats.arenas.#.dirty_npurge", MALLCTL_U64, SHARED(PURGES), DO_NOTHING},
    {"stats.arenas.#.dirty_purged", MALLCTL_U64, SHARED_PAGES(PURGED), DO_NOTHING},
    {"stats.arenas.#.muzzy_npurge", MALLCTL_U64, VALUE_ZERO, DO_NOTHING},
    {"stats.arenas.#.muzzy_purged", MALLCTL_U64, VALUE_ZERO, DO_NOTHING},
    {"stats.arenas.#.small.allocated", MALLCTL_SIZE, VALUE_SMALL_BYTES, DO_NOTHING},
    {"stats.arenas.#.large.allocated", MALLCTL_SIZE, SHARED(LARGE), DO_NOTHING},
    {"stats.arenas.#.large.curlextents", MALLCTL_SIZE, SHARED(LARGE_BLOCKS), DO_NOTHING},
};

#undef ACCOUNT
#undef SHARED
#undef SHARED_PAGES

enum { TREE_ROWS = sizeof rows_of_tree / sizeof rows_of_tree[0] };

#endif
