#include "slab.h"

#include <string.h>

#include "arena.h"
#include "bits.h"
#include "counters.h"
#include "fatal.h"
#include "lock.h"
#include "pages.h"
#include "sys.h"

enum {
  BUCKETS = 8, /* 0 holds the fullest slabs */
  BUCKET_FULL = 8,
  BUCKET_PURGING = 9,
  BUCKET_NO_SLAB = 10,
  BITMAP_WORDS = 4,
  TOUCHED = 0x80, /* in slab.touched: a free happened at the tick in the low bits */
  TICK_MASK = 0x7f,
  PURGE_SLABS = 32,   /* slabs taken out of their lists at a time */
  STOP_RECORDS = 512, /* records looked at between two looks at whether purging stops */
};

struct slab {
  uint32_t page;               /* first page; constant while the slab lives */
  uint32_t next, prev;         /* in its list; class lock */
  uint16_t free;               /* class lock */
  uint16_t epoch;              /* class lock */
  uint8_t class_index;         /* constant while the slab lives; atomic, as slab_purge peeks */
  uint8_t arena;               /* class lock of both arenas; atomic, the same */
  uint8_t bucket;              /* class lock */
  uint8_t touched;             /* atomic, the same */
  uint64_t purged;             /* class lock */
  uint64_t bits[BITMAP_WORDS]; /* class lock */
};
_Static_assert(sizeof(struct slab) == SLAB_RECORD_BYTES, "a record is one cache line");
_Static_assert((int)CLASS_COUNT <= (int)KIND_RUN, "kinds of classes and of runs are apart");
_Static_assert((int)CLASS_COUNT <= SNUG_COUNTERS_CLASSES, "rows of the counters");

struct class_head {
  struct lock lock; /* rank CLASS */
  uint32_t first[BUCKETS];
  uint32_t empty;    /* a slab without blocks kept for reuse until the next tick, or 0; it is in its list, too */
  uint32_t nonempty; /* bit per bucket */
} __attribute__((aligned(64)));

static struct {
  struct class_head heads[ARENA_MAX][CLASS_COUNT];
  struct lock records_lock; /* rank RECORDS; guards the table and the free records */
  struct table table;
  struct slab *records;                              /* number 0 is none */
  uint32_t record_count;                             /* atomic: records ever used + 1 */
  uint32_t free_record;                              /* stack through next */
  uint16_t epoch;                                    /* changes at a fork, all locks held */
  uint8_t unseal_shift;                              /* the same */
  uint8_t tick;                                      /* atomic */
  uint32_t cursor;                                   /* of slab_purge; atomic */
  size_t touched_pages __attribute__((aligned(64))); /* atomic: of touched slabs, without their purged ones */
} slabs;

bool slab_init(void) {
  if (zone.reserved_pages == 0) return false;
  slabs.table = table_reserve(zone.reserved_pages * sizeof(struct slab), "snug slab records");
  slabs.records = (struct slab *)slabs.table.start;
  slabs.record_count = 1;
  table_register(&slabs.table);
  if (slabs.records == NULL) return false;
  arena_init();
  return true;
}

size_t slab_record_count(void) { return __atomic_load_n(&slabs.record_count, __ATOMIC_RELAXED); }

size_t slab_touched_pages(void) { return __atomic_load_n(&slabs.touched_pages, __ATOMIC_RELAXED); }

static ALWAYS_INLINE const struct class_shape *shape_of(const struct slab *slab) {
  return &class_shapes[slab->class_index];
}

static ALWAYS_INLINE uint32_t number_of(const struct slab *slab) { return (uint32_t)(slab - slabs.records); }

static ALWAYS_INLINE struct snug_counters_class *row_of(unsigned arena, unsigned class_index) {
  return &snug_counters.classes[arena][class_index];
}

static void add_slabs(struct snug_counters_class *row, int change) {
  __atomic_store_n(&row->slabs, row->slabs + (uint32_t)change, __ATOMIC_RELAXED);
}

/* ---- touched slabs, and lists (all under the class lock) ---- */

static ALWAYS_INLINE bool is_touched(const struct slab *slab) {
  return __atomic_load_n(&slab->touched, __ATOMIC_RELAXED) != 0;
}

/* The pages count under the class lock of the slab they are in; the sum has many writers. */
static void add_touched_pages(size_t count) {
  if (count != 0) __atomic_fetch_add(&slabs.touched_pages, count, __ATOMIC_RELAXED);
}

static size_t unpurged_pages(const struct slab *slab) {
  return shape_of(slab)->pages - (size_t)__builtin_popcountll(slab->purged);
}

static ALWAYS_INLINE void touch(struct slab *slab) {
  if (!is_touched(slab)) add_touched_pages(unpurged_pages(slab));
  uint8_t now = (uint8_t)(TOUCHED | __atomic_load_n(&slabs.tick, __ATOMIC_RELAXED));
  __atomic_store_n(&slab->touched, now, __ATOMIC_RELAXED);
}

static void untouch(struct slab *slab) {
  if (is_touched(slab)) add_touched_pages(-unpurged_pages(slab));
  __atomic_store_n(&slab->touched, 0, __ATOMIC_RELAXED);
}

static void set_purged(struct slab *slab, uint64_t purged) {
  size_t before = unpurged_pages(slab);
  slab->purged = purged;
  if (is_touched(slab)) add_touched_pages(unpurged_pages(slab) - before);
}

static ALWAYS_INLINE unsigned bucket_of(const struct slab *slab) {
  if (slab->free == 0) return BUCKET_FULL;
  return (slab->free - 1u) * shape_of(slab)->bucket_scale >> 16;
}

/* After class and arena, for slab_purge, which looks before it knows whose lock to take. */
static ALWAYS_INLINE void set_bucket(struct slab *slab, unsigned bucket) {
  __atomic_store_n(&slab->bucket, (uint8_t)bucket, __ATOMIC_RELEASE);
}

static void list_remove(struct class_head *head, struct slab *slab) {
  if (slab->bucket >= BUCKETS) return;
  ASSERT(head->nonempty >> slab->bucket & 1);
  ASSERT(slab->epoch == slabs.epoch); /* B3 */
  if (slab->prev != 0) {
    slabs.records[slab->prev].next = slab->next;
  } else {
    head->first[slab->bucket] = slab->next;
    if (slab->next == 0) head->nonempty &= ~(1u << slab->bucket);
  }
  if (slab->next != 0) slabs.records[slab->next].prev = slab->prev;
}

static void list_add(struct class_head *head, struct slab *slab, unsigned bucket) {
  ASSERT(bucket <= BUCKET_PURGING);
  set_bucket(slab, bucket);
  if (bucket >= BUCKETS) return;
  ASSERT(slab->free != 0 && slab->epoch == slabs.epoch); /* B2, B3 */
  slab->prev = 0;
  slab->next = head->first[bucket];
  if (slab->next != 0) slabs.records[slab->next].prev = number_of(slab);
  head->first[bucket] = number_of(slab);
  head->nonempty |= 1u << bucket;
}

/* Moves the slab to the list that B2 asks for. */
static ALWAYS_INLINE void list_settle(struct class_head *head, struct slab *slab) {
  unsigned bucket = bucket_of(slab);
  if (bucket == slab->bucket) return;
  list_remove(head, slab);
  list_add(head, slab, bucket);
}

/* ---- life of a slab ---- */

static struct slab *record_take(void) {
  lock_take(&slabs.records_lock, RANK_RECORDS);
  struct slab *slab = NULL;
  uint32_t number = slabs.free_record;
  if (number != 0) {
    slab = &slabs.records[number];
    slabs.free_record = slab->next;
  } else if (table_commit(&slabs.table, (slabs.record_count + 1) * sizeof(struct slab))) {
    slab = &slabs.records[slabs.record_count];
    __atomic_store_n(&slabs.record_count, slabs.record_count + 1, __ATOMIC_RELEASE);
  }
  lock_give(&slabs.records_lock, RANK_RECORDS);
  return slab;
}

static void record_give(struct slab *slab) {
  ASSERT(!is_touched(slab));
  set_bucket(slab, BUCKET_NO_SLAB);
  lock_take(&slabs.records_lock, RANK_RECORDS);
  slab->next = slabs.free_record;
  slabs.free_record = number_of(slab);
  lock_give(&slabs.records_lock, RANK_RECORDS);
}

static void set_kind(const struct slab *slab) {
  unsigned kind = (unsigned)slab->arena << ARENA_SHIFT | slab->class_index;
  for (size_t i = 0; i < shape_of(slab)->pages; i++) page_set_kind(slab->page + i, kind);
}

/* B6 */
static void claim_pages(const struct slab *slab) {
  for (size_t i = 0; i < shape_of(slab)->pages; i++) zone.owner[slab->page + i] = number_of(slab);
  set_kind(slab);
}

static struct slab *slab_create(unsigned arena, unsigned class_index) {
  ASSERT(arena < ARENA_MAX && class_index != 0 && class_index < CLASS_COUNT);
  const struct class_shape *shape = &class_shapes[class_index];
  struct slab *slab = record_take();
  if (slab == NULL) return NULL;
  bool clean;
  size_t page = pages_take(shape->pages, 1, &clean);
  if (page == PAGE_NONE) {
    record_give(slab);
    return NULL;
  }
  if (!clean && arena_is_reserved(arena)) memset(page_address(page), 0, shape->pages * PAGE_BYTES);
  slab->page = (uint32_t)page;
  slab->free = shape->slots;
  slab->epoch = slabs.epoch;
  __atomic_store_n(&slab->class_index, (uint8_t)class_index, __ATOMIC_RELAXED);
  __atomic_store_n(&slab->arena, (uint8_t)arena, __ATOMIC_RELAXED);
  slab->purged = clean ? bits_mask(0, shape->pages) : 0;
  if (!clean) touch(slab); /* pages that stay unused can go */
  for (size_t i = 0; i < BITMAP_WORDS; i++) slab->bits[i] = 0;
  bits_set(slab->bits, 0, shape->slots, true);
  claim_pages(slab);
  struct snug_counters_class *row = row_of(arena, class_index);
  row->size_bytes = shape->size_bytes;
  add_slabs(row, 1);
  counter_bump(&row->slab_bytes, (uint64_t)shape->pages * PAGE_BYTES);
  counter_add(&snug_counters.slab_purged_bytes, (uint64_t)__builtin_popcountll(slab->purged) * PAGE_BYTES);
  list_add(&slabs.heads[arena][class_index], slab, bucket_of(slab));
  return slab;
}

/* The slab is in no list and has no blocks. */
static void slab_release(struct slab *slab) {
  const struct class_shape *shape = shape_of(slab);
  ASSERT(slab->free == shape->slots && slab->bucket != BUCKET_NO_SLAB);
  struct snug_counters_class *row = row_of(slab->arena, slab->class_index);
  add_slabs(row, -1);
  counter_bump(&row->slab_bytes, -(uint64_t)shape->pages * PAGE_BYTES);
  counter_subtract(&snug_counters.slab_purged_bytes, (uint64_t)__builtin_popcountll(slab->purged) * PAGE_BYTES);
  size_t page = slab->page;
  uint64_t purged = slab->purged;
  untouch(slab);
  record_give(slab);
  for (size_t i = 0; i < shape->pages; i++) page_set_kind(page + i, 0); /* M2: they are ours still */
  pages_give(page, shape->pages, purged);
}

/* Words are stored whole: slab_block_size reads one without the lock. */
static ALWAYS_INLINE void set_word(struct slab *slab, size_t i, uint64_t word) {
  __atomic_store_n(&slab->bits[i], word, __ATOMIC_RELAXED);
}

/* ---- taking ---- */

/* First and one past the last slot that touch page i of a slab. */
static ALWAYS_INLINE void slots_of_page(const struct class_shape *shape, size_t i, size_t *first, size_t *end) {
  *first = (uint64_t)(i * PAGE_BYTES) * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT;
  *end = ((uint64_t)((i + 1) * PAGE_BYTES - 1) * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT) + 1;
  if (*end > shape->slots) *end = shape->slots;
}

/* Takes up to count of the slots in words, lowest first; stores them downwards from blocks[count - 1]. */
static size_t take_slots(struct slab *slab, const uint64_t words[BITMAP_WORDS], void **blocks, size_t count) {
  char *base = page_address(slab->page);
  size_t size_bytes = shape_of(slab)->size_bytes, left = count;
  for (size_t i = 0; i < BITMAP_WORDS && left != 0; i++) {
    uint64_t word = words[i], taken = 0;
    while (word != 0 && left != 0) {
      blocks[--left] = base + (i * 64 + bits_lowest(word)) * size_bytes;
      taken |= word & -word;
      word &= word - 1;
    }
    set_word(slab, i, slab->bits[i] & ~taken);
  }
  slab->free = (uint16_t)(slab->free - (count - left));
  return count - left;
}

/* The same for a slab with purged pages: prefers slots whose pages hold memory, and keeps B5. */
static NEVER_INLINE size_t take_slots_purged(struct slab *slab, void **blocks, size_t count) {
  const struct class_shape *shape = shape_of(slab);
  uint64_t resident[BITMAP_WORDS];
  for (size_t i = 0; i < BITMAP_WORDS; i++) resident[i] = slab->bits[i];
  for (uint64_t rest = slab->purged; rest != 0; rest &= rest - 1) {
    size_t first, end;
    slots_of_page(shape, bits_lowest(rest), &first, &end);
    if (first < end) bits_set(resident, first, end - first, false);
  }
  size_t taken = take_slots(slab, resident, blocks, count);
  if (taken == count) return taken;
  size_t more = take_slots(slab, slab->bits, blocks, count - taken);
  uint64_t purged = slab->purged;
  for (size_t i = count - taken - more; i < count - taken; i++) {
    size_t offset = (size_t)((char *)blocks[i] - page_address(slab->page));
    size_t first_page = offset / PAGE_BYTES, last_page = (offset + shape->size_bytes - 1) / PAGE_BYTES;
    purged &= ~bits_mask((unsigned)first_page, (unsigned)(last_page - first_page + 1));
  }
  uint64_t gone = (uint64_t)__builtin_popcountll(slab->purged & ~purged);
  counter_subtract(&snug_counters.slab_purged_bytes, gone * PAGE_BYTES);
  set_purged(slab, purged);
  return taken + more;
}

/* Takes over a partly used slab of an arena that nobody uses any more. */
static struct slab *slab_adopt(unsigned arena, unsigned class_index) {
  if (arena_is_reserved(arena)) return NULL;
  for (unsigned other = 0; other < arena_count(); other++) {
    struct class_head *head = &slabs.heads[other][class_index];
    if (other == arena || arena_users(other) != 0) continue;
    if (!lock_try(&head->lock, RANK_CLASS)) continue; /* K1: no wait */
    struct slab *slab = NULL;
    bool joined = arena_users(other) != 0; /* before it took the lock */
    if (head->nonempty != 0 && !joined) {
      slab = &slabs.records[head->first[bits_lowest(head->nonempty)]];
      list_remove(head, slab);
      if (head->empty == number_of(slab)) head->empty = 0;
      const struct class_shape *shape = shape_of(slab);
      struct snug_counters_class *from = row_of(other, class_index), *to = row_of(arena, class_index);
      uint64_t used = shape->slots - slab->free;
      add_slabs(from, -1);
      add_slabs(to, 1);
      to->size_bytes = shape->size_bytes;
      counter_bump(&from->slab_bytes, -(uint64_t)shape->pages * PAGE_BYTES);
      counter_bump(&to->slab_bytes, (uint64_t)shape->pages * PAGE_BYTES);
      counter_bump(&from->outstanding_blocks, -used);
      counter_bump(&to->outstanding_blocks, used);
      __atomic_store_n(&slab->arena, (uint8_t)arena, __ATOMIC_RELAXED);
      set_kind(slab); /* its blocks are in use, and others read their owner */
    }
    lock_give(&head->lock, RANK_CLASS);
    if (slab != NULL) {
      list_add(&slabs.heads[arena][class_index], slab, bucket_of(slab));
      return slab;
    }
  }
  return NULL;
}

size_t slab_take(unsigned arena, unsigned class_index, void **blocks, size_t wanted, size_t requested_bytes,
                 bool *contended) {
  ASSERT(wanted != 0 && requested_bytes <= class_shapes[class_index].size_bytes);
  struct class_head *head = &slabs.heads[arena][class_index];
  size_t left = wanted;
  if (lock_take(&head->lock, RANK_CLASS)) *contended = true;
  while (left != 0) {
    struct slab *slab;
    if (head->nonempty != 0) {
      slab = &slabs.records[head->first[bits_lowest(head->nonempty)]];
    } else {
      if (left != wanted) break; /* enough for now: no new slab for the rest of a batch */
      slab = slab_adopt(arena, class_index);
      if (slab == NULL) slab = slab_create(arena, class_index);
      if (slab == NULL) break;
    }
    if (head->empty == number_of(slab)) head->empty = 0;
    ASSERT(slab->class_index == class_index && slab->arena == arena && slab->bucket < BUCKETS);
    size_t count = slab->free < left ? slab->free : left;
    void **into = blocks + (left - count);
    size_t taken = slab->purged == 0 ? take_slots(slab, slab->bits, into, count) : take_slots_purged(slab, into, count);
    if (unlikely(taken != count)) fatal_corrupted("free slots of a slab", slab);
    left -= count;
    list_settle(head, slab);
  }
  struct snug_counters_class *row = row_of(arena, class_index);
  counter_bump(&row->outstanding_blocks, wanted - left);
  counter_bump(&row->taken_blocks, wanted - left);
  if (left != wanted) {
    counter_bump(&row->sampled_requests, 1);
    counter_bump(&row->sampled_requested_bytes, requested_bytes);
  }
  lock_give(&head->lock, RANK_CLASS);
  for (size_t i = 0; left != 0 && i < wanted - left; i++) blocks[i] = blocks[i + left];
  return wanted - left;
}

/* ---- giving ---- */

/* After frees: the slab's list, or its end. */
static void settle_after_give(struct class_head *head, struct slab *slab) {
  bool empty = slab->free == shape_of(slab)->slots;
  if (unlikely(slab->bucket == BUCKET_PURGING)) return; /* B4 */
  if (unlikely(slab->epoch != slabs.epoch)) {           /* B3 */
    if (empty) {
      slab_release(slab);
    } else if (slab->free >= shape_of(slab)->slots >> slabs.unseal_shift) {
      slab->epoch = slabs.epoch;
      list_add(head, slab, bucket_of(slab));
    }
    return;
  }
  if (!empty || head->empty == 0) {
    list_settle(head, slab);
    if (empty) head->empty = number_of(slab);
    return;
  }
  if (head->empty == number_of(slab)) return;
  list_remove(head, slab);
  slab_release(slab);
}

/* Marks one slot free. The class lock is held. */
static ALWAYS_INLINE void give_one(struct slab *slab, const struct class_shape *shape, char *base, const void *block) {
  size_t offset = (size_t)((const char *)block - base);
  size_t slot = (uint64_t)offset * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT;
  if (unlikely(slot * shape->size_bytes != offset || slot >= shape->slots)) {
    fatal_interior_pointer(block, base + slot * shape->size_bytes, shape->size_bytes);
  }
  uint64_t bit = (uint64_t)1 << (slot % 64);
  if (unlikely(slab->bits[slot / 64] & bit)) fatal_double_free(block);
  set_word(slab, slot / 64, slab->bits[slot / 64] | bit);
  slab->free++;
  ASSERT(slab->free <= shape->slots);
}

static ALWAYS_INLINE struct slab *slab_of_page(size_t page) {
  uint32_t number = zone.owner[page];
  if (unlikely(number == 0 || number >= slab_record_count())) {
    fatal_corrupted("owner of a page", page_address(page));
  }
  return &slabs.records[number];
}

static unsigned checked_kind(const void *block) {
  size_t page = page_index(block);
  if (unlikely(page >= zone_pages())) fatal_foreign_pointer(block);
  unsigned kind = page_kind(page);
  if (unlikely(!is_class(kind) || kind_arena(kind) >= ARENA_MAX)) fatal_foreign_pointer(block);
  return kind;
}

bool slab_give(void *const *blocks, size_t count) {
  bool contended = false;
  size_t i = 0;
  while (i < count) {
    unsigned kind = checked_kind(blocks[i]);
    unsigned arena = kind_arena(kind), class_index = kind_class(kind);
    const struct class_shape *shape = &class_shapes[class_index];
    struct class_head *head = &slabs.heads[arena][class_index];
    contended |= lock_take(&head->lock, RANK_CLASS);
    size_t page = page_index(blocks[i]), start = i;
    struct slab *slab = NULL;
    char *base = NULL;
    while (page < zone_pages() && page_kind(page) == kind) { /* false at once when the slab was adopted meanwhile */
      struct slab *next = slab_of_page(page);
      if (next != slab) {
        if (slab != NULL) settle_after_give(head, slab);
        slab = next;
        base = page_address(slab->page);
        if (unlikely(slab->class_index != class_index)) fatal_corrupted("slab record", slab);
        touch(slab);
      }
      give_one(slab, shape, base, blocks[i]);
      if (++i == count) break;
      page = page_index(blocks[i]);
    }
    if (slab != NULL) settle_after_give(head, slab);
    counter_bump(&row_of(arena, class_index)->outstanding_blocks, -(uint64_t)(i - start));
    lock_give(&head->lock, RANK_CLASS);
  }
  return contended;
}

const void *slab_first_block(const void *p) { return page_address(slab_of_page(page_index(p))->page); }

bool slab_is_taken(const void *p) {
  const struct slab *slab = slab_of_page(page_index(p));
  size_t slot = (size_t)((const char *)p - page_address(slab->page)) / shape_of(slab)->size_bytes;
  return !(__atomic_load_n(&slab->bits[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1);
}

size_t slab_block_size(const void *p) {
  const struct slab *slab = slab_of_page(page_index(p));
  const struct class_shape *shape = shape_of(slab);
  char *base = page_address(slab->page);
  size_t offset = (size_t)((const char *)p - base);
  size_t slot = (uint64_t)offset * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT;
  if (unlikely(slot * shape->size_bytes != offset || slot >= shape->slots)) {
    fatal_interior_pointer(p, base + slot * shape->size_bytes, shape->size_bytes);
  }
  uint64_t word =
      __atomic_load_n(&slab->bits[slot / 64], __ATOMIC_RELAXED); /* neighbours may change; our bit is ours */
  if (unlikely(word >> (slot % 64) & 1)) fatal_double_free(p);
  return shape->size_bytes;
}

/* ---- purging ---- */

struct purge_item {
  struct slab *slab;
  uint64_t idle; /* pages to give back */
};

/* Pages of the slab that no block touches. */
static uint64_t untouched_pages(const struct slab *slab) {
  const struct class_shape *shape = shape_of(slab);
  uint64_t untouched = 0;
  for (size_t i = 0; i < shape->pages; i++) {
    size_t first, end;
    slots_of_page(shape, i, &first, &end);
    if (first >= end || bits_count(slab->bits, first, end - first) == end - first) untouched |= (uint64_t)1 << i;
  }
  return untouched;
}

/* Pages of the slab that could be given back and may hold memory. Where the system's pages are larger than ours, one of
 * ours that was touched again brings its whole group back, and only untouched groups can go. */
static uint64_t purgeable_pages(const struct slab *slab) {
  size_t ratio = zone.page_bytes / PAGE_BYTES;
  uint64_t untouched = untouched_pages(slab), whole = 0;
  if (ratio == 1) return untouched & ~slab->purged;
  for (size_t i = round_up(slab->page, ratio) - slab->page; i + ratio <= 64; i += ratio) {
    uint64_t mask = bits_mask((unsigned)i, (unsigned)ratio);
    if ((untouched & mask) == mask && (slab->purged & mask) != mask) whole |= mask;
  }
  return whole;
}

static bool is_of(const struct slab *slab, unsigned arena, unsigned class_index) {
  return __atomic_load_n(&slab->class_index, __ATOMIC_RELAXED) == class_index &&
         __atomic_load_n(&slab->arena, __ATOMIC_RELAXED) == arena;
}

/* If the slab is due, takes it out of its list (B4) and says which pages can go. */
static bool purge_begin(struct slab *slab, size_t min_class_bytes, bool only_aged, struct purge_item *item) {
  uint8_t touched = __atomic_load_n(&slab->touched, __ATOMIC_RELAXED);
  if (touched == 0) return false;
  uint8_t age = (uint8_t)((__atomic_load_n(&slabs.tick, __ATOMIC_RELAXED) - touched) & TICK_MASK);
  if (only_aged && age < 2) return false;
  unsigned class_index = __atomic_load_n(&slab->class_index, __ATOMIC_RELAXED);
  unsigned arena = __atomic_load_n(&slab->arena, __ATOMIC_RELAXED);
  if (class_shapes[class_index].size_bytes < min_class_bytes) return false;
  struct class_head *head = &slabs.heads[arena][class_index];
  bool due = false;
  lock_take(&head->lock, RANK_CLASS);
  /* The record may have been released and taken again for another class: bucket is read first, class and arena after.
   */
  if (__atomic_load_n(&slab->bucket, __ATOMIC_ACQUIRE) < BUCKET_PURGING && is_of(slab, arena, class_index) &&
      is_touched(slab)) {
    untouch(slab);
    if (slab->free == 0) { /* refilled: nothing can go */
    } else if (head->empty == number_of(slab)) {
      head->empty = 0;
      list_remove(head, slab);
      slab_release(slab);
    } else if (slab->epoch != slabs.epoch && slab->free == shape_of(slab)->slots) {
      slab_release(slab); /* it was kept empty when it was sealed */
    } else {
      item->slab = slab;
      item->idle = purgeable_pages(slab);
      due = item->idle != 0;
      if (due && slab->epoch == slabs.epoch) list_remove(head, slab);
      if (due) set_bucket(slab, BUCKET_PURGING);
    }
  }
  lock_give(&head->lock, RANK_CLASS);
  return due;
}

/* Gives the pages back; no lock is held and nobody else serves from the slab. Returns those that went. */
static uint64_t purge_pages(const struct purge_item *item) {
  uint64_t gone = 0;
  for (size_t i = bits_find(&item->idle, 0, 64, true); i < 64;) {
    size_t end = bits_find(&item->idle, i, 64, false);
    if (sys_purge(page_address(item->slab->page + i), (end - i) * PAGE_BYTES)) {
      gone |= bits_mask((unsigned)i, (unsigned)(end - i));
    }
    i = bits_find(&item->idle, end, 64, true);
  }
  return gone;
}

static void purge_end(const struct purge_item *item, uint64_t gone) {
  struct slab *slab = item->slab;
  ASSERT(slab->bucket == BUCKET_PURGING && (gone & ~item->idle) == 0); /* B4 */
  struct class_head *head = &slabs.heads[slab->arena][slab->class_index];
  lock_take(&head->lock, RANK_CLASS);
  ASSERT((gone & ~untouched_pages(slab)) == 0); /* B5: nobody took from it meanwhile */
  counter_add(&snug_counters.slab_purged_bytes, (uint64_t)__builtin_popcountll(gone & ~slab->purged) * PAGE_BYTES);
  set_purged(slab, slab->purged | gone);
  if (slab->free == shape_of(slab)->slots) {
    slab_release(slab);
  } else {
    list_add(head, slab, slab->epoch == slabs.epoch ? bucket_of(slab) : BUCKET_FULL);
  }
  lock_give(&head->lock, RANK_CLASS);
}

size_t slab_purge(size_t min_class_bytes, bool only_aged, size_t max_records, size_t max_pages) {
  struct purge_item items[PURGE_SLABS];
  size_t record_count = slab_record_count(), purged = 0;
  if (max_records > record_count) max_records = record_count;
  size_t number = __atomic_load_n(&slabs.cursor, __ATOMIC_RELAXED);
  while (max_records > 0 && purged < max_pages && !is_purging_stopped()) {
    size_t count = 0, chosen = 0;
    for (size_t looks = 0; max_records > 0 && count < PURGE_SLABS && looks < STOP_RECORDS; max_records--, looks++) {
      if (chosen >= max_pages - purged) break;
      if (++number >= record_count) number = 1;
      if (number >= record_count) return purged; /* no slab yet */
      if (!purge_begin(&slabs.records[number], min_class_bytes, only_aged, &items[count])) continue;
      chosen += (size_t)__builtin_popcountll(items[count++].idle);
    }
    for (size_t i = 0; i < count; i++) {
      uint64_t gone = purge_pages(&items[i]);
      purged += (size_t)__builtin_popcountll(gone);
      purge_end(&items[i], gone);
    }
  }
  __atomic_store_n(&slabs.cursor, (uint32_t)number, __ATOMIC_RELAXED);
  return purged;
}

void slab_tick(void) {
  uint8_t next = (uint8_t)((__atomic_load_n(&slabs.tick, __ATOMIC_RELAXED) + 1) & TICK_MASK);
  __atomic_store_n(&slabs.tick, next, __ATOMIC_RELAXED);
}

/* ---- fork, checks ---- */

void slab_seal(unsigned unseal_shift) {
  if (slabs.epoch == UINT16_MAX) return; /* no number left to tell old slabs by */
  slabs.epoch++;
  slabs.unseal_shift = (uint8_t)unseal_shift;
  for (unsigned arena = 0; arena < arena_count(); arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) {
      struct class_head *head = &slabs.heads[arena][i];
      if (head->nonempty == 0 && head->empty == 0) continue;
      for (unsigned bucket = 0; bucket < BUCKETS; bucket++) head->first[bucket] = 0;
      head->nonempty = 0;
      head->empty = 0;
    }
  }
}

void slab_lock_all(void) {
  for (unsigned arena = 0; arena < arena_count(); arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) lock_take_in_fork(&slabs.heads[arena][i].lock, RANK_CLASS);
  }
  lock_take_in_fork(&slabs.records_lock, RANK_RECORDS);
}

void slab_unlock_all(void) {
  lock_give_in_fork(&slabs.records_lock, RANK_RECORDS);
  for (unsigned arena = 0; arena < arena_count(); arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) lock_give_in_fork(&slabs.heads[arena][i].lock, RANK_CLASS);
  }
}

void slab_reset_locks(void) {
  lock_reset(&slabs.records_lock);
  for (unsigned arena = 0; arena < arena_count(); arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) lock_reset(&slabs.heads[arena][i].lock);
  }
}

static void check_slab(const struct slab *slab) {
  const struct class_shape *shape = shape_of(slab);
  if (slab->class_index == 0 || slab->class_index >= CLASS_COUNT) fatal_corrupted("class of a slab", slab);
  if (bits_count(slab->bits, 0, shape->slots) != slab->free) fatal_corrupted("free slots of a slab (B1)", slab);
  if (shape->slots < 256 && bits_count(slab->bits, shape->slots, 256 - shape->slots) != 0) {
    fatal_corrupted("bits above the slots of a slab (B1)", slab);
  }
  bool sealed = slab->epoch != slabs.epoch;
  if (!sealed && slab->bucket != BUCKET_PURGING && slab->bucket != bucket_of(slab)) {
    fatal_corrupted("list of a slab (B2)", slab);
  }
  if (slab->purged & ~untouched_pages(slab)) fatal_corrupted("purged pages of a slab (B5)", slab);
  for (size_t i = 0; i < shape->pages; i++) {
    if (page_kind(slab->page + i) != ((unsigned)slab->arena << ARENA_SHIFT | slab->class_index) ||
        zone.owner[slab->page + i] != number_of(slab)) {
      fatal_corrupted("pages of a slab (B6)", slab);
    }
  }
}

/* Walks the lists of a class: every member is where it says. Returns the members. */
static size_t check_lists(unsigned arena, unsigned class_index) {
  const struct class_head *head = &slabs.heads[arena][class_index];
  size_t members = 0;
  for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
    uint32_t previous = 0;
    if ((head->first[bucket] != 0) != (head->nonempty >> bucket & 1)) fatal_corrupted("mark of a list", head);
    for (uint32_t number = head->first[bucket]; number != 0; number = slabs.records[number].next) {
      const struct slab *slab = &slabs.records[number];
      if (slab->prev != previous || slab->bucket != bucket || slab->class_index != class_index ||
          slab->arena != arena) {
        fatal_corrupted("list of a class", slab);
      }
      previous = number;
      members++;
    }
  }
  return members;
}

size_t slab_check(void) {
  size_t seen = 0, listed = 0, expected = 0, touched = 0;
  slab_lock_all();
  for (uint32_t number = 1; number < slab_record_count(); number++) {
    const struct slab *slab = &slabs.records[number];
    if (slab->page == 0 && slab->class_index == 0) continue; /* never used */
    if (slab->bucket == BUCKET_NO_SLAB) continue;
    check_slab(slab);
    seen++;
    touched += is_touched(slab) ? unpurged_pages(slab) : 0;
    expected += slab->epoch == slabs.epoch && slab->bucket < BUCKETS;
  }
  for (unsigned arena = 0; arena < arena_count(); arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) listed += check_lists(arena, i);
  }
  if (listed != expected) fatal_corrupted("lists of slabs", &slabs);
  if (touched != slab_touched_pages()) fatal_corrupted("touched pages of slabs", &slabs);
  slab_unlock_all();
  return seen;
}
