#include "run.h"

#include "counters.h"
#include "fatal.h"
#include "map.h"

enum { SLACK_SHIFT = 12 };
_Static_assert(PAGES_RUN_MAX < 1 << SLACK_SHIFT, "length and slack share a word");

static size_t pages_for(size_t size_bytes) { return (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT; }

static size_t length_of(size_t first) { return zone.owner[first] & ((1u << SLACK_SHIFT) - 1); }

static size_t slack_of(size_t first) { return zone.owner[first] >> SLACK_SHIFT; }

/* M2, whatever the length: only the first page is described. */
static void describe(size_t first, size_t count, size_t size_bytes) {
  zone.owner[first] = (uint32_t)(count | (count * PAGE_BYTES - size_bytes) << SLACK_SHIFT);
  page_set_kind(first, KIND_RUN);
}

/* The pages lock is held. */
static void count_live(long blocks, size_t pages, size_t requested_bytes) {
  counter_bump(&snug_counters.run_blocks, (uint64_t)blocks);
  counter_bump(&snug_counters.run_bytes, (uint64_t)blocks * pages * PAGE_BYTES);
  counter_bump(&snug_counters.run_requested_bytes, (uint64_t)blocks * requested_bytes);
}

void *run_take(size_t size_bytes, size_t alignment, bool *clean) {
  ASSERT(size_bytes != 0 && size_bytes <= RUN_MAX_BYTES && alignment != 0);
  size_t count = pages_for(size_bytes);
  size_t align_pages = alignment > PAGE_BYTES ? alignment / PAGE_BYTES : 1;
  pages_lock();
  size_t first = pages_take_locked(count, align_pages, clean);
  if (first != PAGE_NONE) {
    describe(first, count, size_bytes);
    count_live(1, count, size_bytes);
  }
  pages_unlock();
  return first != PAGE_NONE ? page_address(first) : NULL;
}

void run_give(void *p) {
  size_t first = page_index(p), count = length_of(first);
  ASSERT(page_kind(first) == KIND_RUN);
  if (unlikely(p != page_address(first))) fatal_interior_pointer(p, page_address(first), count * PAGE_BYTES);
  if (unlikely(count == 0 || count > PAGES_RUN_MAX)) fatal_corrupted("length of a run", p);
  pages_lock();
  count_live(-1, count, count * PAGE_BYTES - slack_of(first));
  page_set_kind(first, 0); /* M2 */
  pages_give_locked(first, count, 0);
  pages_unlock();
}

size_t run_size(const void *p) {
  size_t first = page_index(p);
  return p == page_address(first) ? length_of(first) * PAGE_BYTES : 0;
}

bool run_resize(void *p, size_t size_bytes) {
  size_t first = page_index(p), count = length_of(first), new_count = pages_for(size_bytes);
  ASSERT(page_kind(first) == KIND_RUN && size_bytes != 0);
  size_t old_requested_bytes = count * PAGE_BYTES - slack_of(first);
  bool clean;
  pages_lock();
  bool fits = new_count <= count || pages_extend_locked(first, count, new_count, &clean);
  if (fits) {
    count_live(-1, count, old_requested_bytes);
    describe(first, new_count, size_bytes);
    count_live(1, new_count, size_bytes);
    if (new_count < count) pages_give_locked(first + new_count, count - new_count, 0);
  }
  pages_unlock();
  return fits;
}

void *run_holding(const void *p) {
  size_t page = page_index(p), first = page;
  while (first > 0 && page_kind(first) == 0 && page - first < PAGES_RUN_MAX) first--;
  bool inside = page_kind(first) == KIND_RUN && page - first < length_of(first);
  return inside ? page_address(first) : NULL;
}
