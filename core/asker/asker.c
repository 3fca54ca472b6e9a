/* asker.c: asks the allocator of a program, from within, for what only it can tell: its live bytes.
 *
 * A library by itself, preloaded with jemalloc or tcmalloc by `snug leak --ask-allocator` (docs/decisions/0027). A
 * thread asks every 200 ms, or as rarely as a share of one core demands, and leaves the answer where the tool reads it
 * (answers.h). Where nobody can be asked there is no thread, and nothing happens. Of the core it takes the lowest
 * modules, and like the core it asks for nothing by force (libc.h).
 *
 * It stands first in LD_PRELOAD, so that it begins when the allocator has begun: in the child of a fork its thread is
 * started when the allocator's own handlers, which were registered before, have given back their locks.
 *
 * While nothing is asked the thread makes one system call, futex, for a sandbox that the program enters holds for the
 * thread, too, if it is entered for all threads. In a child that inherits another filter no thread is started. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "answers.h"

#include "../src/memory.c"
#include "../src/sys.c"
#include "../src/symbols.c"
#include "../src/hooks.c"
#include "../src/rights.c"

#define FIRST_NS UINT64_C(50000000) /* programs that only execute another one are not asked */
#define PAUSE_NS UINT64_C(200000000)
#define PAUSE_MAX_NS UINT64_C(5000000000) /* for twice as long an answer is fresh to the tool */

enum {
  PAUSE_TIMES = 200, /* and at least so many times what the answer took: half a percent of a core */
  STACK_BYTES = 64 * 1024,
};

EXPORT struct snug_answers snug_answers = {.magic = SNUG_ANSWERS_MAGIC};

/* ---- whom to ask ---- */

/* snug answers mallctl, too, and counts by itself. */
__attribute__((weak)) extern char snug_counters[];

static int (*mallctl)(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
static int (*numeric_property)(const char *name, size_t *value); /* tcmalloc's */

/* A function of the library that serves malloc; others may have been loaded, too. */
static void *beside_malloc(const char *name) {
  void *malloc = symbols_first("malloc"), *function = symbols_first(name);
  struct symbol_table of_malloc, of_function;
  if (malloc == NULL || function == NULL) return NULL;
  if (!symbols_of(malloc, &of_malloc) || !symbols_of(function, &of_function)) return NULL;
  return of_malloc.base == of_function.base ? function : NULL;
}

static bool somebody_can_be_asked(void) {
  if (snug_counters != NULL) return false;
  *(void **)&mallctl = beside_malloc("mallctl");
  *(void **)&numeric_property = beside_malloc("MallocExtension_GetNumericProperty");
  return mallctl != NULL || numeric_property != NULL;
}

static bool jemalloc_value(const char *name, size_t *value) {
  size_t bytes = sizeof *value;
  return mallctl(name, value, &bytes, NULL, 0) == 0;
}

static bool ask_jemalloc(size_t *live_bytes, size_t *resident_bytes) {
  uint64_t epoch = 1; /* any number: figures are those of the last time it was written */
  return mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0 && jemalloc_value("stats.allocated", live_bytes) &&
         jemalloc_value("stats.resident", resident_bytes);
}

static bool ask_tcmalloc(size_t *live_bytes, size_t *resident_bytes) {
  size_t unmapped_bytes;
  if (!numeric_property("generic.current_allocated_bytes", live_bytes) ||
      !numeric_property("generic.heap_size", resident_bytes) ||
      !numeric_property("tcmalloc.pageheap_unmapped_bytes", &unmapped_bytes))
    return false;
  *resident_bytes -= unmapped_bytes;
  return true;
}

/* ---- the thread ---- */

#pragma weak pthread_create
#pragma weak pthread_attr_init
#pragma weak pthread_attr_setdetachstate
#pragma weak pthread_attr_setstacksize
#pragma weak pthread_sigmask
#pragma weak sigfillset

static void *ask_again_and_again(void *unused) {
  bool (*ask)(size_t *, size_t *) = mallctl != NULL ? ask_jemalloc : ask_tcmalloc;
  size_t live_bytes, resident_bytes;
  for (uint64_t pause_ns = FIRST_NS;;) {
    sys_sleep(pause_ns);
    uint64_t begin_ns = sys_coarse_time_ns();
    if (!ask(&live_bytes, &resident_bytes)) return unused; /* it was built without statistics */
    uint64_t end_ns = sys_coarse_time_ns();
    __atomic_store_n(&snug_answers.live_bytes, live_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&snug_answers.resident_bytes, resident_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&snug_answers.answered_at_ns, end_ns, __ATOMIC_RELEASE);
    pause_ns = (end_ns - begin_ns) * PAUSE_TIMES;
    if (pause_ns < PAUSE_NS) pause_ns = PAUSE_NS;
    if (pause_ns > PAUSE_MAX_NS) pause_ns = PAUSE_MAX_NS;
  }
}

/* With all signals blocked but those of libc's own, by which setuid(2) reaches every thread. */
static void start_thread(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, before;
  int errno_before = *__errno_location();
  sigfillset(&all);
  if (pthread_attr_init(&attributes) != 0 || pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_create(&thread, &attributes, ask_again_and_again, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  *__errno_location() = errno_before;
}

/* ---- the process ---- */

static struct rights_status status_at_start;

static struct rights_status current_status(void) {
  status_text[0] = '\0';
  sys_read_file("/proc/self/status", status_text, sizeof status_text);
  return rights_parse_status(status_text);
}

/* Until it is asked itself, the parent's answer is right of the child, which has a copy of its memory. */
static void child_begins(void) {
  struct rights_status status = current_status();
  bool same_filters = status.seccomp == status_at_start.seccomp && status.filters == status_at_start.filters;
  if (status.complete && same_filters) start_thread();
}

__attribute__((constructor)) static void begin(void) {
  if (!libc_is_there() || pthread_create == NULL || pthread_attr_init == NULL || pthread_sigmask == NULL) return;
  if (!somebody_can_be_asked()) return;
  status_at_start = current_status();
  hooks_at_fork(NULL, NULL, child_begins);
  start_thread();
}
