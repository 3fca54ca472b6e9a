#include "slab_join.h"

#include "fatal.h"
#include "pages.h"

enum {
  LOOKS_MAX = 512,      /* records looked at before a slab is made after all, */
  SEARCHES_MAX = 64,    /* of which so many slabs are searched */
  SEARCH_LOOKS = 64,    /* that cost as much as a search */
  YIELD_SEARCHES = 8,   /* where a block costs more, as many slabs as before and one more are made first: */
  SKIPS_MAX = 63,       /* at most so many */
  SLOTS_MAX = 16,       /* of a joined block: so many free ones side by side are rare */
  BEGIN_HEAP_SHIFT = 3, /* holes are used from an eighth of the heap on, */
  END_HEAP_SHIFT = 4,   /* until they are less than a 16th, */
  DONOR_MIN_BYTES = 1 << 18,
  DONOR_HEAP_SHIFT = 8,  /* and those of a class if they are a 256th, */
  DONOR_CLASS_SHIFT = 2, /* and a quarter of its slabs */
  CHURN_MIN = 1024,      /* so many joined in a tick, while half as many came back: better slabs of their own, */
  CHURN_TICKS = 64,      /* for so long */
};

static struct {
  uint64_t donors[2];  /* atomic: a bit for each class whose slabs have many holes */
  uint32_t cursor;     /* atomic: the record looked at last */
  uint32_t joined;     /* atomic: blocks since the last tick */
  uint32_t came_back;  /* atomic: the same */
  uint32_t rest_ticks; /* purge lock */
  bool uses_holes;     /* purge lock */
} joins;
_Static_assert((int)CLASS_COUNT <= 128, "a bit for each class");

static ALWAYS_INLINE bool is_donor(unsigned class_index) {
  return __atomic_load_n(&joins.donors[class_index / 64], __ATOMIC_RELAXED) >> class_index % 64 & 1;
}

static ALWAYS_INLINE bool are_there_donors(void) {
  return (__atomic_load_n(&joins.donors[0], __ATOMIC_RELAXED) | __atomic_load_n(&joins.donors[1], __ATOMIC_RELAXED)) !=
         0;
}

/* ---- when ---- */

struct holes {
  uint64_t slab_bytes;
  uint64_t free_bytes;
};

static struct holes holes_of(unsigned class_index) {
  struct holes holes = {0, 0};
  for (unsigned arena = 0; arena < arena_count(); arena++) {
    const struct snug_counters_class *row = row_of(arena, class_index);
    uint64_t slab_bytes = counter_get(&row->slab_bytes);
    uint64_t used_bytes = counter_get(&row->outstanding_blocks) * class_shapes[class_index].size_bytes;
    holes.slab_bytes += slab_bytes;
    if (slab_bytes > used_bytes) holes.free_bytes += slab_bytes - used_bytes; /* read without the lock */
  }
  return holes;
}

/* Ticks, this one included, for which nothing is joined. Blocks that are joined and freed all the time cost a search
 * and two locks each, and slabs of their own would cost neither. */
static uint32_t ticks_of_rest(void) {
  uint32_t joined = __atomic_exchange_n(&joins.joined, 0, __ATOMIC_RELAXED);
  uint32_t came_back = __atomic_exchange_n(&joins.came_back, 0, __ATOMIC_RELAXED);
  if (joined >= CHURN_MIN && came_back >= joined / 2) return CHURN_TICKS;
  return joins.rest_ticks != 0 ? joins.rest_ticks - 1 : 0;
}

void slab_join_tick(void) {
  uint64_t heap_bytes = (uint64_t)pages_used() * PAGE_BYTES, free_bytes = 0, donors[2] = {0, 0};
  uint64_t least = heap_bytes >> DONOR_HEAP_SHIFT;
  if (least < DONOR_MIN_BYTES) least = DONOR_MIN_BYTES;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    struct holes holes = holes_of(i);
    free_bytes += holes.free_bytes;
    if (holes.free_bytes >= least && holes.free_bytes >= holes.slab_bytes >> DONOR_CLASS_SHIFT)
      donors[i / 64] |= (uint64_t)1 << i % 64;
  }
  uint64_t purged_bytes = counter_get(&snug_counters.slab_purged_bytes);
  free_bytes = free_bytes > purged_bytes ? free_bytes - purged_bytes : 0;
  joins.uses_holes = free_bytes > heap_bytes >> (joins.uses_holes ? END_HEAP_SHIFT : BEGIN_HEAP_SHIFT);
  joins.rest_ticks = ticks_of_rest();
  bool joins_some = joins.uses_holes && joins.rest_ticks == 0;
  for (unsigned i = 0; i < 2; i++) __atomic_store_n(&joins.donors[i], joins_some ? donors[i] : 0, __ATOMIC_RELAXED);
}

/* ---- taking ---- */

/* What is looked for. */
struct wish {
  unsigned arena, class_index;
  size_t requested_bytes; /* by one block */
  bool is_sampled;        /* that was counted */
};

/* How many slots of a smaller class serve for a block (B9); 0: none do. */
static size_t slots_for(unsigned class_index, unsigned donor) {
  size_t size_bytes = class_shapes[class_index].size_bytes, slot_bytes = class_shapes[donor].size_bytes;
  size_t count = (size_bytes + slot_bytes - 1) / slot_bytes, shortest = class_shapes[class_index - 1].size_bytes + 1;
  if (count > SLOTS_MAX || count > class_shapes[donor].slots) return 0;
  return count * slot_bytes * 3 <= round_up(shortest, 16) * 4 ? count : 0;
}

/* Before the first joined block: room for B7. False: no memory. */
static bool make_joints(struct slab *slab) {
  if (slab->joints != 0) return true;
  struct slab *record = slab_record_take();
  if (record == NULL) return false;
  set_bucket(record, BUCKET_NO_SLAB);
  record->free = 0;
  for (size_t i = 0; i < BITMAP_WORDS; i++) record->bits[i] = 0;
  __atomic_store_n(&slab->joints, number_of(record), __ATOMIC_RELEASE);
  return true;
}

static void set_bit(uint64_t *words, size_t bit, bool value) {
  uint64_t mask = (uint64_t)1 << bit % 64, word = words[bit / 64];
  __atomic_store_n(&words[bit / 64], value ? word | mask : word & ~mask, __ATOMIC_RELAXED);
}

/* More or fewer slots are joints. A child that a handler forks amid this (K4) may find the bit in the kind too often,
 * never too seldom. */
static void add_joints(struct slab *slab, long change) {
  struct slab *joints = &slabs.records[slab->joints];
  if (joints->free == 0) slab_announce_joints(slab);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  joints->free = (uint16_t)(joints->free + change);
  if (joints->free == 0) slab_set_kind(slab);
}

static void join(struct slab *slab, size_t first, size_t slots) {
  uint64_t *joints = slabs.records[slab->joints].bits;
  add_joints(slab, (long)slots - 1);
  for (size_t i = first; i < first + slots; i++) {
    set_bit(slab->bits, i, false);
    if (i != first) set_bit(joints, i, true);
  }
  slab->free = (uint16_t)(slab->free - slots);
}

/* Blocks of so many slots each for a class, in pages that hold memory. Returns how many. */
static size_t join_in(struct slab *slab, size_t slots, unsigned class_index, void **blocks, size_t wanted) {
  const struct class_shape *shape = shape_of(slab);
  size_t size_bytes = class_shapes[class_index].size_bytes, alignment = size_bytes & -size_bytes, count = 0;
  if (alignment > PAGE_BYTES) alignment = PAGE_BYTES;
  uint64_t resident[BITMAP_WORDS];
  slab_resident_slots(slab, resident);
  for (size_t end = 0, start; count < wanted; end = start) {
    start = bits_find(resident, end, shape->slots, true);
    if (start == shape->slots) break;
    end = bits_find(resident, start, shape->slots, false);
    while (start + slots <= end && count < wanted) {
      if ((start * shape->size_bytes & (alignment - 1)) != 0) {
        start++;
        continue;
      }
      if (!make_joints(slab)) return count;
      join(slab, start, slots);
      blocks[wanted - ++count] = page_address(slab->page) + start * shape->size_bytes;
      start += slots;
    }
    if (start < end) start = end;
  }
  return count;
}

/* Class of the slab if it may have room, as far as can be seen without its lock, else 0: the fullest are left alone. */
static unsigned donor_of(const struct slab *slab, const struct wish *wish) {
  unsigned bucket = __atomic_load_n(&slab->bucket, __ATOMIC_ACQUIRE);
  if (bucket == 0 || bucket >= BUCKETS || __atomic_load_n(&slab->arena, __ATOMIC_RELAXED) != wish->arena) return 0;
  unsigned donor = __atomic_load_n(&slab->class_index, __ATOMIC_RELAXED);
  return donor < wish->class_index && is_donor(donor) && slots_for(wish->class_index, donor) != 0 ? donor : 0;
}

/* The same under the lock of that class: the record may have been released and taken again for another (bucket is read
 * first, class and arena after). A slab without blocks is about to go, and stays as it is. */
static bool serves(const struct slab *slab, const struct wish *wish, unsigned donor, size_t slots) {
  return __atomic_load_n(&slab->bucket, __ATOMIC_ACQUIRE) < BUCKETS && slab_is_of(slab, wish->arena, donor) &&
         slab->epoch == slabs.epoch && slab->free >= slots && slab->free < shape_of(slab)->slots; /* B3, B4 */
}

static size_t take_from(struct slab *slab, unsigned donor, struct wish *wish, void **blocks, size_t wanted) {
  struct class_head *head = &slabs.heads[wish->arena][donor];
  size_t slots = slots_for(wish->class_index, donor), count = 0;
  if (!lock_try(&head->lock, RANK_CLASS)) return 0; /* K1: no wait */
  if (serves(slab, wish, donor, slots)) count = join_in(slab, slots, wish->class_index, blocks, wanted);
  if (count != 0) {
    slab_list_settle(head, slab);
    struct snug_counters_class *row = row_of(wish->arena, donor); /* it counts slots, and so asks for less in each */
    counter_bump(&row->outstanding_blocks, count * slots);
    counter_bump(&row->taken_blocks, count * slots);
    if (!wish->is_sampled) {
      counter_bump(&row->sampled_requests, 1);
      counter_bump(&row->sampled_requested_bytes, wish->requested_bytes / slots);
    }
    wish->is_sampled = true;
  }
  lock_give(&head->lock, RANK_CLASS);
  return count;
}

/* Where searches find little, they become rare. */
static void note_yield(struct class_head *head, size_t searches, size_t count) {
  if (count * YIELD_SEARCHES >= searches && count != 0) {
    head->join_skips_next = 0;
  } else {
    head->join_skips_next = (uint8_t)(head->join_skips_next * 2 + 1);
    if (head->join_skips_next > SKIPS_MAX) head->join_skips_next = SKIPS_MAX;
  }
  head->join_skips = head->join_skips_next;
}

size_t slab_take_joined(unsigned arena, unsigned class_index, void **blocks, size_t wanted, size_t requested_bytes) {
  size_t record_count = __atomic_load_n(&slabs.record_count, __ATOMIC_RELAXED), left = wanted, searches = 0, looks = 0;
  struct class_head *head = &slabs.heads[arena][class_index];
  struct wish wish = {arena, class_index, requested_bytes, false};
  if (!are_there_donors() || arena_is_reserved(arena)) return 0;
  if (head->join_skips != 0) {
    head->join_skips--;
    return 0;
  }
  if (pages_have_dirty(class_shapes[class_index].pages)) return 0; /* a slab takes no more memory */
  uint32_t number = __atomic_load_n(&joins.cursor, __ATOMIC_RELAXED);
  for (; looks < LOOKS_MAX && searches < SEARCHES_MAX && left != 0; looks++) {
    if (++number >= record_count) number = 1;
    struct slab *slab = &slabs.records[number];
    unsigned donor = donor_of(slab, &wish);
    if (donor == 0) continue;
    left -= take_from(slab, donor, &wish, blocks, left);
    searches++;
  }
  __atomic_store_n(&joins.cursor, number, __ATOMIC_RELAXED);
  note_yield(head, searches + looks / SEARCH_LOOKS, wanted - left);
  if (left != wanted) __atomic_fetch_add(&joins.joined, (uint32_t)(wanted - left), __ATOMIC_RELAXED);
  return wanted - left;
}

/* ---- owning and giving ---- */

static ALWAYS_INLINE bool is_joined(const uint64_t *joints, size_t slot) {
  return __atomic_load_n(&joints[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1;
}

/* First and one past the last slot of the block that the slot belongs to; its slab has a record of joints. */
static void extent_of(const struct slab *slab, size_t slot, size_t *first, size_t *end) {
  const uint64_t *joints = slabs.records[__atomic_load_n(&slab->joints, __ATOMIC_ACQUIRE)].bits;
  *end = slot + 1;
  while (*end < shape_of(slab)->slots && is_joined(joints, *end)) ++*end;
  *first = slot;
  while (*first > 0 && is_joined(joints, *first)) --*first;
}

void slab_give_before_end(struct lock *held) {
  if (held != NULL) lock_give(held, RANK_CLASS);
}

void slab_fatal_interior(const struct slab *slab, const void *p, struct lock *held) {
  const struct class_shape *shape = shape_of(slab);
  char *base = page_address(slab->page);
  size_t first = (size_t)((const char *)p - base) / shape->size_bytes, end = first + 1;
  if (first < shape->slots && __atomic_load_n(&slab->joints, __ATOMIC_ACQUIRE) != 0)
    extent_of(slab, first, &first, &end);
  slab_give_before_end(held);
  fatal_interior_pointer(p, base + first * shape->size_bytes, (end - first) * shape->size_bytes);
}

size_t slab_joined_slots(const struct slab *slab, size_t slot, struct lock *held) {
  size_t first, end;
  extent_of(slab, slot, &first, &end);
  if (unlikely(first != slot))
    slab_fatal_interior(slab, page_address(slab->page) + slot * shape_of(slab)->size_bytes, held);
  return end - slot;
}

void slab_give_joined(struct slab *slab, size_t slot, size_t slots) {
  if (slots == 1) return;
  uint64_t *joints = slabs.records[slab->joints].bits;
  for (size_t i = slot + 1; i < slot + slots; i++) {
    set_bit(joints, i, false);
    set_bit(slab->bits, i, true);
  }
  slab->free = (uint16_t)(slab->free + slots - 1);
  add_joints(slab, 1 - (long)slots);
  __atomic_fetch_add(&joins.came_back, 1, __ATOMIC_RELAXED);
}

void slab_join_check(const struct slab *slab) {
  const struct class_shape *shape = shape_of(slab);
  if (slab->joints == 0) return;
  if (slab->joints >= slabs.record_count) fatal_corrupted("joints of a slab (B7)", slab);
  const struct slab *record = &slabs.records[slab->joints];
  const uint64_t *joints = record->bits;
  if (record->bucket != BUCKET_NO_SLAB || bits_test(joints, 0) ||
      bits_count(joints, 0, BITMAP_WORDS * 64) != record->free) {
    fatal_corrupted("joints of a slab (B7)", slab);
  }
  for (size_t i = 1; i < BITMAP_WORDS * 64; i++) {
    bool are_used = i < shape->slots && !bits_test(slab->bits, i) && !bits_test(slab->bits, i - 1);
    if (bits_test(joints, i) && !are_used) fatal_corrupted("joints of a slab (B8)", slab);
  }
}
