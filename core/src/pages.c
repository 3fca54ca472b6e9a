#include "pages.h"

#include "bits.h"
#include "fatal.h"
#include "huge.h"
#include "lock.h"
#include "sys.h"

enum {
  CHUNK_WORDS = CHUNK_PAGES / 64,
  PURGE_BATCH = 64,         /* runs given back per time the lock is taken, or */
  PURGE_BATCH_PAGES = 2048, /* so many pages, and the rest of a run: a millisecond's work */
  BATCHES_BEFORE_FORK = 4,
  UNALIGNED_MAX = 16,   /* chunks with holes long enough that begin at the wrong page, in one search */
  REFUSALS_MAX = 4,     /* batches in which the system refused, in one purge */
  SHRINK_CHUNKS = 16,   /* that the zone shrinks by at a time: 64 MiB, as it grows */
  SPARE_CHUNKS = 4,     /* at ticks so many stay beyond the last one in use, */
  SPARE_HEAP_SHIFT = 3, /* and this part of the heap, as much as it grows by */
};

/* The most that a search in a chunk can find; exact after a search failed there (G1). */
struct chunk {
  uint16_t longest_free;
  uint16_t longest_dirty;
  uint16_t dirty;   /* dirty pages, exact */
  uint16_t free;    /* free pages, exact */
  uint16_t settled; /* G4 */
};

uint32_t purging_stops;

static struct {
  struct lock lock;   /* rank PAGES; guards all here and the two bitmaps of the zone */
  struct table table; /* of chunks */
  struct chunk *chunks;
  size_t chunk_count;
  size_t top_pages;
  size_t top_pages_ever;                    /* atomic: never falls */
  size_t free_pages;                        /* below the top */
  size_t dirty_pages;                       /* written under the lock, read without */
  size_t settled_pages;                     /* the same */
  uint64_t takes;                           /* the same */
  uint32_t lowest_free[PAGES_RUN_MAX + 1];  /* [n]: no chunk below has n free pages in a row; never falls with n */
  uint32_t lowest_dirty[PAGES_RUN_MAX + 1]; /* the same, of dirty ones */
} pages;

static void set_settled(struct chunk *chunk, size_t count) {
  __atomic_store_n(&pages.settled_pages, pages.settled_pages + count - chunk->settled, __ATOMIC_RELAXED);
  chunk->settled = (uint16_t)count;
}

static ALWAYS_INLINE void add_dirty(struct chunk *chunk, long change) {
  chunk->dirty = (uint16_t)(chunk->dirty + change);
  if (unlikely(chunk->settled > chunk->dirty)) set_settled(chunk, chunk->dirty);
  __atomic_store_n(&pages.dirty_pages, pages.dirty_pages + (size_t)change, __ATOMIC_RELAXED);
}

static ALWAYS_INLINE void add_free(long change) {
  __atomic_store_n(&pages.free_pages, pages.free_pages + (size_t)change, __ATOMIC_RELAXED);
}

size_t pages_dirty(void) { return __atomic_load_n(&pages.dirty_pages, __ATOMIC_RELAXED); }

/* Both are read without the lock, like those below. */
size_t pages_purgeable(void) {
  size_t settled = __atomic_load_n(&pages.settled_pages, __ATOMIC_RELAXED), dirty = pages_dirty();
  return dirty > settled ? dirty - settled : 0;
}

uint64_t pages_takes(void) { return __atomic_load_n(&pages.takes, __ATOMIC_RELAXED); }

size_t pages_top_ever(void) { return __atomic_load_n(&pages.top_pages_ever, __ATOMIC_RELAXED); }

size_t pages_top(void) { return __atomic_load_n(&pages.top_pages, __ATOMIC_RELAXED); }

/* Both are read without the lock: a torn difference is off by what one call moves. */
size_t pages_used(void) {
  size_t top = pages_top(), free_pages = __atomic_load_n(&pages.free_pages, __ATOMIC_RELAXED);
  return top > free_pages ? top - free_pages : 0;
}

/* The words a search looks at: free pages, or only those that are dirty as well (G3: dirty pages are free). */
static ALWAYS_INLINE const uint64_t *chunk_words(size_t chunk, bool dirty_only) {
  return (dirty_only ? zone.dirty_bits : zone.free_bits) + chunk * CHUNK_WORDS;
}

/* Best fit for count pages at align_pages in a chunk; also the longest run there. PAGE_NONE if nothing fits. */
static size_t search_chunk(size_t chunk, bool dirty_only, size_t count, size_t align_pages, size_t *longest) {
  const uint64_t *words = chunk_words(chunk, dirty_only);
  size_t best = PAGE_NONE, best_length = CHUNK_PAGES + 1, base = chunk * CHUNK_PAGES;
  *longest = 0;
  for (size_t start = bits_find(words, 0, CHUNK_PAGES, true); start < CHUNK_PAGES;) {
    size_t end = bits_find(words, start, CHUNK_PAGES, false);
    if (end - start > *longest) *longest = end - start;
    size_t aligned = round_up(base + start, align_pages) - base;
    if (aligned + count <= end && end - start < best_length) {
      best = aligned;
      best_length = end - start;
      if (best_length == count) break;
    }
    start = bits_find(words, end, CHUNK_PAGES, true);
  }
  return best == PAGE_NONE ? PAGE_NONE : base + best;
}

/* A chunk has a run of `length` now. */
static void lower(uint32_t lowest[], size_t length, size_t chunk) {
  for (size_t n = length < PAGES_RUN_MAX ? length : PAGES_RUN_MAX; n > 0 && lowest[n] > chunk; n--)
    lowest[n] = (uint32_t)chunk;
}

/* No chunk below has `length` pages in a row. */
static void raise_to(uint32_t lowest[], size_t length, size_t chunk) {
  for (size_t n = length; n <= PAGES_RUN_MAX && lowest[n] < chunk; n++) lowest[n] = (uint32_t)chunk;
}

/* In haste, after a few chunks in which only the alignment was amiss, it looks at those alone that have a run in which
 * the pages fit wherever it begins. */
static size_t search(bool dirty_only, size_t count, size_t align_pages, bool in_haste) {
  uint32_t *lowest = dirty_only ? pages.lowest_dirty : pages.lowest_free;
  size_t i, found = PAGE_NONE, least = count, unaligned_count = 0;
  size_t unaligned = pages.chunk_count; /* the first chunk where only alignment was amiss */
  for (i = lowest[count]; i < pages.chunk_count; i++) {
    struct chunk *chunk = &pages.chunks[i];
    if ((dirty_only ? chunk->longest_dirty : chunk->longest_free) < least) continue;
    size_t longest;
    found = search_chunk(i, dirty_only, count, align_pages, &longest);
    if (found != PAGE_NONE) break;
    if (dirty_only) {
      chunk->longest_dirty = (uint16_t)longest;
    } else {
      chunk->longest_free = (uint16_t)longest;
    }
    if (longest < count) continue;
    if (unaligned > i) unaligned = i;
    if (in_haste && ++unaligned_count == UNALIGNED_MAX) least = count + align_pages - 1;
  }
  raise_to(lowest, count, i < unaligned ? i : unaligned);
  return found;
}

/* Takes [first, first + count), all free, out of the heap. */
static void mark_taken(size_t first, size_t count, bool *clean) {
  ASSERT(count != 0 && first / CHUNK_PAGES == (first + count - 1) / CHUNK_PAGES); /* G1 */
  struct chunk *chunk = &pages.chunks[first / CHUNK_PAGES];
  size_t taken = bits_set(zone.free_bits, first, count, false);
  size_t dirty = bits_set(zone.dirty_bits, first, count, false);
  if (dirty != 0) bits_set(zone.aged_bits, first, count, false);
  if (unlikely(taken != count)) fatal_corrupted("page heap", page_address(first));
  chunk->free = (uint16_t)(chunk->free - count);
  add_dirty(chunk, -(long)dirty);
  size_t end = first + count;
  if (end > pages.top_pages) {
    add_free((long)(end - pages.top_pages));
    __atomic_store_n(&pages.top_pages, end, __ATOMIC_RELAXED);
    if (end > pages.top_pages_ever) __atomic_store_n(&pages.top_pages_ever, end, __ATOMIC_RELAXED);
  }
  add_free(-(long)count);
  *clean = dirty == 0;
}

/* Adds the zone's new chunks. Pages above the top are free and clean. */
static bool grow(size_t count) {
  size_t usable = map_grow(count);
  if (usable == 0) return false;
  huge_grew(pages.chunk_count * CHUNK_PAGES, usable);
  if (pages.chunks == NULL) {
    pages.table = table_reserve(zone.reserved_pages / CHUNK_PAGES * sizeof(struct chunk), "snug chunks");
    pages.chunks = (struct chunk *)pages.table.start;
    if (pages.chunks == NULL) return false;
    table_register(&pages.table);
  }
  if (!table_commit(&pages.table, usable / CHUNK_PAGES * sizeof(struct chunk))) return false;
  for (size_t i = pages.chunk_count; i < usable / CHUNK_PAGES; i++) {
    pages.chunks[i] = (struct chunk){CHUNK_PAGES, 0, 0, CHUNK_PAGES, 0};
    bits_set(zone.free_bits, i * CHUNK_PAGES, CHUNK_PAGES, true);
    lower(pages.lowest_free, CHUNK_PAGES, i);
  }
  pages.chunk_count = usable / CHUNK_PAGES;
  return true;
}

void pages_lock(void) { lock_take(&pages.lock, RANK_PAGES); }
void pages_unlock(void) { lock_give(&pages.lock, RANK_PAGES); }

static size_t search_both(size_t count, size_t align_pages, bool in_haste) {
  size_t found = pages.dirty_pages >= count ? search(true, count, align_pages, in_haste) : PAGE_NONE;
  return found != PAGE_NONE ? found : search(false, count, align_pages, in_haste);
}

size_t pages_take_locked(size_t count, size_t align_pages, bool *clean) {
  ASSERT(count >= 1 && count <= PAGES_RUN_MAX);
  ASSERT(align_pages != 0 && (align_pages & (align_pages - 1)) == 0 && align_pages <= PAGES_RUN_MAX);
  size_t found = search_both(count, align_pages, true);
  if (found == PAGE_NONE && grow(count)) found = search(false, count, align_pages, true);
  if (unlikely(found == PAGE_NONE) && align_pages > 1) found = search_both(count, align_pages, false);
  ASSERT(found == PAGE_NONE || found % align_pages == 0);
  if (found != PAGE_NONE && unlikely(!map_reach(found + count))) found = PAGE_NONE;
  if (found != PAGE_NONE) mark_taken(found, count, clean);
  __atomic_store_n(&pages.takes, pages.takes + 1, __ATOMIC_RELAXED);
  return found;
}

size_t pages_take(size_t count, size_t align_pages, bool *clean) {
  pages_lock();
  size_t found = pages_take_locked(count, align_pages, clean);
  pages_unlock();
  return found;
}

bool pages_have_dirty(size_t count) {
  if (pages_dirty() < count) return false;
  lock_take(&pages.lock, RANK_PAGES);
  bool have = search(true, count, 1, false) != PAGE_NONE;
  lock_give(&pages.lock, RANK_PAGES);
  return have;
}

/* Length of the run of ones around [first, first + count) inside its chunk; dirty_only as in chunk_words. */
static size_t run_around(size_t first, size_t count, bool dirty_only) {
  const uint64_t *words = chunk_words(first / CHUNK_PAGES, dirty_only);
  size_t start = first % CHUNK_PAGES;
  return bits_find(words, start + count, CHUNK_PAGES, false) - bits_run_start(words, start);
}

static void mark_free(size_t first, size_t count) {
  ASSERT(count != 0 && first / CHUNK_PAGES == (first + count - 1) / CHUNK_PAGES); /* G1 */
  size_t index = first / CHUNK_PAGES;
  struct chunk *chunk = &pages.chunks[index];
  if (unlikely(bits_set(zone.free_bits, first, count, true) != count)) {
    fatal_corrupted("page heap: pages are free already", page_address(first));
  }
  chunk->free = (uint16_t)(chunk->free + count);
  add_free((long)count);
  size_t length = run_around(first, count, false);
  if (length > chunk->longest_free) chunk->longest_free = (uint16_t)length;
  lower(pages.lowest_free, length, index);
}

static void mark_dirty(size_t first, size_t count) {
  ASSERT(bits_count(zone.free_bits, first, count) == count); /* only free pages are dirty */
  struct chunk *chunk = &pages.chunks[first / CHUNK_PAGES];
  add_dirty(chunk, (long)bits_set(zone.dirty_bits, first, count, true));
  if (unlikely(chunk->settled != 0)) set_settled(chunk, 0); /* what lay beside may be able to go now */
  size_t length = run_around(first, count, true);
  if (length > chunk->longest_dirty) chunk->longest_dirty = (uint16_t)length;
  lower(pages.lowest_dirty, length, first / CHUNK_PAGES);
}

void pages_give_locked(size_t first, size_t count, uint64_t clean_mask) {
  ASSERT(first + count <= pages_top());
  mark_free(first, count);
  size_t masked = count < 64 ? count : 64;
  for (size_t i = 0; i < count;) {
    size_t start = bits_find(&clean_mask, i, masked, false);
    if (start == masked && masked == count) break;
    size_t end = bits_find(&clean_mask, start, masked, true);
    if (end == masked) end = count; /* pages beyond the mask are dirty */
    mark_dirty(first + start, end - start);
    i = end;
  }
}

void pages_give(size_t first, size_t count, uint64_t clean_mask) {
  pages_lock();
  pages_give_locked(first, count, clean_mask);
  pages_unlock();
}

bool pages_extend_locked(size_t first, size_t count, size_t new_count, bool *clean) {
  ASSERT(new_count > count);
  size_t next = first + count, more = new_count - count;
  if (first / CHUNK_PAGES != (first + new_count - 1) / CHUNK_PAGES || new_count > PAGES_RUN_MAX) return false;
  bool can = bits_count(zone.free_bits, next, more) == more && map_reach(next + more);
  if (can) mark_taken(next, more, clean);
  return can;
}

struct run {
  size_t first;
  size_t count;
  size_t dirty; /* of count */
};

/* The pages of a chunk that can be given back: those free and dirty, or aged as well. Where the system's pages are
 * larger than ours, one dirty page keeps its whole group resident, and only groups that are free as a whole can go. */
static void purgeable_words(size_t chunk, bool only_aged, uint64_t words[CHUNK_WORDS]) {
  unsigned group = (unsigned)(zone.page_bytes / PAGE_BYTES);
  const uint64_t *from = only_aged ? zone.aged_bits + chunk * CHUNK_WORDS : chunk_words(chunk, true);
  for (size_t i = 0; i < CHUNK_WORDS; i++) words[i] = from[i];
  for (size_t i = 0; group > 1 && i < CHUNK_PAGES; i += group) {
    uint64_t mask = bits_mask(i % 64, group), *word = &words[i / 64];
    bool can_go = (*word & mask) != 0 && (zone.free_bits[chunk * CHUNK_WORDS + i / 64] & mask) == mask;
    *word = can_go ? *word | mask : *word & ~mask;
  }
}

/* Whether a chunk can go as a whole: its huge pages need not be broken then. */
static bool can_go_whole(size_t index, bool only_aged) {
  const struct chunk *chunk = &pages.chunks[index];
  if (chunk->free != CHUNK_PAGES || !huge_may_be_at(index * CHUNK_PAGES)) return false;
  return !only_aged || bits_count(zone.aged_bits, index * CHUNK_PAGES, CHUNK_PAGES) == chunk->dirty;
}

struct purge_walk {
  bool may_break;    /* huge pages */
  size_t chunk_from; /* this one and those above are done */
  size_t purged;
  unsigned refusals;
};

/* Takes such runs out of the heap (G3), from the highest chunk down, until `wanted` dirty pages or a batch is among
 * them. Returns the number of runs. */
static size_t collect_dirty(struct purge_walk *walk, size_t wanted, bool only_aged, struct run runs[PURGE_BATCH]) {
  bool may_break = walk->may_break && huge_may_break() && !is_purging_stopped();
  size_t count = 0, collected = 0, most = wanted < PURGE_BATCH_PAGES ? wanted : PURGE_BATCH_PAGES;
  for (; walk->chunk_from > 0; walk->chunk_from--) {
    size_t index = walk->chunk_from - 1, end = 0;
    struct chunk *chunk = &pages.chunks[index];
    bool goes_whole = can_go_whole(index, only_aged);
    if (!may_break && !goes_whole && huge_may_be_at(index * CHUNK_PAGES)) continue;
    uint64_t words[CHUNK_WORDS];
    if (chunk->dirty != 0) purgeable_words(index, only_aged, words);
    for (size_t i = 0; goes_whole && i < CHUNK_WORDS; i++) words[i] = UINT64_MAX;
    while (chunk->dirty != 0) {
      if (count == PURGE_BATCH || collected >= most) return count;
      size_t start = bits_find(words, end, CHUNK_PAGES, true);
      end = bits_find(words, start, CHUNK_PAGES, false);
      if (start >= end) break;
      struct run *run = &runs[count++];
      run->first = index * CHUNK_PAGES + start;
      run->count = end - start;
      bits_set(zone.free_bits, run->first, run->count, false);
      run->dirty = bits_set(zone.dirty_bits, run->first, run->count, false);
      bits_set(zone.aged_bits, run->first, run->count, false);
      chunk->free = (uint16_t)(chunk->free - run->count);
      add_free(-(long)run->count);
      add_dirty(chunk, -(long)run->dirty);
      collected += run->dirty;
    }
    if (!only_aged) set_settled(chunk, chunk->dirty); /* the rest is in no group that is free as a whole */
  }
  return count;
}

static void settle_all(void) {
  for (size_t i = 0; i < pages.chunk_count; i++) set_settled(&pages.chunks[i], pages.chunks[i].dirty);
}

/* Marks the runs as what they are now. The system refuses where memory is locked, or anywhere: chunks below get a
 * chance, but no more than a few. */
static void return_runs(struct purge_walk *walk, const struct run *runs, const bool *done, size_t count) {
  bool refused = false;
  for (size_t i = 0; i < count; i++) {
    struct chunk *chunk = &pages.chunks[runs[i].first / CHUNK_PAGES];
    size_t settled = chunk->settled;
    mark_free(runs[i].first, runs[i].count);
    if (done[i]) {
      walk->purged += runs[i].dirty;
    } else {
      mark_dirty(runs[i].first, runs[i].count);
      set_settled(chunk, settled + runs[i].count < chunk->dirty ? settled + runs[i].count : chunk->dirty);
      walk->chunk_from = runs[i].first / CHUNK_PAGES;
      refused = true;
    }
  }
  walk->refusals += refused;
  if (walk->refusals == REFUSALS_MAX) settle_all();
}

/* A copy of the free bits of the chunk that pages_are_touched looks at. Returns its first page, or PAGE_NONE. */
static size_t find_sample(uint64_t free_words[CHUNK_WORDS]) {
  lock_take(&pages.lock, RANK_PAGES);
  size_t count = pages.chunk_count;
  while (count > 0 && (pages.chunks[count - 1].free > CHUNK_PAGES / 8 || huge_may_be_at((count - 1) * CHUNK_PAGES)))
    count--;
  for (size_t i = 0; count != 0 && i < CHUNK_WORDS; i++) free_words[i] = chunk_words(count - 1, false)[i];
  lock_give(&pages.lock, RANK_PAGES);
  return count != 0 ? (count - 1) * CHUNK_PAGES : PAGE_NONE;
}

bool pages_are_touched(void) {
  uint64_t free_words[CHUNK_WORDS];
  unsigned char resident[CHUNK_PAGES];
  size_t first = find_sample(free_words), touched = 0;
  if (first == PAGE_NONE || zone.page_bytes != PAGE_BYTES) return false;
  if (!sys_find_resident(page_address(first), sizeof resident * PAGE_BYTES, resident)) return false;
  for (size_t i = 0; i < CHUNK_PAGES; i++) {
    if (!bits_test(free_words, i)) touched += resident[i] & 1;
  }
  return touched >= CHUNK_PAGES / 8 * 7; /* what is free between blocks would be resident, too */
}

bool pages_break_huge(size_t page) { return !huge_may_be_at(page) || (!is_purging_stopped() && huge_break(page)); }

static bool purge_run(const struct run *run) {
  bool is_chunk = run->count == CHUNK_PAGES;
  if (!is_chunk && !pages_break_huge(run->first)) return false;
  if (!sys_purge(page_address(run->first), run->count * PAGE_BYTES)) return false;
  if (is_chunk) huge_went(run->first);
  return true;
}

/* Purges one batch. The lock is held, but not during the system calls. False: nothing is left that may go. */
static bool purge_batch(struct purge_walk *walk, size_t wanted, bool only_aged) {
  struct run runs[PURGE_BATCH];
  size_t count = collect_dirty(walk, wanted, only_aged, runs);
  if (count == 0) return false;
  lock_give(&pages.lock, RANK_PAGES);
  bool done[PURGE_BATCH];
  for (size_t i = 0; i < count; i++) done[i] = purge_run(&runs[i]);
  lock_take(&pages.lock, RANK_PAGES);
  return_runs(walk, runs, done, count);
  return walk->refusals < REFUSALS_MAX;
}

size_t pages_purge(size_t keep_pages, bool only_aged) {
  lock_take(&pages.lock, RANK_PAGES);
  struct purge_walk walk = {true, pages.chunk_count, 0, 0};
  while (pages.dirty_pages > keep_pages && !is_purging_stopped()) {
    if (!purge_batch(&walk, pages.dirty_pages - keep_pages, only_aged)) break;
  }
  lock_give(&pages.lock, RANK_PAGES);
  return walk.purged;
}

size_t pages_purge_before_fork(void) {
  lock_take(&pages.lock, RANK_PAGES);
  struct purge_walk walk = {false, pages.chunk_count, 0, 0}; /* to break huge pages would take long */
  for (int i = 0; i < BATCHES_BEFORE_FORK && purge_batch(&walk, SIZE_MAX, false); i++) continue;
  lock_give(&pages.lock, RANK_PAGES);
  return walk.purged;
}

void pages_age(void) {
  lock_take(&pages.lock, RANK_PAGES);
  for (size_t i = 0; i < pages.chunk_count; i++) {
    if (pages.chunks[i].dirty == 0) continue; /* then none is aged, either */
    for (size_t word = i * CHUNK_WORDS; word < (i + 1) * CHUNK_WORDS; word++)
      zone.aged_bits[word] = zone.dirty_bits[word];
  }
  lock_give(&pages.lock, RANK_PAGES);
}

/* How many chunks stay beyond the first `count`. */
static size_t spare_chunks(size_t count) {
  size_t ahead = count >> SPARE_HEAP_SHIFT;
  return SPARE_CHUNKS + (ahead < SHRINK_CHUNKS ? ahead : SHRINK_CHUNKS);
}

/* A slice: the system call takes longer the more goes (K2). Returns the pages. */
static size_t shrink_slice(bool keeps_spare) {
  lock_take(&pages.lock, RANK_PAGES);
  size_t count = pages.chunk_count;
  while (count > 0 && pages.chunks[count - 1].free == CHUNK_PAGES && pages.chunks[count - 1].dirty == 0) count--;
  if (keeps_spare) count += spare_chunks(count);
  if (count + SHRINK_CHUNKS < pages.chunk_count) count = pages.chunk_count - SHRINK_CHUNKS;
  size_t end = count * CHUNK_PAGES, gone = count < pages.chunk_count ? (pages.chunk_count - count) * CHUNK_PAGES : 0;
  if (gone != 0) huge_shrinks(end);
  if (gone != 0 && map_shrink(end)) {
    bits_set(zone.free_bits, end, gone, false);
    pages.chunk_count = count;
    if (pages.top_pages > end) {
      add_free(-(long)(pages.top_pages - end));
      __atomic_store_n(&pages.top_pages, end, __ATOMIC_RELAXED);
    }
  } else {
    gone = 0;
  }
  lock_give(&pages.lock, RANK_PAGES);
  return gone;
}

size_t pages_shrink(void) {
  size_t gone = 0, slice;
  do {
    slice = shrink_slice(false);
    gone += slice;
  } while (slice != 0 && !is_purging_stopped());
  return gone;
}

void pages_shrink_in_part(void) { shrink_slice(true); }

struct pages_account pages_account(void) {
  lock_take(&pages.lock, RANK_PAGES);
  struct pages_account account = {pages.top_pages, pages.free_pages, pages.dirty_pages};
  lock_give(&pages.lock, RANK_PAGES);
  return account;
}

/* G1: the longest run of a chunk is within its bound, and not hidden from searches. */
static void check_runs(size_t index, bool dirty_only, size_t bound, const uint32_t lowest[], const char *what) {
  size_t longest;
  search_chunk(index, dirty_only, CHUNK_PAGES + 1, 1, &longest);
  if (longest > bound) fatal_corrupted(what, page_address(index * CHUNK_PAGES));
  if (longest > PAGES_RUN_MAX) longest = PAGES_RUN_MAX;
  if (longest != 0 && lowest[longest] > index) fatal_corrupted(what, &pages.chunks[index]);
}

void pages_check(void) {
  lock_take(&pages.lock, RANK_PAGES);
  size_t dirty = 0, settled = 0, free_pages = 0;
  for (size_t i = 0; i < pages.chunk_count; i++) {
    const struct chunk *chunk = &pages.chunks[i];
    if (bits_count(zone.free_bits, i * CHUNK_PAGES, CHUNK_PAGES) != chunk->free ||
        bits_count(zone.dirty_bits, i * CHUNK_PAGES, CHUNK_PAGES) != chunk->dirty) {
      fatal_corrupted("page heap: counts of a chunk", page_address(i * CHUNK_PAGES));
    }
    check_runs(i, false, chunk->longest_free, pages.lowest_free, "page heap: longest free run");
    check_runs(i, true, chunk->longest_dirty, pages.lowest_dirty, "page heap: longest dirty run");
    for (size_t word = i * CHUNK_WORDS; word < (i + 1) * CHUNK_WORDS; word++) {
      if ((zone.aged_bits[word] & ~zone.dirty_bits[word]) != 0 ||
          (zone.dirty_bits[word] & ~zone.free_bits[word]) != 0) {
        fatal_corrupted("page heap: aged pages are dirty, dirty ones free", page_address(word * 64));
      }
    }
    if (chunk->settled > chunk->dirty) fatal_corrupted("page heap: settled pages of a chunk", chunk);
    dirty += chunk->dirty;
    settled += chunk->settled;
    free_pages += chunk->free;
  }
  free_pages -= pages.chunk_count * CHUNK_PAGES - pages.top_pages;
  if (dirty != pages.dirty_pages || settled != pages.settled_pages || free_pages != pages.free_pages)
    fatal_corrupted("page heap: totals", &pages);
  lock_give(&pages.lock, RANK_PAGES);
}

void pages_lock_all(void) { lock_take_in_fork(&pages.lock, RANK_PAGES); }
void pages_unlock_all(void) { lock_give_in_fork(&pages.lock, RANK_PAGES); }
void pages_reset_locks(void) { lock_reset(&pages.lock); }
