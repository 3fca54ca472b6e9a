#include "mallctl.h"

#include <errno.h>
#include <string.h>

#include "account.h"
#include "cache.h"
#include "control.h"
#include "janitor.h"
#include "large.h"
#include "maintain.h"
#include "malloc_conf.h"
#include "options.h"
#include "profile.h"
#include "profile_dump.h"
#include "purge.h"
#include "ready.h"
#include "slab.h"

EXPORT int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes);
EXPORT int mallctlnametomib(const char *name, size_t *mib, size_t *mib_length);
EXPORT int mallctlbymib(const size_t *mib, size_t mib_length, void *old, size_t *old_bytes, void *new_value,
                        size_t new_bytes);

#define MALLCTL_NOTHING UINT64_MAX /* a call that may have a value to write, and has none */

const char mallctl_version[] = "5.3.1-0-snug-" SNUG_VERSION;

/* ---- what can be read ---- */

static union mallctl_value as_number(uint64_t number) { return (union mallctl_value){.number = number}; }
static union mallctl_value as_text(const char *text) { return (union mallctl_value){.text = text}; }

#define CONSTANT(name, value) \
  static union mallctl_value name(size_t arena) { return (void)arena, value; }

CONSTANT(get_zero, as_number(0))
CONSTANT(get_one, as_number(1))
CONSTANT(get_disabled, as_text("disabled"))
CONSTANT(get_false_text, as_text("false"))
CONSTANT(get_no_text, as_text(""))
CONSTANT(get_free_text, as_text("free"))
CONSTANT(get_version, as_text(mallctl_version))
CONSTANT(get_debug, as_number(SNUG_DEBUG))
CONSTANT(get_quantum, as_number(16))
CONSTANT(get_page, as_number(PAGE_BYTES))
CONSTANT(get_tcache_max, as_number(CLASS_MAX_BYTES))
CONSTANT(get_large_min, as_number(LARGE_MIN_BYTES))
CONSTANT(get_epoch, as_number(account_epoch()))
CONSTANT(get_background, as_number(__atomic_load_n(&options.background, __ATOMIC_RELAXED)))
CONSTANT(get_stats_print, as_number(__atomic_load_n(&options.stats_print, __ATOMIC_RELAXED)))
CONSTANT(get_stats_letters, as_text(malloc_conf_settings.stats_letters))
CONSTANT(get_abort_conf, as_number(malloc_conf_settings.abort_conf))
CONSTANT(get_confirm, as_number(malloc_conf_settings.confirm))
CONSTANT(get_zeroes, as_number(malloc_conf_settings.zero))
CONSTANT(get_xmalloc, as_number(malloc_conf_settings.xmalloc))
CONSTANT(get_decay, as_number((uint64_t)malloc_conf_settings.dirty_decay_ms))
CONSTANT(get_thp, as_text(options.thp == THP_NEVER ? "never" : options.thp == THP_ALWAYS ? "always" : "default"))
CONSTANT(get_thread_arena, as_number(this_thread.tag >> ARENA_SHIFT))

static union mallctl_value get_arenas_max(size_t arena) {
  (void)arena;
  return as_number(options.arenas_max != 0 ? options.arenas_max : ARENA_MAX);
}

static union mallctl_value get_arenas(size_t arena) {
  (void)arena;
  return as_number(account_read(ACCOUNT_ARENAS));
}

#define FROM_ACCOUNT(name, which) CONSTANT(name, as_number(account_read(which)))

FROM_ACCOUNT(get_allocated, ACCOUNT_ALLOCATED)
FROM_ACCOUNT(get_active, ACCOUNT_ACTIVE)
FROM_ACCOUNT(get_metadata, ACCOUNT_METADATA)
FROM_ACCOUNT(get_resident, ACCOUNT_RESIDENT)
FROM_ACCOUNT(get_mapped, ACCOUNT_MAPPED)
FROM_ACCOUNT(get_retained, ACCOUNT_RETAINED)
FROM_ACCOUNT(get_janitors, ACCOUNT_JANITORS)
FROM_ACCOUNT(get_janitors_ever, ACCOUNT_JANITORS_EVER)

/* Of one arena, or of all. What arenas share counts as the first one's, so that sums are right. */
static bool has_shared(size_t arena) { return arena == MALLCTL_ALL_ARENAS || arena == 0; }

static union mallctl_value get_small(size_t arena) {
  return as_number(arena == MALLCTL_ALL_ARENAS ? account_read(ACCOUNT_SMALL) : account_small_bytes((uint32_t)arena));
}

static union mallctl_value shared_number(size_t arena, enum account which, size_t unit_bytes) {
  return as_number(has_shared(arena) ? account_read(which) / unit_bytes : 0);
}

#define SHARED(name, which, unit_bytes) \
  static union mallctl_value name(size_t arena) { return shared_number(arena, which, unit_bytes); }

SHARED(get_shared_large, ACCOUNT_LARGE, 1)
SHARED(get_shared_large_blocks, ACCOUNT_LARGE_BLOCKS, 1)
SHARED(get_shared_mapped, ACCOUNT_MAPPED, 1)
SHARED(get_shared_retained, ACCOUNT_RETAINED, 1)
SHARED(get_shared_metadata, ACCOUNT_METADATA, 1)
SHARED(get_shared_resident, ACCOUNT_RESIDENT, 1)
SHARED(get_shared_pactive, ACCOUNT_ACTIVE, PAGE_BYTES)
SHARED(get_shared_pdirty, ACCOUNT_DIRTY, PAGE_BYTES)
SHARED(get_shared_purges, ACCOUNT_PURGES, 1)
SHARED(get_shared_purged, ACCOUNT_PURGED, PAGE_BYTES)
SHARED(get_shared_cached, ACCOUNT_CACHED, 1)
SHARED(get_shared_threads, ACCOUNT_THREADS, 1)

/* ---- arenas and caches of the caller's own ---- */

enum { FIRST_CREATED = ARENA_MAX };

static struct {
  uint32_t arenas, caches; /* atomic: so many were created */
} created;

/* A number that the flags of mallocx take as a hint; nothing is ever in such an arena, and its numbers say so. */
static union mallctl_value create_arena(size_t arena) {
  (void)arena;
  uint32_t count = __atomic_fetch_add(&created.arenas, 1, __ATOMIC_RELAXED);
  return as_number(FIRST_CREATED + count % (MALLCTL_ALL_ARENAS - FIRST_CREATED));
}

static union mallctl_value create_cache(size_t arena) {
  (void)arena;
  return as_number(__atomic_fetch_add(&created.caches, 1, __ATOMIC_RELAXED));
}

/* To be flushed or destroyed: it holds nothing. */
static int forget_cache(size_t arena, uint64_t new) {
  (void)arena;
  return new < __atomic_load_n(&created.caches, __ATOMIC_RELAXED) ? 0 : EFAULT;
}

static bool was_created(size_t arena) {
  uint32_t count = __atomic_load_n(&created.arenas, __ATOMIC_RELAXED);
  return arena >= FIRST_CREATED && arena < MALLCTL_ALL_ARENAS && arena - FIRST_CREATED < count;
}

/* ---- what can be written or done ---- */

static int refresh_account(size_t arena, uint64_t new) {
  (void)arena, (void)new;
  account_refresh();
  return 0;
}

static int purge_arenas(size_t arena, uint64_t new) {
  (void)arena, (void)new;
  start_if_needed();
  maintain_give_all_back();
  return 0;
}

static int flush_own(size_t arena, uint64_t new) {
  (void)arena, (void)new;
  start_if_needed();
  if (cache_thread_is_inside()) return EAGAIN; /* K5 */
  cache_slow_path_begins();
  cache_empty_own();
  cache_slow_path_ends();
  return 0;
}

/* When this returns with false the helper thread has ended. */
static int switch_background(size_t arena, uint64_t new) {
  (void)arena;
  start_if_needed();
  if (cache_thread_is_inside()) return EAGAIN; /* K5 */
  cache_slow_path_begins();
  bool done = control_switch_background(new);
  if (done && !new) {
    janitor_stop();
    janitor_resume();
  }
  cache_slow_path_ends();
  return done ? 0 : EAGAIN;
}

/* ---- profiles ---- */

static bool profiles_are_there(void) { return __atomic_load_n(&profile_head, __ATOMIC_ACQUIRE) != NULL; }

/* The option profile, as it is when samples are switched on. */
static uint32_t setting_when_on(void) {
  uint32_t now = __atomic_load_n(&options.profile, __ATOMIC_RELAXED);
  return now != 0 ? now : __atomic_load_n(&malloc_conf_settings.profile, __ATOMIC_RELAXED);
}

static int set_profile(uint32_t setting) {
  if (cache_thread_is_inside()) return EAGAIN; /* K5 */
  cache_slow_path_begins();
  bool done = control_set_profile(setting);
  cache_slow_path_ends();
  return done ? 0 : EAGAIN;
}

static int switch_profile(size_t arena, uint64_t new) {
  (void)arena;
  if ((new != 0) == control_samples_for_good()) return 0;
  uint32_t setting = setting_when_on();
  __atomic_store_n(&malloc_conf_settings.profile, setting, __ATOMIC_RELAXED);
  return set_profile(new ? setting : 0);
}

/* A path, or nothing: then prof_prefix says how it is called. */
static int dump_profile(size_t arena, uint64_t new) {
  (void)arena;
  if (!profiles_are_there()) return ENOENT;
  const char *path = new != MALLCTL_NOTHING ? (const char *)(uintptr_t)new : NULL;
  return profile_dump(path) ? 0 : EFAULT;
}

/* The binary logarithm of another distance, or nothing. */
static int reset_profile(size_t arena, uint64_t new) {
  (void)arena;
  if (!profiles_are_there()) return ENOENT;
  if (new != MALLCTL_NOTHING) {
    bool is_on = control_samples_for_good();
    uint32_t setting = malloc_conf_profile(new);
    __atomic_store_n(&malloc_conf_settings.profile, setting, __ATOMIC_RELAXED);
    int result = is_on ? set_profile(setting) : 0;
    if (result != 0) return result;
  }
  if (cache_thread_is_inside()) return EAGAIN; /* K5 */
  cache_slow_path_begins();
  profile_table_reset();
  cache_slow_path_ends();
  return 0;
}

static unsigned lg_of(uint64_t number) { return 63 - (unsigned)__builtin_clzll(number | 1); }

CONSTANT(get_prof_active, as_number(__atomic_load_n(&options.profile, __ATOMIC_RELAXED) != 0))
CONSTANT(get_lg_sample, as_number(lg_of(profile_mean_bytes(setting_when_on()))))
CONSTANT(get_opt_prof, as_number(malloc_conf_settings.prof))
CONSTANT(get_opt_prof_active, as_number(malloc_conf_settings.prof_active))
CONSTANT(get_opt_prof_final, as_number(malloc_conf_settings.prof_final))
CONSTANT(get_opt_prof_prefix, as_text(malloc_conf_settings.prof_prefix))
CONSTANT(get_opt_lg_sample, as_number(lg_of(profile_wanted_mean(malloc_conf_settings.first_profile))))
CONSTANT(get_never, as_number((uint64_t)-1))

/* Only what is so already may be written: */
static int only_true(size_t arena, uint64_t new) {
  (void)arena;
  return new ? 0 : EPERM;
}
static int only_one(size_t arena, uint64_t new) {
  (void)arena;
  return new == 1 ? 0 : EINVAL;
}

/* ---- the table ---- */

struct row {
  const char *name; /* # is an arena */
  enum mallctl_type type;
  union mallctl_value (*get)(size_t arena); /* NULL: it can't be read */
  int (*set)(size_t arena, uint64_t new);   /* NULL: it can't be written */
};

static const struct row rows_of_tree[] = {
    {"version", MALLCTL_TEXT, get_version, NULL},
    {"epoch", MALLCTL_U64, get_epoch, refresh_account},
    {"background_thread", MALLCTL_BOOL, get_background, switch_background},
    {"max_background_threads", MALLCTL_SIZE, get_one, only_one},

    {"config.cache_oblivious", MALLCTL_BOOL, get_zero, NULL},
    {"config.debug", MALLCTL_BOOL, get_debug, NULL},
    {"config.fill", MALLCTL_BOOL, get_zero, NULL},
    {"config.lazy_lock", MALLCTL_BOOL, get_zero, NULL},
    {"config.malloc_conf", MALLCTL_TEXT, get_no_text, NULL},
    {"config.opt_safety_checks", MALLCTL_BOOL, get_zero, NULL},
    {"config.prof", MALLCTL_BOOL, get_one, NULL},
    {"config.prof_libgcc", MALLCTL_BOOL, get_zero, NULL},
    {"config.prof_libunwind", MALLCTL_BOOL, get_zero, NULL},
    {"config.stats", MALLCTL_BOOL, get_one, NULL},
    {"config.utrace", MALLCTL_BOOL, get_zero, NULL},
    {"config.xmalloc", MALLCTL_BOOL, get_one, NULL},

    {"opt.abort", MALLCTL_BOOL, get_zero, NULL},
    {"opt.abort_conf", MALLCTL_BOOL, get_abort_conf, NULL},
    {"opt.confirm_conf", MALLCTL_BOOL, get_confirm, NULL},
    {"opt.retain", MALLCTL_BOOL, get_one, NULL},
    {"opt.dss", MALLCTL_TEXT, get_disabled, NULL},
    {"opt.narenas", MALLCTL_UNSIGNED, get_arenas_max, NULL},
    {"opt.percpu_arena", MALLCTL_TEXT, get_disabled, NULL},
    {"opt.oversize_threshold", MALLCTL_SIZE, get_large_min, NULL},
    {"opt.background_thread", MALLCTL_BOOL, get_background, NULL},
    {"opt.max_background_threads", MALLCTL_SIZE, get_one, NULL},
    {"opt.dirty_decay_ms", MALLCTL_SIGNED, get_decay, NULL},
    {"opt.muzzy_decay_ms", MALLCTL_SIGNED, get_zero, NULL},
    {"opt.stats_print", MALLCTL_BOOL, get_stats_print, NULL},
    {"opt.stats_print_opts", MALLCTL_TEXT, get_stats_letters, NULL},
    {"opt.junk", MALLCTL_TEXT, get_false_text, NULL},
    {"opt.zero", MALLCTL_BOOL, get_zeroes, NULL},
    {"opt.xmalloc", MALLCTL_BOOL, get_xmalloc, NULL},
    {"opt.tcache", MALLCTL_BOOL, get_one, NULL},
    {"opt.tcache_max", MALLCTL_SIZE, get_tcache_max, NULL},
    {"opt.thp", MALLCTL_TEXT, get_thp, NULL},
    {"opt.metadata_thp", MALLCTL_TEXT, get_disabled, NULL},
    {"opt.zero_realloc", MALLCTL_TEXT, get_free_text, NULL},

    {"opt.prof", MALLCTL_BOOL, get_opt_prof, NULL},
    {"opt.prof_prefix", MALLCTL_TEXT, get_opt_prof_prefix, NULL},
    {"opt.prof_active", MALLCTL_BOOL, get_opt_prof_active, NULL},
    {"opt.prof_thread_active_init", MALLCTL_BOOL, get_one, NULL},
    {"opt.lg_prof_sample", MALLCTL_SIZE, get_opt_lg_sample, NULL},
    {"opt.lg_prof_interval", MALLCTL_SIGNED, get_never, NULL},
    {"opt.prof_accum", MALLCTL_BOOL, get_one, NULL},
    {"opt.prof_gdump", MALLCTL_BOOL, get_zero, NULL},
    {"opt.prof_final", MALLCTL_BOOL, get_opt_prof_final, NULL},
    {"opt.prof_leak", MALLCTL_BOOL, get_zero, NULL},

    {"prof.active", MALLCTL_BOOL, get_prof_active, switch_profile},
    {"prof.thread_active_init", MALLCTL_BOOL, get_one, only_true},
    {"prof.dump", MALLCTL_TEXT, NULL, dump_profile},
    {"prof.reset", MALLCTL_SIZE, NULL, reset_profile},
    {"prof.interval", MALLCTL_U64, get_zero, NULL},
    {"prof.lg_sample", MALLCTL_SIZE, get_lg_sample, NULL},

    {"thread.arena", MALLCTL_UNSIGNED, get_thread_arena, NULL},
    {"thread.tcache.enabled", MALLCTL_BOOL, get_one, only_true},
    {"thread.tcache.flush", MALLCTL_ACTION, NULL, flush_own},
    {"thread.idle", MALLCTL_ACTION, NULL, flush_own},

    {"arena.#.initialized", MALLCTL_BOOL, get_one, NULL},
    {"arena.#.decay", MALLCTL_ACTION, NULL, purge_arenas},
    {"arena.#.purge", MALLCTL_ACTION, NULL, purge_arenas},

    {"tcache.create", MALLCTL_UNSIGNED, create_cache, NULL},
    {"tcache.flush", MALLCTL_UNSIGNED, NULL, forget_cache},
    {"tcache.destroy", MALLCTL_UNSIGNED, NULL, forget_cache},

    {"arenas.create", MALLCTL_UNSIGNED, create_arena, NULL},
    {"arenas.narenas", MALLCTL_UNSIGNED, get_arenas, NULL},
    {"arenas.dirty_decay_ms", MALLCTL_SIGNED, get_decay, NULL},
    {"arenas.muzzy_decay_ms", MALLCTL_SIGNED, get_zero, NULL},
    {"arenas.nbins", MALLCTL_UNSIGNED, get_zero, NULL}, /* Redis 8 asserts that it is known */
    {"arenas.quantum", MALLCTL_SIZE, get_quantum, NULL},
    {"arenas.page", MALLCTL_SIZE, get_page, NULL},
    {"arenas.tcache_max", MALLCTL_SIZE, get_tcache_max, NULL},

    {"stats.allocated", MALLCTL_SIZE, get_allocated, NULL},
    {"stats.active", MALLCTL_SIZE, get_active, NULL},
    {"stats.metadata", MALLCTL_SIZE, get_metadata, NULL},
    {"stats.metadata_thp", MALLCTL_SIZE, get_zero, NULL},
    {"stats.resident", MALLCTL_SIZE, get_resident, NULL},
    {"stats.mapped", MALLCTL_SIZE, get_mapped, NULL},
    {"stats.retained", MALLCTL_SIZE, get_retained, NULL},
    {"stats.background_thread.num_threads", MALLCTL_SIZE, get_janitors, NULL},
    {"stats.background_thread.num_runs", MALLCTL_U64, get_janitors_ever, NULL},
    {"stats.arenas.#.nthreads", MALLCTL_UNSIGNED, get_shared_threads, NULL},
    {"stats.arenas.#.dss", MALLCTL_TEXT, get_disabled, NULL},
    {"stats.arenas.#.dirty_decay_ms", MALLCTL_SIGNED, get_decay, NULL},
    {"stats.arenas.#.muzzy_decay_ms", MALLCTL_SIGNED, get_zero, NULL},
    {"stats.arenas.#.pactive", MALLCTL_SIZE, get_shared_pactive, NULL},
    {"stats.arenas.#.pdirty", MALLCTL_SIZE, get_shared_pdirty, NULL},
    {"stats.arenas.#.pmuzzy", MALLCTL_SIZE, get_zero, NULL},
    {"stats.arenas.#.mapped", MALLCTL_SIZE, get_shared_mapped, NULL},
    {"stats.arenas.#.retained", MALLCTL_SIZE, get_shared_retained, NULL},
    {"stats.arenas.#.base", MALLCTL_SIZE, get_shared_metadata, NULL},
    {"stats.arenas.#.internal", MALLCTL_SIZE, get_zero, NULL},
    {"stats.arenas.#.metadata_thp", MALLCTL_SIZE, get_zero, NULL},
    {"stats.arenas.#.tcache_bytes", MALLCTL_SIZE, get_shared_cached, NULL},
    {"stats.arenas.#.resident", MALLCTL_SIZE, get_shared_resident, NULL},
    {"stats.arenas.#.dirty_npurge", MALLCTL_U64, get_shared_purges, NULL},
    {"stats.arenas.#.dirty_purged", MALLCTL_U64, get_shared_purged, NULL},
    {"stats.arenas.#.muzzy_npurge", MALLCTL_U64, get_zero, NULL},
    {"stats.arenas.#.muzzy_purged", MALLCTL_U64, get_zero, NULL},
    {"stats.arenas.#.small.allocated", MALLCTL_SIZE, get_small, NULL},
    {"stats.arenas.#.large.allocated", MALLCTL_SIZE, get_shared_large, NULL},
    {"stats.arenas.#.large.curlextents", MALLCTL_SIZE, get_shared_large_blocks, NULL},
};

enum { TREE_ROWS = sizeof rows_of_tree / sizeof rows_of_tree[0] };

static bool is_epoch(const struct row *row) { return row->set == refresh_account; }
static bool may_be_nothing(const struct row *row) { return row->set == dump_profile || row->set == reset_profile; }

/* ---- names and MIBs ---- */

/* Length of the part that begins here. */
static size_t part_length(const char *at) {
  size_t length = 0;
  while (at[length] != '\0' && at[length] != '.') length++;
  return length;
}

static const char *part_of(const char *name, size_t depth) {
  for (; depth > 0; depth--) {
    name += part_length(name);
    if (*name != '.') return NULL;
    name++;
  }
  return name;
}

static size_t parts_of(const char *name) {
  size_t count = 1;
  for (; *name != '\0'; name++) count += *name == '.';
  return count;
}

static bool is_arena_part(const char *name, size_t depth) { return *part_of(name, depth) == '#'; }

/* The arena of a part that is all digits. jemalloc 4 knew all arenas as the one behind the last. */
static bool parse_arena(const char *part, size_t length, size_t *arena) {
  size_t n = 0;
  for (size_t i = 0; i < length; i++) {
    if (part[i] < '0' || part[i] > '9' || n > MALLCTL_ALL_ARENAS * 10) return false;
    n = n * 10 + (size_t)(part[i] - '0');
  }
  *arena = n;
  return length != 0;
}

static bool arena_exists(size_t arena) {
  return arena <= get_arenas(0).number || arena == MALLCTL_ALL_ARENAS || was_created(arena);
}

/* Whether the row agrees with the name in its part of this depth. */
static bool part_agrees(const char *row_name, const char *name, size_t depth) {
  const char *of_row = part_of(row_name, depth), *given = part_of(name, depth);
  if (of_row == NULL) return false;
  size_t length = part_length(given), arena;
  if (*of_row == '#') return parse_arena(given, length, &arena) && arena_exists(arena);
  return part_length(of_row) == length && memcmp(of_row, given, length) == 0;
}

/* The first row that agrees with the name in this many parts; TREE_ROWS: none. A row's name serves, too. */
static size_t first_row(const char *name, size_t parts, bool is_row_name) {
  for (size_t row = 0; row < TREE_ROWS; row++) {
    size_t depth = 0;
    while (depth < parts) {
      const char *row_name = rows_of_tree[row].name, *of_row = part_of(row_name, depth);
      bool same_arena = is_row_name && of_row != NULL && *of_row == '#' && *part_of(name, depth) == '#';
      if (!same_arena && !part_agrees(row_name, name, depth)) break;
      depth++;
    }
    if (depth == parts) return row;
  }
  return TREE_ROWS;
}

/* X1 of a part of a row. */
static size_t mib_of(size_t row, size_t depth) { return first_row(rows_of_tree[row].name, depth + 1, true); }

/* The row of a whole name, and its arena. */
static bool find_row(const char *name, size_t *row, size_t *arena) {
  size_t parts = parts_of(name);
  if (parts > MALLCTL_PARTS_MAX) return false;
  *row = first_row(name, parts, false);
  *arena = MALLCTL_ALL_ARENAS;
  if (*row == TREE_ROWS || parts_of(rows_of_tree[*row].name) != parts) return false;
  for (size_t depth = 0; depth < parts; depth++) {
    const char *part = part_of(name, depth);
    if (is_arena_part(rows_of_tree[*row].name, depth)) parse_arena(part, part_length(part), arena);
  }
  return true;
}

static bool find_row_of_mib(const size_t *mib, size_t length, size_t *row, size_t *arena) {
  if (length == 0 || length > MALLCTL_PARTS_MAX) return false;
  *row = mib[length - 1];
  *arena = MALLCTL_ALL_ARENAS;
  if (*row >= TREE_ROWS || parts_of(rows_of_tree[*row].name) != length) return false;
  for (size_t depth = 0; depth < length; depth++) {
    if (!is_arena_part(rows_of_tree[*row].name, depth)) {
      if (mib[depth] != mib_of(*row, depth)) return false;
    } else {
      *arena = mib[depth];
      if (!arena_exists(*arena)) return false;
    }
  }
  return true;
}

/* ---- the calls ---- */

static size_t size_of(enum mallctl_type type) {
  switch (type) {
    case MALLCTL_BOOL: return sizeof(bool);
    case MALLCTL_UNSIGNED: return sizeof(unsigned);
    case MALLCTL_SIZE: return sizeof(size_t);
    case MALLCTL_SIGNED: return sizeof(ptrdiff_t);
    case MALLCTL_U64: return sizeof(uint64_t);
    case MALLCTL_TEXT: return sizeof(const char *);
    case MALLCTL_ACTION: break;
  }
  return 0;
}

/* As much of the value as there is room for; EINVAL if that is not its size. */
static int read_value(const struct row *row, size_t arena, void *old, size_t *old_bytes) {
  if (old == NULL || old_bytes == NULL) return 0;
  union mallctl_value v = row->get(arena);
  bool b = v.number != 0;
  unsigned u = (unsigned)v.number;
  const void *from = row->type == MALLCTL_BOOL       ? (const void *)&b
                     : row->type == MALLCTL_UNSIGNED ? (const void *)&u
                                                     : &v;
  size_t wanted = size_of(row->type), room = *old_bytes;
  *old_bytes = room < wanted ? room : wanted;
  memcpy(old, from, *old_bytes);
  return room == wanted ? 0 : EINVAL;
}

static uint64_t number_from(const struct row *row, const void *new_value) {
  uint64_t number = 0;
  bool b;
  if (row->type == MALLCTL_BOOL) return memcpy(&b, new_value, sizeof b), b;
  memcpy(&number, new_value, size_of(row->type));
  return number;
}

static int act(const struct row *row, size_t arena, void *old, size_t *old_bytes, void *new_value, size_t new_bytes) {
  if (row->type == MALLCTL_ACTION) {
    if (old != NULL || old_bytes != NULL || new_value != NULL || new_bytes != 0) return EPERM;
    return row->set(arena, 0);
  }
  if (row->get == NULL && (old != NULL || old_bytes != NULL)) return EPERM;
  if (row->get == NULL && new_value == NULL) {
    return new_bytes != 0 || !may_be_nothing(row) ? EINVAL : row->set(arena, MALLCTL_NOTHING);
  }
  if (row->set == NULL && (new_value != NULL || new_bytes != 0)) return EPERM;
  if (new_value != NULL && new_bytes != size_of(row->type)) return EINVAL;
  if (is_epoch(row)) {
    if (new_value != NULL) row->set(arena, 0);
    return read_value(row, arena, old, old_bytes);
  }
  int result = read_value(row, arena, old, old_bytes);
  return result != 0 || new_value == NULL ? result : row->set(arena, number_from(row, new_value));
}

int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes) {
  size_t row, arena;
  if (name == NULL) return EINVAL;
  start_if_needed();
  if (!find_row(name, &row, &arena)) return ENOENT;
  return act(&rows_of_tree[row], arena, old, old_bytes, new_value, new_bytes);
}

int mallctlbymib(const size_t *mib, size_t mib_length, void *old, size_t *old_bytes, void *new_value,
                 size_t new_bytes) {
  size_t row, arena;
  if (mib == NULL) return EINVAL;
  start_if_needed();
  if (!find_row_of_mib(mib, mib_length, &row, &arena)) return ENOENT;
  return act(&rows_of_tree[row], arena, old, old_bytes, new_value, new_bytes);
}

/* The beginning of a name will do; so will a MIB that is too short for the whole. */
int mallctlnametomib(const char *name, size_t *mib, size_t *mib_length) {
  if (name == NULL || mib == NULL || mib_length == NULL) return EINVAL;
  start_if_needed();
  size_t parts = parts_of(name);
  if (parts > MALLCTL_PARTS_MAX) return ENOENT;
  if (parts < *mib_length) *mib_length = parts;
  size_t row = first_row(name, *mib_length, false);
  if (row == TREE_ROWS) return ENOENT;
  for (size_t depth = 0; depth < *mib_length; depth++) {
    const char *part = part_of(name, depth);
    if (!is_arena_part(rows_of_tree[row].name, depth)) {
      mib[depth] = mib_of(row, depth);
    } else {
      parse_arena(part, part_length(part), &mib[depth]);
    }
  }
  return 0;
}

bool mallctl_row(size_t index, const char **name, enum mallctl_type *type, bool *of_arena) {
  if (index >= TREE_ROWS) return false;
  *name = rows_of_tree[index].name;
  bool creates = rows_of_tree[index].get == create_arena || rows_of_tree[index].get == create_cache;
  *type = creates ? MALLCTL_ACTION : rows_of_tree[index].type;
  *of_arena = strchr(*name, '#') != NULL;
  return true;
}

union mallctl_value mallctl_value_of(size_t index, size_t arena) { return rows_of_tree[index].get(arena); }
