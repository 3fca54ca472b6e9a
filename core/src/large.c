#include "large.h"

#include "counters.h"
#include "fatal.h"
#include "lock.h"
#include "map.h"
#include "pages.h"
#include "sys.h"

enum {
  RETAINED_MAX = SNUG_COUNTERS_RETAINED,
  FREED_MAX = 32,
  RETAINED_MAX_BYTES = 64 << 20, /* a longer mapping is never retained */
  TABLE_FIRST_ROWS = 128,        /* less than a page */
  UNMAP_SLICE_BYTES = 8 << 20,   /* a millisecond's work */
  SURELY_WRITABLE_BYTES = 8 << 20,
  RETRIES_MAX = 64,
  RETRY_LOOKS = 1024, /* rows at a time */
};

_Static_assert(RETAINED_MAX <= 32, "a bit for each in large.aged");

/* As snug_counters.h describes it. */
struct large {
  char *start; /* NULL: the row is free; with a tag below: L3 */
  size_t mapped_bytes;
  size_t requested_bytes;
};

/* What a row is, in the low bits of its address. */
enum tag { TAG_LIVE, TAG_REFUSED_START, TAG_REFUSED_END };

static struct {
  struct lock lock; /* rank LARGE; guards all here */
  struct large *rows;
  size_t row_count; /* a power of two */
  size_t used;
  size_t refused;                      /* ranges of L3; read without the lock */
  size_t retry_row;                    /* where to look for the next one to unmap */
  struct large retained[RETAINED_MAX]; /* requested_bytes unused */
  uint32_t aged;                       /* a bit for each: retained at the last tick already */
  bool served;                         /* one of them was taken since */
  bool gave_at_pages;                  /* the program has asked for a block at a page */
  size_t retained_pages;               /* read without the lock */
  const void *freed[FREED_MAX];        /* the last ones, a ring */
  size_t freed_count;                  /* read without the lock */
} large;

static size_t table_bytes(size_t rows) { return round_up(rows * sizeof(struct large), zone.page_bytes); }

static void use_table(struct large *rows, size_t row_count) {
  large.rows = rows;
  large.row_count = row_count;
  counter_set(&snug_counters.large_table_address, (uintptr_t)rows);
  counter_set(&snug_counters.large_table_rows, row_count);
}

bool large_init(void) {
  struct large *rows = map_apart(table_bytes(TABLE_FIRST_ROWS));
  use_table(rows, rows != NULL ? TABLE_FIRST_ROWS : 0);
  counter_set(&snug_counters.large_retained_address, (uintptr_t)large.retained);
  return rows != NULL;
}

static char *tagged(const char *address, enum tag tag) { return (char *)((uintptr_t)address | tag); }

static enum tag tag_of(const struct large *row) { return (enum tag)((uintptr_t)row->start & (PAGE_BYTES - 1)); }

static size_t home_row(const void *start, size_t row_count) {
  uint64_t hash = ((uintptr_t)start >> PAGE_SHIFT) * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing, Knuth vol. 3 */
  return (size_t)(hash >> 32) & (row_count - 1);
}

static struct large *find(const void *tagged_start) {
  if (large.row_count == 0) return NULL;
  for (size_t i = home_row(tagged_start, large.row_count);; i = (i + 1) & (large.row_count - 1)) {
    if (large.rows[i].start == tagged_start) return &large.rows[i];
    if (large.rows[i].start == NULL) return NULL;
  }
}

static struct large *find_live(const void *p) { return ((uintptr_t)p & (PAGE_BYTES - 1)) == 0 ? find(p) : NULL; }

static void put(struct large *rows, size_t row_count, const struct large *block) {
  ASSERT(block->start != NULL && row_count != 0);
  size_t i = home_row(block->start, row_count);
  while (rows[i].start != NULL) i = (i + 1) & (row_count - 1);
  rows[i] = *block;
}

/* Closes the gap that a removed row leaves in its probe sequence (Knuth vol. 3, 6.4, algorithm R). */
static void remove_row(struct large *row) {
  ASSERT(row->start != NULL && large.used != 0);
  size_t mask = large.row_count - 1, gap = (size_t)(row - large.rows);
  for (size_t i = (gap + 1) & mask; large.rows[i].start != NULL; i = (i + 1) & mask) {
    size_t home = home_row(large.rows[i].start, large.row_count);
    if (((i - home) & mask) >= ((i - gap) & mask)) {
      large.rows[gap] = large.rows[i];
      gap = i;
    }
  }
  large.rows[gap].start = NULL;
  large.used--;
}

/* Room for so many rows more, at half load if the table can grow. */
static bool make_room(size_t more) {
  if (large.used + more <= large.row_count / 2) return true;
  size_t rows = large.row_count * 2;
  struct large *table = rows != 0 ? map_apart(table_bytes(rows)) : NULL;
  if (table == NULL) return large.used + more < large.row_count - large.row_count / 8;
  for (size_t i = 0; i < large.row_count; i++) {
    if (large.rows[i].start != NULL) put(table, rows, &large.rows[i]);
  }
  struct large *old_rows = large.rows;
  size_t old_bytes = table_bytes(large.row_count);
  use_table(table, rows);
  map_unmap_apart(old_rows, old_bytes);
  return true;
}

static void set_retained_pages(size_t count) {
  __atomic_store_n(&large.retained_pages, count, __ATOMIC_RELAXED);
  counter_set(&snug_counters.large_retained_bytes, count * PAGE_BYTES);
}

uint64_t large_frees(void) { return __atomic_load_n(&large.freed_count, __ATOMIC_RELAXED); }

size_t large_retained_pages(void) { return __atomic_load_n(&large.retained_pages, __ATOMIC_RELAXED); }

/* The cost of a retained mapping, compared with one of the right length: bytes to cut off, or to fault in. SIZE_MAX: it
 * is of no use. Mappings that are much longer are left for blocks that need them. */
static size_t misfit(const struct large *candidate, size_t bytes, size_t alignment) {
  size_t length = candidate->mapped_bytes;
  if (candidate->start == NULL || (uintptr_t)candidate->start & (alignment - 1)) return SIZE_MAX;
  if (length >= bytes) return length - bytes <= bytes ? length - bytes : SIZE_MAX;
  bool may_move = alignment <= zone.page_bytes;
  return may_move && bytes - length <= length ? bytes - length : SIZE_MAX;
}

/* Takes the retained mapping that comes nearest to the length. NULL: none comes near. */
static char *take_retained(size_t bytes, size_t alignment, size_t *mapped_bytes) {
  struct large *best = NULL;
  size_t best_misfit = SIZE_MAX;
  for (size_t i = 0; i < RETAINED_MAX; i++) {
    size_t its_misfit = misfit(&large.retained[i], bytes, alignment);
    if (its_misfit >= best_misfit) continue;
    best = &large.retained[i];
    best_misfit = its_misfit;
  }
  if (best == NULL) return NULL;
  char *start = best->start;
  *mapped_bytes = best->mapped_bytes;
  best->start = NULL;
  large.served = true;
  set_retained_pages(large.retained_pages - *mapped_bytes / PAGE_BYTES);
  return start;
}

/* ---- unmapping (L3) ---- */

static bool has_refused(void) { return __atomic_load_n(&large.refused, __ATOMIC_RELAXED) != 0; }

static void add_refused(long change) {
  __atomic_store_n(&large.refused, large.refused + (size_t)change, __ATOMIC_RELAXED);
}

/* Removes both rows of a range. */
static void forget_refused(char *start, size_t bytes) {
  remove_row(find(tagged(start, TAG_REFUSED_START)));
  remove_row(find(tagged(start + bytes, TAG_REFUSED_END)));
  add_refused(-1);
}

/* Lengthens the range by those before and behind it that were refused, and removes these. The lock is held. */
static void merge_refused(struct large *range) {
  const struct large *before = find(tagged(range->start, TAG_REFUSED_END));
  if (before != NULL) {
    size_t bytes = before->mapped_bytes;
    forget_refused(range->start - bytes, bytes);
    range->start -= bytes;
    range->mapped_bytes += bytes;
  }
  char *end = range->start + range->mapped_bytes;
  const struct large *behind = find(tagged(end, TAG_REFUSED_START));
  if (behind != NULL) {
    size_t bytes = behind->mapped_bytes;
    forget_refused(end, bytes);
    range->mapped_bytes += bytes;
  }
}

/* If the system allows no further mapping, the table can't grow, but it has the row of the block that was freed.
 * Without room the address space is lost. */
static void remember_refused(struct large range) {
  lock_take(&large.lock, RANK_LARGE);
  merge_refused(&range);
  if (make_room(2)) {
    struct large start = {tagged(range.start, TAG_REFUSED_START), range.mapped_bytes, 0};
    struct large end = {tagged(range.start + range.mapped_bytes, TAG_REFUSED_END), range.mapped_bytes, 0};
    put(large.rows, large.row_count, &start);
    put(large.rows, large.row_count, &end);
    large.used += 2;
    add_refused(1);
  }
  lock_give(&large.lock, RANK_LARGE);
}

/* Unmaps a range that nobody else knows of, with what was refused beside it: where it reaches the ends of a mapping it
 * needs none more. */
static bool unmap_range(char *start, size_t bytes) {
  struct large range = {start, bytes, 0};
  if (unlikely(has_refused())) {
    lock_take(&large.lock, RANK_LARGE);
    merge_refused(&range);
    lock_give(&large.lock, RANK_LARGE);
  }
  if (likely(sys_unmap(range.start, range.mapped_bytes))) return true;
  sys_purge(start, bytes);
  remember_refused(range);
  return false;
}

/* The next refused range, out of the table; none among the rows that were looked at: bytes 0. */
static struct large take_refused(void) {
  struct large range = {NULL, 0, 0};
  lock_take(&large.lock, RANK_LARGE);
  for (size_t looks = 0; looks < RETRY_LOOKS && large.refused != 0 && range.start == NULL; looks++) {
    const struct large *row = &large.rows[large.retry_row++ & (large.row_count - 1)];
    if (row->start == NULL || tag_of(row) != TAG_REFUSED_START) continue;
    range = (struct large){row->start - TAG_REFUSED_START, row->mapped_bytes, 0};
    forget_refused(range.start, range.mapped_bytes);
  }
  lock_give(&large.lock, RANK_LARGE);
  return range;
}

void large_retry_unmaps(void) {
  for (int i = 0; i < RETRIES_MAX && has_refused() && !is_purging_stopped(); i++) {
    struct large range = take_refused();
    if (range.start == NULL) continue;
    if (!unmap_range(range.start, range.mapped_bytes)) return;
  }
}

static void unmap(const struct large *block) {
  unmap_range(block->start, block->mapped_bytes);
  counter_add(&snug_counters.large_unmaps, 1);
  counter_add(&snug_counters.purged_bytes, block->mapped_bytes);
}

/* ---- mappings ---- */

/* Takes back the advice of huge pages from a mapping that is no longer long enough for them. */
static void forgo_huge_pages(char *start, size_t old_bytes, size_t bytes) {
  if (old_bytes >= LARGE_HUGE_PAGES_BYTES && bytes < LARGE_HUGE_PAGES_BYTES) sys_no_huge_pages(start, bytes);
}

/* Makes a retained mapping, which nobody else knows of, bytes long; it may move. NULL: it could not be, and is gone: a
 * longer one would make the length of a sized free look wrong. */
static char *fit_retained(char *start, size_t *mapped_bytes, size_t bytes) {
  struct large block = {start, *mapped_bytes, 0};
  if (*mapped_bytes > bytes) {
    unmap_range(start + bytes, *mapped_bytes - bytes); /* if that is refused the rest is remembered */
    forgo_huge_pages(start, *mapped_bytes, bytes);
  }
  if (*mapped_bytes < bytes) start = sys_remap(start, *mapped_bytes, bytes, true);
  if (start == NULL) unmap(&block);
  *mapped_bytes = bytes;
  return start;
}

/* The program may have protected what it freed. One that does so asks for blocks at pages, mostly; the call costs too
 * much where mappings are short and nobody has. NULL: it can't be undone, and the mapping is gone. */
static char *make_writable(char *start, size_t mapped_bytes) {
  if (likely(sys_commit(start, mapped_bytes))) return start;
  struct large block = {start, mapped_bytes, 0};
  unmap(&block);
  return NULL;
}

/* Before the first: a page that can't be touched above where they will lie. Beyond it are the variables of a thread,
 * say, ours among them. */
static void keep_others_apart(size_t bytes) {
  static bool is_done; /* atomic */
  if (likely(__atomic_load_n(&is_done, __ATOMIC_RELAXED))) return;
  char *start = sys_reserve(bytes + zone.page_bytes);
  if (start == NULL) return;
  __atomic_store_n(&is_done, true, __ATOMIC_RELAXED);
  sys_unmap(start, bytes);
}

/* A new mapping at a multiple of alignment: maps more and cuts both ends. */
static char *map_new(size_t bytes, size_t alignment) {
  size_t extra = alignment > zone.page_bytes ? alignment - zone.page_bytes : 0;
  if (bytes + extra < bytes) return NULL;
  keep_others_apart(bytes + extra);
  char *start = sys_map(bytes + extra);
  if (start == NULL) return NULL;
  if (extra != 0) {
    char *aligned = (char *)round_up((uintptr_t)start, alignment);
    if (aligned != start) unmap_range(start, (size_t)(aligned - start));
    size_t tail = extra - (size_t)(aligned - start);
    if (tail != 0) unmap_range(aligned + bytes, tail);
    start = aligned;
  }
  if (bytes < LARGE_HUGE_PAGES_BYTES) sys_no_huge_pages(start, bytes);
  counter_add(&snug_counters.large_maps, 1);
  return start;
}

static void count_large(long blocks, size_t mapped_bytes, size_t requested_bytes) {
  counter_add(&snug_counters.large_blocks, (uint64_t)blocks);
  counter_add(&snug_counters.large_bytes, (uint64_t)blocks * mapped_bytes);
  counter_add(&snug_counters.large_requested_bytes, (uint64_t)blocks * requested_bytes);
}

void *large_take(size_t size_bytes, size_t alignment, bool *clean) {
  ASSERT(alignment != 0 && (alignment & (alignment - 1)) == 0);
  size_t bytes = round_up(size_bytes, zone.page_bytes);
  lock_take(&large.lock, RANK_LARGE);
  bool room = make_room(1);
  size_t mapped_bytes = bytes;
  char *start = room ? take_retained(bytes, alignment, &mapped_bytes) : NULL;
  large.gave_at_pages |= alignment >= zone.page_bytes;
  bool may_be_protected = large.gave_at_pages || mapped_bytes >= SURELY_WRITABLE_BYTES;
  if (room) large.used++; /* our row, though still without a place */
  lock_give(&large.lock, RANK_LARGE);
  if (!room) return NULL;
  if (start != NULL && may_be_protected) start = make_writable(start, mapped_bytes);
  if (start != NULL) start = fit_retained(start, &mapped_bytes, bytes);
  *clean = start == NULL;
  if (start == NULL) {
    start = map_new(bytes, alignment);
    mapped_bytes = bytes;
  }
  struct large block = {start, mapped_bytes, size_bytes};
  lock_take(&large.lock, RANK_LARGE);
  if (start != NULL) {
    put(large.rows, large.row_count, &block);
  } else {
    large.used--;
  }
  lock_give(&large.lock, RANK_LARGE);
  if (start != NULL) count_large(1, mapped_bytes, size_bytes);
  return start;
}

/* Keeps the mapping for reuse if there is a place. */
static bool retain(const struct large *block, bool is_aged) {
  if (block->mapped_bytes > RETAINED_MAX_BYTES) return false;
  for (size_t i = 0; i < RETAINED_MAX; i++) {
    if (large.retained[i].start != NULL) continue;
    large.retained[i] = *block;
    large.aged = (large.aged & ~(UINT32_C(1) << i)) | (uint32_t)is_aged << i;
    set_retained_pages(large.retained_pages + block->mapped_bytes / PAGE_BYTES);
    return true;
  }
  return false;
}

bool large_give(void *p) {
  lock_take(&large.lock, RANK_LARGE);
  struct large *row = find_live(p);
  if (row == NULL) {
    lock_give(&large.lock, RANK_LARGE);
    return false;
  }
  struct large block = *row;
  remove_row(row);
  large.freed[large.freed_count % FREED_MAX] = block.start;
  __atomic_store_n(&large.freed_count, large.freed_count + 1, __ATOMIC_RELAXED);
  bool kept = retain(&block, false);
  lock_give(&large.lock, RANK_LARGE);
  count_large(-1, block.mapped_bytes, block.requested_bytes);
  if (!kept) unmap(&block);
  return true;
}

size_t large_size(const void *p) {
  lock_take(&large.lock, RANK_LARGE);
  struct large *row = find_live(p);
  size_t bytes = row != NULL ? row->mapped_bytes : 0;
  lock_give(&large.lock, RANK_LARGE);
  return bytes;
}

/* Changes by another thread are whole within the time that is waited here, unless it does not run for so long. Changes
 * by this one leave all rows in the table at any time, but for an instant in which it grows. */
size_t large_size_amid(const void *p) {
  bool locked = lock_take_soon(&large.lock, RANK_LARGE);
  const struct large *row = find_live(p);
  size_t bytes = row != NULL ? row->mapped_bytes : 0;
  if (locked) lock_give(&large.lock, RANK_LARGE);
  return bytes;
}

static void *resize_mapping(void *p, size_t size_bytes, bool may_move) {
  size_t bytes = round_up(size_bytes, zone.page_bytes);
  lock_take(&large.lock, RANK_LARGE);
  struct large *row = find_live(p);
  if (row == NULL) {
    lock_give(&large.lock, RANK_LARGE);
    return NULL;
  }
  struct large block = *row;
  if (block.mapped_bytes == bytes) {
    row->requested_bytes = size_bytes;
  } else {
    remove_row(row); /* L1 */
    large.used++;
  }
  lock_give(&large.lock, RANK_LARGE);
  count_large(-1, block.mapped_bytes, block.requested_bytes);
  void *result = p;
  if (block.mapped_bytes != bytes) {
    result = sys_remap(p, block.mapped_bytes, bytes, may_move);
    if (result != NULL) forgo_huge_pages(result, block.mapped_bytes, bytes);
    if (result != NULL) block = (struct large){result, bytes, size_bytes};
    lock_take(&large.lock, RANK_LARGE);
    put(large.rows, large.row_count, &block);
    lock_give(&large.lock, RANK_LARGE);
  } else {
    block.requested_bytes = size_bytes;
  }
  count_large(1, block.mapped_bytes, block.requested_bytes);
  return result;
}

void *large_resize(void *p, size_t size_bytes) { return resize_mapping(p, size_bytes, true); }

bool large_resize_in_place(void *p, size_t size_bytes) { return resize_mapping(p, size_bytes, false) != NULL; }

void *large_block_around(const void *p) {
  void *start = NULL;
  lock_take(&large.lock, RANK_LARGE);
  for (size_t i = 0; i < large.row_count && start == NULL; i++) {
    const struct large *row = &large.rows[i];
    if (row->start == NULL || tag_of(row) != TAG_LIVE) continue;
    if ((size_t)((const char *)p - row->start) < row->mapped_bytes) start = row->start;
  }
  lock_give(&large.lock, RANK_LARGE);
  return start;
}

bool large_was_freed(const void *p) {
  bool found = false;
  lock_take(&large.lock, RANK_LARGE);
  for (size_t i = 0; i < FREED_MAX; i++) found |= large.freed[i] == p;
  lock_give(&large.lock, RANK_LARGE);
  return found;
}

void large_age(void) {
  lock_take(&large.lock, RANK_LARGE);
  for (size_t i = 0; i < RETAINED_MAX; i++) {
    if (large.retained[i].start != NULL) large.aged |= UINT32_C(1) << i;
  }
  large.served = false;
  lock_give(&large.lock, RANK_LARGE);
}

/* Takes a retained mapping if more than keep_pages are retained. */
static struct large take_victim(size_t keep_pages, bool only_aged, bool *is_aged) {
  struct large victim = {NULL, 0, 0};
  lock_take(&large.lock, RANK_LARGE);
  if (large.retained_pages > keep_pages) {
    uint32_t wanted = only_aged && large.served ? large.aged : UINT32_MAX;
    for (size_t i = 0; i < RETAINED_MAX && victim.start == NULL; i++) {
      if ((wanted >> i & 1) == 0) continue;
      victim = large.retained[i];
      *is_aged = large.aged >> i & 1;
      large.retained[i].start = NULL;
    }
    if (victim.start != NULL) set_retained_pages(large.retained_pages - victim.mapped_bytes / PAGE_BYTES);
  }
  lock_give(&large.lock, RANK_LARGE);
  return victim;
}

size_t large_purge(size_t keep_pages, bool only_aged) {
  size_t purged = 0;
  while (!is_purging_stopped()) {
    bool is_aged = false;
    struct large victim = take_victim(keep_pages, only_aged, &is_aged);
    if (victim.start == NULL) break;
    size_t bytes = victim.mapped_bytes;
    while (bytes > UNMAP_SLICE_BYTES && !is_purging_stopped()) {
      bytes -= UNMAP_SLICE_BYTES;
      unmap_range(victim.start + bytes, UNMAP_SLICE_BYTES);
    }
    purged += (victim.mapped_bytes - bytes) / PAGE_BYTES;
    counter_add(&snug_counters.purged_bytes, victim.mapped_bytes - bytes);
    victim.mapped_bytes = bytes;
    lock_take(&large.lock, RANK_LARGE);
    bool kept = is_purging_stopped() && retain(&victim, is_aged);
    lock_give(&large.lock, RANK_LARGE);
    if (kept) break;
    unmap(&victim);
    purged += bytes / PAGE_BYTES;
  }
  return purged;
}

/* L3 of one range: both rows are there, and no other range or block begins or ends where it does. */
static void check_refused(const struct large *row) {
  const char *start = row->start - TAG_REFUSED_START, *end = start + row->mapped_bytes;
  const struct large *by_end = find(tagged(end, TAG_REFUSED_END));
  if (by_end == NULL || by_end->mapped_bytes != row->mapped_bytes || find(tagged(start, TAG_REFUSED_END)) != NULL ||
      find(tagged(end, TAG_REFUSED_START)) != NULL || find_live(start) != NULL) {
    fatal_corrupted("range that the system refused to unmap (L3)", row);
  }
}

void large_check(void) {
  lock_take(&large.lock, RANK_LARGE);
  size_t used = 0, refused = 0, retained_pages = 0;
  for (size_t i = 0; i < large.row_count; i++) {
    const struct large *row = &large.rows[i];
    if (row->start == NULL) continue;
    used++;
    if (find(row->start) != row) fatal_corrupted("table of large blocks (L1)", row);
    if (tag_of(row) != TAG_REFUSED_START) continue;
    refused++;
    check_refused(row);
  }
  for (size_t i = 0; i < RETAINED_MAX; i++) {
    if (large.retained[i].start == NULL) continue;
    retained_pages += large.retained[i].mapped_bytes / PAGE_BYTES;
    if (find(large.retained[i].start) != NULL) fatal_corrupted("retained large block (L2)", &large.retained[i]);
  }
  if (used > large.used || retained_pages != large.retained_pages || refused != large.refused) {
    fatal_corrupted("counts of large blocks", &large);
  }
  lock_give(&large.lock, RANK_LARGE);
}

void large_lock_all(void) { lock_take_in_fork(&large.lock, RANK_LARGE); }
void large_unlock_all(void) { lock_give_in_fork(&large.lock, RANK_LARGE); }
void large_reset_locks(void) { lock_reset(&large.lock); }
