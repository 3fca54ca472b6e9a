#include "bins.h"

#include "arena.h"
#include "counters.h"
#include "fatal.h"
#include "pages.h"

enum {
  SMALL_SLOTS = 8, /* first slots of a bin up to 1 KiB */
  BIG_SLOTS = 12,  /* of a bin above, unless BIG_BIN_MAX_BYTES are fewer */
  REMOTE_MAX = 64,
  BIN_MAX_SLOTS = 512,
  BIN_MAX_BYTES = 32 * 1024,
  BIG_BIN_MAX_BYTES = 72 * 1024,
  GROWTH_MIN_BYTES = 1024 * 1024, /* all bins together may always grow to this */
  GROWTH_HEAP_SHIFT = 7,          /* or to heap / 128 */
  OPENING_MISSES = 8,             /* in a tick: a closed bin opens, blocks of other arenas are collected */
  HOT_MISSES = UINT8_MAX,         /* in a tick: then to GROWTH_MIN_BYTES for each thread that can run at once */
};

/* Offsets inside a cache. The first slots of all bins end before the remote blocks: bins_init. */
enum {
  FIRST_SLOTS_OFFSET = (sizeof(struct cache) + 63) / 64 * 64,
  REMOTE_OFFSET = CACHE_TOUCHED_BYTES - REMOTE_MAX * 8,
  GROWN_SLOTS_OFFSET = CACHE_TOUCHED_BYTES,
};

static struct {
  uint64_t grown_bytes __attribute__((aligned(64))); /* atomic: by which bins exceed their first capacity */
  size_t slots;                                      /* atomic */
  uint16_t first_offset[CLASS_COUNT] __attribute__((aligned(64))); /* where the first slots of a class begin */
  uint16_t grown_offset[CLASS_SMALL_LAST + 1];                     /* where the grown slots of a small class begin */
} all_bins;

/* The capacity of a bin that opens; 0: it grows from one slot. */
static size_t first_capacity(unsigned class_index) {
  size_t size_bytes = class_shapes[class_index].size_bytes;
  if (size_bytes <= 128) return 8;
  if (size_bytes <= 512) return 4;
  if (size_bytes <= 1024) return 2;
  return 0;
}

static size_t max_capacity(unsigned class_index) {
  size_t size_bytes = class_shapes[class_index].size_bytes;
  bool small = class_index <= CLASS_SMALL_LAST;
  size_t slots = (small ? BIN_MAX_BYTES : BIG_BIN_MAX_BYTES) / size_bytes, limit = small ? BIN_MAX_SLOTS : BIG_SLOTS;
  return slots < limit ? slots : limit;
}

void bins_init(void) {
  size_t first = FIRST_SLOTS_OFFSET, grown = GROWN_SLOTS_OFFSET;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    all_bins.first_offset[i] = (uint16_t)first;
    first += (i <= CLASS_SMALL_LAST ? SMALL_SLOTS : max_capacity(i)) * sizeof(void *);
    if (i > CLASS_SMALL_LAST) continue;
    all_bins.grown_offset[i] = (uint16_t)grown;
    grown += max_capacity(i) * sizeof(void *);
  }
  ASSERT(first <= REMOTE_OFFSET && grown <= CACHE_BYTES);
}

bool bins_are_busy(const struct cache *cache) {
  unsigned busy = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) busy |= __atomic_load_n(&cache->bin[i].busy, __ATOMIC_ACQUIRE);
  return busy != 0;
}

/* Around changes of a bin that take more than one store (C5). Meanwhile its blocks are those in `slots`, from
 * change_given to change_end (C7). A fork stops other threads between two instructions, so that the order of stores is
 * all that counts. */
static void begin_change(struct cache *cache, size_t number, void **slots, size_t count) {
  cache->change_slots = slots;
  cache->change_given = 0;
  cache->change_end = (uint32_t)count;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  __atomic_store_n(&cache->changing, (uint32_t)number, __ATOMIC_RELAXED);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void end_change(struct cache *cache) { __atomic_store_n(&cache->changing, 0, __ATOMIC_RELEASE); }

static size_t bin_number(const struct cache *cache, const struct bin *bin) { return (size_t)(bin - cache->bin); }

/* Moves the bin's blocks, if need be, to slots that have room for capacity blocks; its count must not exceed it. */
static void bin_set_capacity(struct cache *cache, unsigned class_index, size_t capacity) {
  struct bin *bin = &cache->bin[class_index];
  size_t count = bin_count(cache, bin), old = bin_capacity(bin), first = first_capacity(class_index);
  ASSERT(count <= capacity && capacity <= max_capacity(class_index));
  bool grown = class_index <= CLASS_SMALL_LAST && capacity > SMALL_SLOTS;
  uint16_t offset = grown ? all_bins.grown_offset[class_index] : all_bins.first_offset[class_index];
  void **from = bin_start(cache, bin), **to = (void **)((char *)cache + offset);
  if (from != to) copy_pointers(to, from, count);
  begin_change(cache, class_index, to, count);
  __atomic_store_n(&bin->low, offset, __ATOMIC_RELAXED);
  bin_set_top(bin, to + count);
  bin->high = (uint16_t)(offset + capacity * sizeof(void *));
  end_change(cache);
  size_t size_bytes = class_shapes[class_index].size_bytes;
  uint64_t before = old > first ? (old - first) * size_bytes : 0,
           after = capacity > first ? (capacity - first) * size_bytes : 0;
  __atomic_fetch_add(&all_bins.grown_bytes, after - before, __ATOMIC_RELAXED);
  __atomic_fetch_add(&all_bins.slots, capacity - old, __ATOMIC_RELAXED);
}

size_t cache_slots(void) { return __atomic_load_n(&all_bins.slots, __ATOMIC_RELAXED); }

/* By how much all bins together may exceed their first capacity for the sake of this one. */
static uint64_t allowed_growth_bytes(const struct bin *bin) {
  uint64_t threads = counter_get(&snug_counters.caches), cpus = arena_cpus();
  uint64_t at_once = threads < cpus ? threads : cpus, least = GROWTH_MIN_BYTES;
  if (bin->misses >= HOT_MISSES && at_once > 1) least *= at_once;
  uint64_t share = (uint64_t)pages_used() * PAGE_BYTES >> GROWTH_HEAP_SHIFT;
  return share > least ? share : least;
}

size_t bin_grow(struct cache *cache, unsigned class_index) {
  struct bin *bin = &cache->bin[class_index];
  size_t capacity = bin_capacity(bin), first = first_capacity(class_index), limit = max_capacity(class_index);
  bool opens = capacity == 0;
  if (bin->misses < (opens ? OPENING_MISSES : 2) || capacity >= limit) return 0;
  size_t wanted = opens && first != 0 ? first : opens ? 1 : capacity * 2;
  if (wanted > limit) wanted = limit;
  uint64_t more = (wanted - capacity) * class_shapes[class_index].size_bytes;
  if (__atomic_load_n(&all_bins.grown_bytes, __ATOMIC_RELAXED) + more > allowed_growth_bytes(bin)) return 0;
  bin_set_capacity(cache, class_index, wanted);
  return wanted - capacity;
}

void bin_fill(struct cache *cache, unsigned class_index, size_t wanted, size_t requested_bytes, bool *contended) {
  struct bin *bin = &cache->bin[class_index];
  void **start = bin_start(cache, bin);
  begin_change(cache, class_index, start, 0);
  slab_take_noting(cache->arena, class_index, start, wanted, requested_bytes, contended, &cache->change_end);
  bin_set_top(bin, start + cache->change_end);
  end_change(cache);
}

bool bin_give(struct cache *cache, struct bin *bin, size_t count) {
  void **start = bin_start(cache, bin), **top = bin->top;
  ASSERT(count <= bin_count(cache, bin)); /* C2 */
  size_t rest = bin_count(cache, bin) - count, moved = rest < count ? rest : count;
  if (count == 0) return false;
  begin_change(cache, bin_number(cache, bin), start, count + rest);
  bool contended = slab_give_noting(start, count, &cache->change_given);
  copy_pointers(start, top - moved, moved); /* the last ones, if not all: what is copied stays where it is (C7) */
  bin_set_top(bin, start + rest);
  end_change(cache);
  return contended;
}

static void set_remote_bytes(struct cache *cache, uint64_t bytes) {
  __atomic_store_n(&cache->remote_bytes, bytes, __ATOMIC_RELAXED);
}

static void **remote_slots(struct cache *cache) { return (void **)((char *)cache + REMOTE_OFFSET); }

static void remote_give(struct cache *cache) {
  begin_change(cache, CLASS_COUNT, remote_slots(cache), cache->remote_count);
  slab_give_noting(remote_slots(cache), cache->remote_count, &cache->change_given);
  cache->remote_count = 0;
  set_remote_bytes(cache, 0);
  end_change(cache);
}

void bins_let_capacity_go(struct cache *cache) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    struct bin *bin = &cache->bin[i];
    size_t capacity = bin_capacity(bin), count = bin_count(cache, bin), first = first_capacity(i);
    if (unlikely(bin->busy)) continue; /* C8 */
    if (bin->misses == 0 && capacity != 0) {
      size_t least = capacity > first ? first : 0, smaller = capacity / 2 > first ? capacity / 2 : least;
      if (count > smaller) bin_give(cache, bin, count - smaller);
      bin_set_capacity(cache, i, smaller);
    }
    bin->misses = 0;
  }
  if (cache->remote_count != 0 && cache->remote_misses <= OPENING_MISSES) remote_give(cache);
  cache->remote_misses = 0;
}

bool bins_put_remote(struct cache *cache, void *block, unsigned class_index) {
  if (class_index > CLASS_SMALL_LAST) return slab_give(&block, 1);
  if (cache->remote_misses < UINT32_MAX) cache->remote_misses++;
  if (cache->remote_misses <= OPENING_MISSES) {
    slab_give(&block, 1); /* another arena is no way out of that one's lock */
    return false;
  }
  ASSERT(cache->remote_count < REMOTE_MAX);
  void **slot = remote_slots(cache) + cache->remote_count;
  if (unlikely(cache->remote_count != 0 && slot[-1] == block)) fatal_double_free(block);
  *slot = block;
  __atomic_store_n(&cache->remote_count, cache->remote_count + 1, __ATOMIC_RELEASE); /* C5, here, too */
  set_remote_bytes(cache, cache->remote_bytes + class_shapes[class_index].size_bytes);
  if (cache->remote_count == REMOTE_MAX) remote_give(cache);
  return false;
}

void bins_drop(struct cache *cache) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) bin_set_top(&cache->bin[i], bin_start(cache, &cache->bin[i]));
  cache_close_bins(cache);
  bins_reset(cache);
}

void bins_reset(struct cache *cache) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    struct bin *bin = &cache->bin[i];
    __atomic_store_n(&bin->low, all_bins.first_offset[i], __ATOMIC_RELAXED);
    bin->high = bin->low;
    bin->busy = 0;
    bin_set_top(bin, bin_start(cache, bin));
  }
  cache->remote_count = cache->remote_misses = 0;
  set_remote_bytes(cache, 0);
  cache->changing = 0;
}

void bins_end_change(struct cache *cache) {
  uint32_t number = cache->changing;
  if (number == 0) return;
  slab_give(cache->change_slots + cache->change_given, cache->change_end - cache->change_given);
  if (number == CLASS_COUNT) {
    cache->remote_count = 0;
  } else {
    bin_set_top(&cache->bin[number], bin_start(cache, &cache->bin[number]));
  }
  cache->changing = 0;
}

void cache_give_all(struct cache *cache) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) bin_give(cache, &cache->bin[i], bin_count(cache, &cache->bin[i]));
  if (cache->remote_count != 0) remote_give(cache);
}

size_t cache_bytes(const struct cache *cache) {
  size_t bytes = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    void **top = __atomic_load_n(&cache->bin[i].top, __ATOMIC_RELAXED);
    uint16_t low = __atomic_load_n(&cache->bin[i].low, __ATOMIC_RELAXED);
    size_t count = (uint16_t)((uint16_t)(uintptr_t)top - low) / sizeof(void *);
    if (count > max_capacity(i)) count = 0; /* it is being moved to other slots */
    bytes += count * class_shapes[i].size_bytes;
  }
  return bytes + __atomic_load_n(&cache->remote_bytes, __ATOMIC_RELAXED);
}

void cache_close_bins(struct cache *cache) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    if (bin_capacity(&cache->bin[i]) != 0) bin_set_capacity(cache, i, 0);
  }
}

void bins_after_fork(void) {
  all_bins.grown_bytes = 0;
  all_bins.slots = 0;
}
