/* start.c: the first call sets up the heap (ready.h); the constructor reads the settings when libc can. */
#include "ready.h"

#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "cache.h"
#include "control.h"
#include "counters.h"
#include "fatal.h"
#include "fork.h"
#include "guard.h"
#include "huge.h"
#include "large.h"
#include "maintain.h"
#include "malloc_conf.h"
#include "map.h"
#include "options.h"
#include "profile.h"
#include "profile_dump.h"
#include "rights.h"
#include "slab.h"
#include "stats.h"
#include "stats_print.h"
#include "sys.h"
#include "text.h"

#define START_NAP_NS UINT64_C(20000)

uint32_t start_state = START_NONE;

/* Written at start rather than by an initializer, which would put all the zeros of the page into the file. */
static void identify_counters(void) {
  memcpy(snug_counters.magic, SNUG_COUNTERS_MAGIC, sizeof snug_counters.magic);
  memcpy(snug_counters.snug_version, SNUG_VERSION, sizeof SNUG_VERSION);
  snug_counters.version = SNUG_COUNTERS_VERSION;
  snug_counters.size_bytes = sizeof snug_counters;
  snug_counters.class_count = CLASS_COUNT;
  control_announce();
}

static void describe_process(void) {
  snug_counters.page_size_bytes = (uint32_t)zone.page_bytes;
  struct text settings = text_in(snug_counters.settings, sizeof snug_counters.settings);
  options_describe(&settings);
}

/* What is called meanwhile may be another library's, or a handler's, and allocate: beside the heap (aside.h). */
void start_now(void) {
  uint32_t none = START_NONE;
  if (!__atomic_compare_exchange_n(&start_state, &none, START_RUNNING, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    while (__atomic_load_n(&start_state, __ATOMIC_ACQUIRE) != START_DONE && !cache_thread_is_inside())
      sys_sleep(START_NAP_NS);
    return;
  }
  cache_slow_path_begins();
  rights_find();
  map_init();
  slab_init();
  large_init();
  cache_init();
  maintain_start();
  block_start();
  identify_counters();
  snug_counters.pid = rights_pid();
  describe_process();
  __atomic_store_n(&start_state, START_DONE, __ATOMIC_RELEASE);
  cache_slow_path_ends();
  fork_register_handlers(); /* may allocate: hence last */
}

/* SNUG_THIS_ONLY (set by `snug run --this-only`) names the library's path in LD_PRELOAD: it goes, so that programs
 * which this one starts do not inherit it. The environment's own strings are edited; nothing is allocated. */
static void leave_preload_list(void) {
  const char *path = sys_environment("SNUG_THIS_ONLY");
  char *list = sys_environment("LD_PRELOAD");
  if (path == NULL || path[0] == '\0') return;
  size_t length = strlen(path);
  for (char *entry = list; entry != NULL && *entry != '\0';) {
    size_t entry_length = strcspn(entry, ": ");
    bool last = entry[entry_length] == '\0';
    if (entry_length == length && memcmp(entry, path, length) == 0) {
      if (!last) {
        memmove(entry, entry + entry_length + 1, strlen(entry + entry_length + 1) + 1);
      } else {
        entry[entry != list ? -1 : 0] = '\0';
      }
      break;
    }
    entry = last ? NULL : entry + entry_length + 1;
  }
  unsetenv("SNUG_THIS_ONLY");
  if (list != NULL && list[0] == '\0') unsetenv("LD_PRELOAD");
}

static void find_warnings(struct text *text) {
  char content[128];
  if (rights_have(RIGHT_FILES) &&
      sys_read_file("/sys/kernel/mm/transparent_hugepage/enabled", content, sizeof content) != 0 &&
      strstr(content, "[always]") != NULL && options.thp != THP_ALWAYS) {
    text_string(text, "transparent huge pages are \"always\" (not on the heap)");
  }
  if (AS_BOUND(free) != free_of_this_copy) {
    if (text->length_bytes != 0) text_string(text, "; ");
    text_string(text, "malloc is another's: the program's own, or this library was opened late");
  }
  static const char *const others[] = {"jemalloc", "tcmalloc", "mimalloc", "snmalloc", "libmesh", "hoard"};
  const char *list = sys_environment("LD_PRELOAD");
  for (size_t i = 0; !SNUG_PREFIXED && list != NULL && i < sizeof others / sizeof others[0]; i++) {
    if (strstr(list, others[i]) == NULL) continue;
    if (i == 0 && symbols_next("mallocx") == NULL) continue; /* it is this library, under that name */
    if (text->length_bytes != 0) text_string(text, "; ");
    text_string(text, "another allocator is also preloaded: ");
    text_string(text, others[i]);
  }
}

static void print_verbose(void) {
  char line[1024];
  struct text text = text_in(line, sizeof line);
  text_string(&text, "snug: " SNUG_VERSION " active in PID ");
  text_number(&text, snug_counters.pid);
  text_string(&text, ", settings: ");
  text_string(&text, snug_counters.settings);
  text_string(&text, ", warnings: ");
  text_string(&text, snug_counters.warnings[0] != '\0' ? snug_counters.warnings : "none");
  text_char(&text, '\n');
  sys_write(2, text.start, text.length_bytes);
}

/* Whether malloc is another copy of this library, in front of this one: preloaded, say, while the program is linked
 * with the one that is called libjemalloc.so.2. */
static bool is_second_copy(void) { return AS_BOUND(snug_counters) != &counters_of_this_copy; }

/* What jemalloc's names for profiles are to say, whoever asked for samples. */
static void settle_profile(void) {
  struct malloc_conf_settings *settings = &malloc_conf_settings;
  settings->prof = settings->prof || options.profile != 0;
  settings->prof_active = settings->prof ? options.profile != 0 : settings->prof_active;
  if (options.profile != 0) settings->profile = options.profile;
  settings->first_profile = settings->profile;
}

__attribute__((constructor)) static void read_settings(void) {
  if (!libc_is_there() || is_second_copy()) return;
  start_if_needed();
  if (!SNUG_PREFIXED && !sys_is_secure()) {
    leave_preload_list();
    options_read_arena_max();
  }
  rights_consider_container();
  if (!SNUG_PREFIXED) malloc_conf_read(!sys_is_secure()); /* else it is the other allocator's */
  if (!sys_is_secure()) options_read();
  snug_counters.pid = rights_pid();
  map_apply_options();
  huge_start(zone_pages());
  if (options.guard && !guard_start()) options.guard = 0;
  if (malloc_conf_settings.zero) block_zero_all();
  settle_profile();
  profile_start(malloc_conf_settings.prof);
  describe_process();
  if (!options.verbose) return;
  struct text warnings = text_in(snug_counters.warnings, sizeof snug_counters.warnings);
  find_warnings(&warnings);
  print_verbose();
}

__attribute__((destructor)) static void write_final_profile(void) {
  const struct malloc_conf_settings *settings = &malloc_conf_settings;
  if (settings->prof && settings->prof_final && !is_second_copy()) profile_dump_at_exit();
}

__attribute__((destructor)) static void end_guard(void) {
  if (!guard_is_on() || cache_thread_is_inside()) return;
  cache_slow_path_begins();
  guard_end_waits();
  cache_slow_path_ends();
}

/* Looks at what this thread freed and nobody has looked at: a double free among it still ends the process. */
__attribute__((destructor)) static void look_at_own_cache(void) {
  if (this_thread.own == NULL || cache_thread_is_inside() || is_second_copy()) return;
  /* A copy by clone(2) has the locks as they were. */
  if (rights_identity() != IDENTITY_OWN) return;
  cache_slow_path_begins();
  cache_empty_own();
  cache_slow_path_ends();
}

__attribute__((destructor)) static void print_statistics(void) {
  if (!__atomic_load_n(&options.stats_print, __ATOMIC_RELAXED) || is_second_copy()) return;
  if (malloc_conf_settings.stats_as_text) {
    stats_print_at_exit();
  } else {
    stats_write_json(2);
  }
}
