#include "large.h"

#include "counters.h"
#include "fatal.h"
#include "lock.h"
#include "map.h"
#include "sys.h"

enum {
  RETAINED_MAX = 16,
  FREED_MAX = 32,
  RETAINED_MAX_BYTES = 64 << 20, /* a longer mapping is never retained */
  TABLE_FIRST_ROWS = 128,        /* less than a page */
};

struct large {
  char *start; /* NULL: the row is free */
  size_t mapped_bytes;
  size_t requested_bytes;
};

static struct {
  struct lock lock; /* rank LARGE; guards all here */
  struct large *rows;
  size_t row_count; /* a power of two */
  size_t used;
  struct large retained[RETAINED_MAX]; /* requested_bytes unused */
  size_t retained_pages;               /* read without the lock */
  const void *freed[FREED_MAX];        /* the last ones, a ring */
  size_t freed_count;
} large;

static size_t table_bytes(size_t rows) { return round_up(rows * sizeof(struct large), zone.page_bytes); }

bool large_init(void) {
  large.rows = sys_map(table_bytes(TABLE_FIRST_ROWS));
  large.row_count = large.rows != NULL ? TABLE_FIRST_ROWS : 0;
  return large.rows != NULL;
}

static size_t home_row(const void *start, size_t row_count) {
  uint64_t hash = ((uintptr_t)start >> PAGE_SHIFT) * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing, Knuth vol. 3 */
  return (size_t)(hash >> 32) & (row_count - 1);
}

static struct large *find(const void *start) {
  if (large.row_count == 0) return NULL;
  for (size_t i = home_row(start, large.row_count);; i = (i + 1) & (large.row_count - 1)) {
    if (large.rows[i].start == start) return &large.rows[i];
    if (large.rows[i].start == NULL) return NULL;
  }
}

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

/* Room for one more row, at half load if the table can grow. */
static bool make_room(void) {
  if (large.used + 1 <= large.row_count / 2) return true;
  size_t rows = large.row_count * 2;
  struct large *table = rows != 0 ? sys_map(table_bytes(rows)) : NULL;
  if (table == NULL) return large.used + 1 < large.row_count - large.row_count / 8;
  for (size_t i = 0; i < large.row_count; i++) {
    if (large.rows[i].start != NULL) put(table, rows, &large.rows[i]);
  }
  sys_unmap(large.rows, table_bytes(large.row_count));
  large.rows = table;
  large.row_count = rows;
  return true;
}

static void set_retained_pages(size_t count) {
  __atomic_store_n(&large.retained_pages, count, __ATOMIC_RELAXED);
  counter_set(&snug_counters.large_retained_bytes, count * PAGE_BYTES);
}

size_t large_retained_pages(void) { return __atomic_load_n(&large.retained_pages, __ATOMIC_RELAXED); }

/* How much worse than one of the right length a retained mapping is: bytes to cut off, or to fault in. SIZE_MAX: it is
 * not of use. One that is much longer is left for those who need it. */
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
  set_retained_pages(large.retained_pages - *mapped_bytes / PAGE_BYTES);
  return start;
}

static void unmap(const struct large *block) {
  if (!sys_unmap(block->start, block->mapped_bytes))
    sys_purge(block->start, block->mapped_bytes); /* then its address space is lost */
  counter_add(&snug_counters.large_unmaps, 1);
  counter_add(&snug_counters.purged_bytes, block->mapped_bytes);
}

/* Makes a retained mapping, which nobody else knows of, bytes long; it may move. NULL: it could not be, and is gone: a
 * longer one would make the length of a sized free look wrong. */
static char *fit_retained(char *start, size_t *mapped_bytes, size_t bytes) {
  struct large block = {start, *mapped_bytes, 0};
  if (*mapped_bytes > bytes && !sys_unmap(start + bytes, *mapped_bytes - bytes)) start = NULL;
  if (*mapped_bytes < bytes) start = sys_remap(start, *mapped_bytes, bytes, true);
  if (start == NULL) unmap(&block);
  *mapped_bytes = bytes;
  return start;
}

/* A new mapping at a multiple of alignment: maps more and cuts both ends. */
static char *map_new(size_t bytes, size_t alignment) {
  size_t extra = alignment > zone.page_bytes ? alignment - zone.page_bytes : 0;
  if (bytes + extra < bytes) return NULL;
  char *start = sys_map(bytes + extra);
  if (start == NULL) return NULL;
  if (extra != 0) {
    char *aligned = (char *)round_up((uintptr_t)start, alignment);
    if (aligned != start) sys_unmap(start, (size_t)(aligned - start));
    size_t tail = extra - (size_t)(aligned - start);
    if (tail != 0) sys_unmap(aligned + bytes, tail);
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
  bool room = make_room();
  size_t mapped_bytes = bytes;
  char *start = room ? take_retained(bytes, alignment, &mapped_bytes) : NULL;
  if (room) large.used++; /* our row, though still without a place */
  lock_give(&large.lock, RANK_LARGE);
  if (!room) return NULL;
  if (start != NULL) start = fit_retained(start, &mapped_bytes, bytes);
  *clean = start == NULL;
  if (start == NULL) start = map_new(bytes, alignment);
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
static bool retain(const struct large *block) {
  if (block->mapped_bytes > RETAINED_MAX_BYTES) return false;
  for (size_t i = 0; i < RETAINED_MAX; i++) {
    if (large.retained[i].start != NULL) continue;
    large.retained[i] = *block;
    set_retained_pages(large.retained_pages + block->mapped_bytes / PAGE_BYTES);
    return true;
  }
  return false;
}

bool large_give(void *p) {
  lock_take(&large.lock, RANK_LARGE);
  struct large *row = find(p);
  if (row == NULL) {
    lock_give(&large.lock, RANK_LARGE);
    return false;
  }
  struct large block = *row;
  remove_row(row);
  large.freed[large.freed_count++ % FREED_MAX] = block.start;
  bool kept = retain(&block);
  lock_give(&large.lock, RANK_LARGE);
  count_large(-1, block.mapped_bytes, block.requested_bytes);
  if (!kept) unmap(&block);
  return true;
}

size_t large_size(const void *p) {
  lock_take(&large.lock, RANK_LARGE);
  struct large *row = find(p);
  size_t bytes = row != NULL ? row->mapped_bytes : 0;
  lock_give(&large.lock, RANK_LARGE);
  return bytes;
}

void *large_resize(void *p, size_t size_bytes) {
  size_t bytes = round_up(size_bytes, zone.page_bytes);
  lock_take(&large.lock, RANK_LARGE);
  struct large *row = find(p);
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
    result = sys_remap(p, block.mapped_bytes, bytes, true);
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

void *large_block_around(const void *p) {
  void *start = NULL;
  lock_take(&large.lock, RANK_LARGE);
  for (size_t i = 0; i < large.row_count && start == NULL; i++) {
    const struct large *row = &large.rows[i];
    if (row->start != NULL && (size_t)((const char *)p - row->start) < row->mapped_bytes) start = row->start;
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

size_t large_purge(size_t keep_pages) {
  size_t purged = 0;
  for (;;) {
    struct large victim = {NULL, 0, 0};
    lock_take(&large.lock, RANK_LARGE);
    if (large.retained_pages > keep_pages) {
      for (size_t i = 0; i < RETAINED_MAX && victim.start == NULL; i++) {
        victim = large.retained[i];
        large.retained[i].start = NULL;
      }
      if (victim.start != NULL) set_retained_pages(large.retained_pages - victim.mapped_bytes / PAGE_BYTES);
    }
    lock_give(&large.lock, RANK_LARGE);
    if (victim.start == NULL) return purged;
    unmap(&victim);
    purged += victim.mapped_bytes / PAGE_BYTES;
  }
}

void large_check(void) {
  lock_take(&large.lock, RANK_LARGE);
  size_t used = 0, retained_pages = 0;
  for (size_t i = 0; i < large.row_count; i++) {
    if (large.rows[i].start == NULL) continue;
    used++;
    if (find(large.rows[i].start) != &large.rows[i]) fatal_corrupted("table of large blocks (L1)", &large.rows[i]);
  }
  for (size_t i = 0; i < RETAINED_MAX; i++) {
    if (large.retained[i].start == NULL) continue;
    retained_pages += large.retained[i].mapped_bytes / PAGE_BYTES;
    if (find(large.retained[i].start) != NULL) fatal_corrupted("retained large block (L2)", &large.retained[i]);
  }
  if (used > large.used || retained_pages != large.retained_pages) fatal_corrupted("counts of large blocks", &large);
  lock_give(&large.lock, RANK_LARGE);
}

void large_lock_all(void) { lock_take_in_fork(&large.lock, RANK_LARGE); }
void large_unlock_all(void) { lock_give_in_fork(&large.lock, RANK_LARGE); }
void large_reset_locks(void) { lock_reset(&large.lock); }
