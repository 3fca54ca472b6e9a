/* purging.h: the whole core with a clock and a container of our own, for tests of when memory goes back. */
#ifndef SNUG_UNIT_PURGING_H
#define SNUG_UNIT_PURGING_H

#include "../../src/sys.c"

static uint64_t now_ns = UINT64_C(1000000000000);
static uint64_t own_clock(void);
#define sys_coarse_time_ns own_clock

/* How many pages go at once, and a fork that comes in the middle of a purge, and may be over before the purge ends,
 * when it looks at the clock to count caches. */
static size_t purged_pages;
static size_t stop_after_pages = SIZE_MAX;
static bool stop_is_short;
static uint64_t stop_always_after_ns; /* 0: only once */
static bool note_purge(void *start, size_t length_bytes);
#define sys_purge note_purge

/* Control groups as these files say. */
static const char *memory_current = "0\n"; /* "": it can't be read */
static const char *memory_stat = "inactive_file 0\nactive_file 0\n";
static size_t read_own_file(const char *path, char *text, size_t capacity_bytes);
#define sys_read_file read_own_file
#include "above_sys.h"
#include "unit.h"

static uint64_t own_clock(void) {
  if (stop_is_short && is_purging_stopped()) purge_stop(false);
  return now_ns;
}

static bool note_purge(void *start, size_t length_bytes) {
  purged_pages += length_bytes / PAGE_BYTES;
  if (purged_pages >= stop_after_pages && !is_purging_stopped()) {
    purge_stop(true);
    if (stop_always_after_ns == 0) stop_after_pages = SIZE_MAX;
    now_ns += stop_always_after_ns;
  }
  return madvise(start, length_bytes, MADV_DONTNEED) == 0;
}

static size_t read_own_file(const char *path, char *text, size_t capacity_bytes) {
  const char *content = strcmp(path, "/proc/self/status") == 0               ? "Cpus_allowed:\t3\n"
                        : strcmp(path, "/proc/self/cgroup") == 0             ? "0::/\n"
                        : strcmp(path, "/sys/fs/cgroup/memory.max") == 0     ? "100000000\n"
                        : strcmp(path, "/sys/fs/cgroup/memory.current") == 0 ? memory_current
                        : strcmp(path, "/sys/fs/cgroup/memory.stat") == 0    ? memory_stat
                                                                             : "";
  snprintf(text, capacity_bytes, "%s", content);
  return strlen(text);
}

/* The next purge is stopped once, after so many pages. */
static inline void stop_next_purge(size_t pages, bool is_short) {
  purged_pages = 0;
  stop_after_pages = pages;
  stop_is_short = is_short;
}

enum { MILLISECOND = 1000000, RUN_PAGES = 16 };

static void *runs[512];
static size_t run_count;

/* At least `count` dirty pages, behind the back of the policies. */
static inline void make_dirty(size_t count) {
  bool clean;
  while (run_count * RUN_PAGES < count) {
    REQUIRE(run_count < COUNT_OF(runs));
    runs[run_count] = run_take(RUN_PAGES * PAGE_BYTES, 16 * PAGE_BYTES, &clean);
    memset(runs[run_count++], 1, RUN_PAGES * PAGE_BYTES);
  }
  while (run_count != 0) run_give(runs[--run_count]);
  CHECK_THAT(pages_dirty() >= count, "%zu dirty pages, %zu expected", pages_dirty(), count);
}

/* Six blocks of seven in slabs are free: more than one batch of a purge, and no page is free outside of slabs. */
enum { HOLES = 14000, HOLE_BYTES = 8192, HOLES_KEPT = 7 };
static void *holes[HOLES];

static inline void make_holes(void) {
  for (size_t i = 0; i < HOLES; i++) holes[i] = memset(malloc(HOLE_BYTES), 1, HOLE_BYTES);
  for (size_t i = 0; i < HOLES; i++) {
    if (i % HOLES_KEPT != 0) free(holes[i]);
  }
  cache_empty_own();
}

static inline void end_holes(void) {
  for (size_t i = 0; i < HOLES; i += HOLES_KEPT) free(holes[i]);
  snug_purge();
  snug_check();
}

/* A clean heap, no tokens, the clock known to the bucket. */
static inline void start_again(uint32_t percent) {
  free(malloc(1)); /* this thread has its cache */
  options.background = 0;
  options.purge_cpu_percent = 100;
  snug_purge();
  options.purge_cpu_percent = percent;
  memory_current = "0\n";
  memset(&pressure, 0, sizeof pressure);
  purge_forget_limit();
  pressure.wait_ns = WAIT_MIN_NS;
  lock_take(&purge.lock, RANK_PURGE);
  earn_tokens();
  purge.tokens_ns = 0;
  __atomic_store_n(&ticks.at_ns, now_ns, __ATOMIC_RELAXED);
  lock_give(&purge.lock, RANK_PURGE);
}

#endif
