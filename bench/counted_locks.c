/* counted_locks.c: the library, which counts besides how often each lock is taken, how often another thread held it, for
 * how long it is held, and what CPU time passes under the purge lock: ticks, and purges beside them. At exit one line of
 * JSON goes to stderr:
 *
 *   {"locks": {"class": [taken, contended, held, in ticks of the CPU's counter, and how often that was noted], ...},
 *    "arenas": 2,
 *    "housekeeping": {"times": n, "cpu_ns": sum, "longest_ns": one, "ticks": n}}
 *
 * For bench/scaling and bench/large_heap, which compile it; the functions of core/src/lock.h are put aside before the
 * core is included, so it needs no hook there. Counts are kept apart by thread, so that counting moves no lines.
 */
#define _GNU_SOURCE
#include "../core/src/lock.h"
#include "../core/src/sys.h"

enum { COUNT_ROWS = 256, RANKS = RANK_PROFILE + 1 };

static struct {
  uint64_t taken[RANKS], contended[RANKS], held_ticks[RANKS], noted[RANKS]; /* atomic: threads may share a row */
} __attribute__((aligned(128))) counted[COUNT_ROWS];

static __thread uint64_t held_since[RANKS] FIXED_TLS; /* no two locks of a rank are held at once, but in fork */

static uint64_t purge_since_ns; /* this and the next under the purge lock */
static struct {
  uint64_t times, cpu_ns, longest_ns;
} housekeeping;

static uint64_t thread_cpu_ns(void);

/* A thread that was interrupted under a lock says nothing of how long it is held. */
enum { INTERRUPTED_TICKS = 50000 };

static size_t own_row(void) {
  return (size_t)(((uintptr_t)lock_self() * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % COUNT_ROWS;
}

static void count_lock(enum lock_rank rank, bool contended) {
  size_t row = own_row();
  __atomic_fetch_add(&counted[row].taken[rank], 1, __ATOMIC_RELAXED);
  if (contended) __atomic_fetch_add(&counted[row].contended[rank], 1, __ATOMIC_RELAXED);
  /* The janitor has no thread-local variables. */
  if (!sys_in_started_thread()) held_since[rank] = sys_ticks();
}

static void count_held(enum lock_rank rank) {
  if (sys_in_started_thread()) return;
  uint64_t ticks = sys_ticks() - held_since[rank];
  if (ticks > INTERRUPTED_TICKS) return;
  size_t row = own_row();
  __atomic_fetch_add(&counted[row].held_ticks[rank], ticks, __ATOMIC_RELAXED);
  __atomic_fetch_add(&counted[row].noted[rank], 1, __ATOMIC_RELAXED);
}

static bool take_counted(struct lock *lock, enum lock_rank rank) {
  bool contended = lock_take(lock, rank);
  count_lock(rank, contended);
  if (rank == RANK_PURGE) purge_since_ns = thread_cpu_ns();
  return contended;
}

static bool try_counted(struct lock *lock, enum lock_rank rank) {
  bool taken = lock_try(lock, rank);
  if (taken) count_lock(rank, false);
  if (taken && rank == RANK_PURGE) purge_since_ns = thread_cpu_ns();
  return taken;
}

static void give_counted(struct lock *lock, enum lock_rank rank) {
  if (rank == RANK_PURGE) {
    uint64_t took_ns = thread_cpu_ns() - purge_since_ns;
    housekeeping.times++;
    housekeeping.cpu_ns += took_ns;
    if (took_ns > housekeeping.longest_ns) housekeeping.longest_ns = took_ns;
  }
  lock_give(lock, rank);
  count_held(rank);
}

#define lock_take take_counted
#define lock_try try_counted
#define lock_give give_counted
#include "../core/src/snug.c"

static uint64_t thread_cpu_ns(void) {
  struct timespec time = {0, 0};
  read_clock_by_call(CLOCK_THREAD_CPUTIME_ID, &time);
  return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static void write_pair(struct text *text, const char *name, uint64_t value) {
  text_string(text, name);
  text_number(text, value);
}

__attribute__((destructor)) static void write_counts(void) {
  static const char *const names[RANKS] = {
      [RANK_JANITOR] = "janitor", [RANK_PURGE] = "purge",     [RANK_CACHES] = "caches",
      [RANK_CLASS] = "class",     [RANK_RECORDS] = "records", [RANK_PAGES] = "pages",
      [RANK_LARGE] = "large",     [RANK_MAP] = "map",         [RANK_PROFILE] = "profile"};
  static char line[2048];
  struct text text = text_in(line, sizeof line);
  text_string(&text, "{\"locks\": {");
  for (int rank = RANK_JANITOR; rank < RANKS; rank++) {
    uint64_t taken = 0, contended = 0, held_ticks = 0, noted = 0;
    for (int row = 0; row < COUNT_ROWS; row++) {
      taken += __atomic_load_n(&counted[row].taken[rank], __ATOMIC_RELAXED);
      contended += __atomic_load_n(&counted[row].contended[rank], __ATOMIC_RELAXED);
      held_ticks += __atomic_load_n(&counted[row].held_ticks[rank], __ATOMIC_RELAXED);
      noted += __atomic_load_n(&counted[row].noted[rank], __ATOMIC_RELAXED);
    }
    text_string(&text, rank == RANK_JANITOR ? "\"" : ", \"");
    text_string(&text, names[rank]);
    write_pair(&text, "\": [", taken);
    write_pair(&text, ", ", contended);
    write_pair(&text, ", ", held_ticks);
    write_pair(&text, ", ", noted);
    text_char(&text, ']');
  }
  write_pair(&text, "}, \"arenas\": ", arena_count());
  write_pair(&text, ", \"housekeeping\": {\"times\": ", housekeeping.times);
  write_pair(&text, ", \"cpu_ns\": ", housekeeping.cpu_ns);
  write_pair(&text, ", \"longest_ns\": ", housekeeping.longest_ns);
  write_pair(&text, ", \"ticks\": ", __atomic_load_n(&snug_counters.ticks, __ATOMIC_RELAXED));
  text_string(&text, "}}\n");
  sys_write(2, text.start, text.length_bytes);
}
