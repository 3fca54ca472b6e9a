#include "mallctl.h"

#include <errno.h>
#include <string.h>

#include "account.h"
#include "aside.h"
#include "cache.h"
#include "control.h"
#include "fence.h"
#include "guard.h"
#include "janitor.h"
#include "large.h"
#include "maintain.h"
#include "mallctl_rows.h"
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

/* One arena, or all. What arenas share counts as the first one's, so that sums are right. */
static bool has_shared(size_t arena) { return arena == MALLCTL_ALL_ARENAS || arena == 0; }

static uint64_t small_bytes(size_t arena) {
  return arena == MALLCTL_ALL_ARENAS ? account_read(ACCOUNT_SMALL) : account_small_bytes((uint32_t)arena);
}

/* ---- arenas and caches of the caller's own ---- */

enum { FIRST_CREATED = ARENA_MAX };

static struct {
  uint32_t arenas, caches; /* atomic: so many were created */
} created;

/* A number that the flags of mallocx take as a hint; nothing is ever in such an arena, and its numbers say so. */
static uint64_t create_arena(void) {
  uint32_t count = __atomic_fetch_add(&created.arenas, 1, __ATOMIC_RELAXED);
  return FIRST_CREATED + count % (MALLCTL_ALL_ARENAS - FIRST_CREATED);
}

static uint64_t create_cache(void) { return __atomic_fetch_add(&created.caches, 1, __ATOMIC_RELAXED); }

/* To be flushed or destroyed: it holds nothing. */
static int forget_cache(uint64_t new) { return new < __atomic_load_n(&created.caches, __ATOMIC_RELAXED) ? 0 : EFAULT; }

static bool was_created(size_t arena) {
  uint32_t count = __atomic_load_n(&created.arenas, __ATOMIC_RELAXED);
  return arena >= FIRST_CREATED && arena < MALLCTL_ALL_ARENAS && arena - FIRST_CREATED < count;
}

/* ---- what can be written or done ---- */

static int refresh_account(void) {
  account_refresh();
  return 0;
}

static int purge_arenas(void) {
  start_if_needed();
  maintain_give_all_back();
  return 0;
}

static int flush_own(void) {
  start_if_needed();
  if (cache_thread_is_inside()) return EAGAIN; /* K5 */
  cache_slow_path_begins();
  cache_empty_own();
  cache_slow_path_ends();
  return 0;
}

/* When this returns with false the helper thread has ended. */
static int switch_background(uint64_t new) {
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

static int switch_profile(uint64_t new) {
  if ((new != 0) == control_samples_for_good()) return 0;
  uint32_t setting = setting_when_on();
  __atomic_store_n(&malloc_conf_settings.profile, setting, __ATOMIC_RELAXED);
  return set_profile(new ? setting : 0);
}

/* A path, or nothing: then prof_prefix says how it is called. */
static int dump_profile(uint64_t new) {
  if (!profiles_are_there()) return ENOENT;
  const char *path = new != MALLCTL_NOTHING ? (const char *)(uintptr_t)new : NULL;
  return profile_dump(path) ? 0 : EFAULT;
}

/* The binary logarithm of another distance, or nothing. */
static int reset_profile(uint64_t new) {
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

/* ---- the values ---- */

static uint64_t arenas_max(void) { return options.arenas_max != 0 ? options.arenas_max : ARENA_MAX; }

static const char *text_read(enum value value) {
  switch (value) {
    case VALUE_DISABLED: return "disabled";
    case VALUE_FALSE_TEXT: return "false";
    case VALUE_FREE_TEXT: return "free";
    case VALUE_VERSION: return mallctl_version;
    case VALUE_STATS_LETTERS: return malloc_conf_settings.stats_letters;
    case VALUE_THP: return options.thp == THP_NEVER ? "never" : options.thp == THP_ALWAYS ? "always" : "default";
    case VALUE_OPT_PROF_PREFIX: return malloc_conf_settings.prof_prefix;
    default: return "";
  }
}

static uint64_t number_read(enum value value, size_t arena) {
  switch (value) {
    case VALUE_ONE: return 1;
    case VALUE_NEVER: return (uint64_t)-1;
    case VALUE_DEBUG: return SNUG_DEBUG;
    case VALUE_QUANTUM: return 16;
    case VALUE_PAGE: return PAGE_BYTES;
    case VALUE_TCACHE_MAX: return CLASS_MAX_BYTES;
    case VALUE_LARGE_MIN: return LARGE_MIN_BYTES;
    case VALUE_EPOCH: return account_epoch();
    case VALUE_BACKGROUND: return __atomic_load_n(&options.background, __ATOMIC_RELAXED);
    case VALUE_STATS_PRINT: return __atomic_load_n(&options.stats_print, __ATOMIC_RELAXED);
    case VALUE_ABORT_CONF: return malloc_conf_settings.abort_conf;
    case VALUE_CONFIRM: return malloc_conf_settings.confirm;
    case VALUE_ZEROES: return malloc_conf_settings.zero;
    case VALUE_XMALLOC: return malloc_conf_settings.xmalloc;
    case VALUE_DECAY: return (uint64_t)malloc_conf_settings.dirty_decay_ms;
    case VALUE_ARENAS_MAX: return arenas_max();
    case VALUE_THREAD_ARENA: return this_thread.tag >> ARENA_SHIFT;
    case VALUE_SMALL_BYTES: return small_bytes(arena);
    case VALUE_PROF_ACTIVE: return __atomic_load_n(&options.profile, __ATOMIC_RELAXED) != 0;
    case VALUE_PROF_LG_SAMPLE: return lg_of(profile_mean_bytes(setting_when_on()));
    case VALUE_OPT_PROF: return malloc_conf_settings.prof;
    case VALUE_OPT_PROF_ACTIVE: return malloc_conf_settings.prof_active;
    case VALUE_OPT_PROF_FINAL: return malloc_conf_settings.prof_final;
    case VALUE_OPT_LG_SAMPLE: return lg_of(profile_wanted_mean(malloc_conf_settings.first_profile));
    case VALUE_NEW_ARENA: return create_arena();
    case VALUE_NEW_CACHE: return create_cache();
    default: return 0;
  }
}

static uint64_t shared_of(enum value value, size_t arena) {
  uint64_t number = has_shared(arena) ? account_read((enum account)(value % VALUE_OF_ACCOUNT)) : 0;
  return value < VALUE_SHARED_PAGES ? number : number / PAGE_BYTES;
}

static union mallctl_value value_of(const struct row *row, size_t arena) {
  enum value value = row->get;
  if (row->type == MALLCTL_TEXT) return (union mallctl_value){.text = text_read(value)};
  return (union mallctl_value){.number = value >= VALUE_SHARED       ? shared_of(value, arena)
                                         : value >= VALUE_OF_ACCOUNT ? account_read(value - VALUE_OF_ACCOUNT)
                                                                     : number_read(value, arena)};
}

/* What is written, done or given: MALLCTL_NOTHING is no value. */
static int do_action(const struct row *row, size_t arena, uint64_t new) {
  switch ((enum action)row->set) {
    case DO_NOTHING: break;
    case DO_KEEP: return value_of(row, arena).number == new ? 0 : row->type == MALLCTL_SIZE ? EINVAL : EPERM;
    case DO_REFRESH: return refresh_account();
    case DO_SWITCH_BACKGROUND: return switch_background(new);
    case DO_SWITCH_PROFILE: return switch_profile(new);
    case DO_DUMP: return dump_profile(new);
    case DO_RESET: return reset_profile(new);
    case DO_FLUSH: return flush_own();
    case DO_PURGE: return purge_arenas();
    case DO_FORGET_CACHE: return forget_cache(new);
  }
  return EPERM;
}

static bool is_epoch(const struct row *row) { return row->set == DO_REFRESH; }
static bool may_be_nothing(const struct row *row) { return row->set == DO_DUMP || row->set == DO_RESET; }

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
  return arena <= account_read(ACCOUNT_ARENAS) || arena == MALLCTL_ALL_ARENAS || was_created(arena);
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
static int give_value(const struct row *row, union mallctl_value v, void *old, size_t *old_bytes) {
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

static int read_value(const struct row *row, size_t arena, void *old, size_t *old_bytes) {
  if (old == NULL || old_bytes == NULL) return 0;
  return give_value(row, value_of(row, arena), old, old_bytes);
}

/* The arena that the block at `pointer` is from; what arenas share is the first one's. False: it is none of ours. */
static bool arena_of_block(const void *pointer, uint64_t *arena) {
  size_t page = page_index(pointer), size_bytes;
  unsigned kind = page < zone_pages() ? page_kind(page) : 0;
  *arena = is_class(kind) && !arena_is_reserved(kind_arena(kind)) ? kind_arena(kind) : 0;
  if (is_class(kind) || kind == KIND_RUN || fence_holds(pointer) || aside_holds(pointer)) return true;
  return page >= zone_pages() && (large_size(pointer) != 0 || (guard_is_on() && guard_size(pointer, &size_bytes)));
}

static int look_up(const struct row *row, void *old, size_t *old_bytes, const void *new_value, size_t new_bytes) {
  union mallctl_value arena;
  const void *pointer;
  if (new_value == NULL || new_bytes != sizeof pointer) return EINVAL;
  if (cache_thread_is_inside()) return EAGAIN; /* K5 */
  memcpy(&pointer, new_value, sizeof pointer);
  cache_slow_path_begins();
  bool found = arena_of_block(pointer, &arena.number);
  cache_slow_path_ends();
  if (!found) return EINVAL;
  return old != NULL && old_bytes != NULL ? give_value(row, arena, old, old_bytes) : 0;
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
    return do_action(row, arena, 0);
  }
  if (row->get == VALUE_LOOKUP) return look_up(row, old, old_bytes, new_value, new_bytes);
  if (row->get == VALUE_NONE && (old != NULL || old_bytes != NULL)) return EPERM;
  if (row->get == VALUE_NONE && new_value == NULL) {
    return new_bytes != 0 || !may_be_nothing(row) ? EINVAL : do_action(row, arena, MALLCTL_NOTHING);
  }
  if (row->set == DO_NOTHING && (new_value != NULL || new_bytes != 0)) return EPERM;
  if (new_value != NULL && new_bytes != size_of(row->type)) return EINVAL;
  if (is_epoch(row)) {
    if (new_value != NULL) do_action(row, arena, 0);
    return read_value(row, arena, old, old_bytes);
  }
  int result = read_value(row, arena, old, old_bytes);
  return result != 0 || new_value == NULL ? result : do_action(row, arena, number_from(row, new_value));
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
  bool creates = rows_of_tree[index].get >= VALUE_NEW_ARENA && rows_of_tree[index].get <= VALUE_LOOKUP;
  *type = creates ? MALLCTL_ACTION : rows_of_tree[index].type;
  *of_arena = strchr(*name, '#') != NULL;
  return true;
}

union mallctl_value mallctl_value_of(size_t index, size_t arena) { return value_of(&rows_of_tree[index], arena); }
