/* pages.c: the page heap beside a list of runs, and of who has each page. The first word of each page says whose it is,
 * and is zero in a page that is said to be clean. */
#include "world.h"

#include "../../../src/pages.h"
#include "../../../src/purge.h"

enum { RUNS = 256, PAGES_SEEN = 1 << 17 };

enum pages_operation {
  PAGES_TAKE,
  PAGES_TAKE_ALIGNED,
  PAGES_GIVE,
  PAGES_GIVE_CLEAN,
  PAGES_GIVE_TAIL,
  PAGES_EXTEND,
  PAGES_AGE,
  PAGES_PURGE,
  PAGES_PURGE_AGED,
  PAGES_PURGE_BEFORE_FORK,
  PAGES_SHRINK,
  PAGES_SHRINK_IN_PART,
  PAGES_HAVE_DIRTY,
};

static const char *const pages_operations[] = {
    "take",       "take_aligned",      "give",   "give_clean",     "give_tail",  "extend", "age", "purge",
    "purge_aged", "purge_before_fork", "shrink", "shrink_in_part", "have_dirty", NULL,
};

static struct run {
  size_t first, count; /* 0: none */
} runs[RUNS];
static uint16_t owners[PAGES_SEEN]; /* number of the run + 1 */
static size_t used_before, used;

static uint64_t *word_of(size_t page) { return (uint64_t *)page_address(page); }

static void check_run(size_t number) {
  for (size_t i = 0; i < runs[number].count; i++) {
    size_t page = runs[number].first + i;
    if (*word_of(page) != ((number + 1) << 32 | page % 2)) fuzz_fail("page %zu of run %zu has changed", page, number);
  }
}

/* Pages that a run gets. */
static void own(size_t number, size_t first, size_t count, bool clean) {
  if (first + count > PAGES_SEEN || first + count > zone_pages()) fuzz_fail("page %zu is beyond the heap", first);
  for (size_t page = first; page < first + count; page++) {
    if (owners[page] != 0) fuzz_fail("page %zu is of run %u already", page, owners[page] - 1u);
    if (clean && *word_of(page) != 0) fuzz_fail("page %zu is not clean", page);
    owners[page] = (uint16_t)(number + 1);
    *word_of(page) = ((number + 1) << 32 | page % 2);
  }
  used += count;
}

static void disown(size_t first, size_t count) {
  memset(&owners[first], 0, count * sizeof owners[0]);
  used -= count;
}

static void take(size_t number, size_t count, size_t align_pages) {
  uint64_t refused = refused_calls;
  bool clean = false;
  if (runs[number].count != 0) return;
  size_t first = pages_take(count, align_pages, &clean);
  if (first == PAGE_NONE) {
    if (refused == refused_calls) fuzz_fail("no memory for %zu pages", count);
    fuzz_counts->failed++;
    return;
  }
  if (first % align_pages != 0) fuzz_fail("page %zu is at no multiple of %zu", first, align_pages);
  own(number, first, count, clean);
  runs[number] = (struct run){first, count};
}

/* All but the first `left`. Where they are clean, as a purge of them would leave them. */
static void give(size_t number, size_t left, bool clean) {
  struct run *run = &runs[number];
  if (run->count == 0 || left >= run->count) return;
  check_run(number);
  size_t first = run->first + left, count = run->count - left;
  uint64_t mask = 0;
  for (size_t i = 0; clean && i < count && i < 64; i++) {
    if ((first + i) % 3 == 0 || madvise(page_address(first + i), PAGE_BYTES, MADV_DONTNEED) != 0) continue;
    mask |= UINT64_C(1) << i;
  }
  disown(first, count);
  run->count = left;
  pages_give(first, count, mask);
}

static void extend(size_t number, size_t more) {
  struct run *run = &runs[number];
  bool clean = false;
  if (run->count == 0 || run->count + more > PAGES_RUN_MAX) return;
  pages_lock();
  bool done = pages_extend_locked(run->first, run->count, run->count + more, &clean);
  pages_unlock();
  if (!done) return;
  own(number, run->first + run->count, more, clean);
  run->count += more;
}

static void purge_pages(size_t keep, bool only_aged) {
  uint64_t refused = refused_calls;
  size_t dirty = pages_dirty(), gone = pages_purge(keep, only_aged), left = pages_dirty();
  if (left != dirty - gone) fuzz_fail("%zu of %zu dirty pages went, %zu are left", gone, dirty, left);
  if (left > keep && !only_aged && refused == refused_calls) fuzz_fail("%zu dirty pages are left of %zu", left, keep);
}

static void pages_begin(void) {
  begin_core();
  if (!purge_try_lock()) fuzz_fail("the purge lock is taken"); /* so nobody else purges */
  used_before = pages_used();
}

static void pages_step(unsigned operation, unsigned a, unsigned b) {
  size_t count = b % 8 == 0 ? 1 + b / 8 % PAGES_RUN_MAX : 1 + b / 8 % 12;
  switch ((enum pages_operation)operation) {
    case PAGES_TAKE: return take(a, count, 1);
    case PAGES_TAKE_ALIGNED: return take(a, count, (size_t)1 << (b >> 11) % 9);
    case PAGES_GIVE: return give(a, 0, false);
    case PAGES_GIVE_CLEAN: return give(a, 0, true);
    case PAGES_GIVE_TAIL: return give(a, count, false);
    case PAGES_EXTEND: return extend(a, count);
    case PAGES_AGE: return pages_age();
    case PAGES_PURGE:
      if (a % 8 == 0) purge_pages(b % 1024, false);
      return;
    case PAGES_PURGE_AGED:
      if (a % 4 == 0) purge_pages(b % 1024, true);
      return;
    case PAGES_PURGE_BEFORE_FORK:
      if (a % 8 == 0) pages_purge_before_fork();
      return;
    case PAGES_SHRINK:
      if (a % 8 == 0) pages_shrink();
      return;
    case PAGES_SHRINK_IN_PART:
      if (a % 8 == 0) pages_shrink_in_part();
      return;
    case PAGES_HAVE_DIRTY:
      if (pages_have_dirty(count) && pages_dirty() < count) fuzz_fail("%zu dirty pages are not there", count);
  }
}

static void pages_check_all(void) {
  for (size_t i = 0; i < RUNS; i++) check_run(i);
  pages_check();
  if (pages_used() != used_before + used) fuzz_fail("%zu pages are in use, not %zu", pages_used(), used_before + used);
}

static void pages_end(void) {
  for (size_t i = 0; i < RUNS; i++) give(i, 0, false);
  purge_pages(0, false);
  pages_shrink();
  pages_check_all();
}

static void pages_spoil(void) {
  fuzz_refuse(0, 0);
  take(0, 1, 1);
  *word_of(runs[0].first) ^= 1;
}

const struct fuzz_module pages_module = {"pages",         pages_operations, pages_begin, pages_step,
                                         pages_check_all, pages_end,        pages_spoil};
