#include "slab.h"

#include <string.h>

#include "bits.h"
#include "counters.h"
#include "fatal.h"
#include "lock.h"
#include "pages.h"
#include "slab_join.h"
#include "slab_record.h"

_Static_assert(sizeof(struct slab) == SLAB_RECORD_BYTES, "what gauges count with");

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

/* Words are stored whole: slab_block_size reads one without the lock. */
static ALWAYS_INLINE void set_word(struct slab *slab, size_t i, uint64_t word) {
  __atomic_store_n(&slab->bits[i], word, __ATOMIC_RELAXED);
}

/* ---- taking ---- */

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
  slab_resident_slots(slab, resident);
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
  slab_set_purged(slab, purged);
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
    bool has_users = arena_users(other) != 0; /* since a moment before it took the lock */
    if (head->nonempty != 0 && !has_users) {
      slab = &slabs.records[head->first[bits_lowest(head->nonempty)]];
      slab_list_remove(head, slab);
      if (head->empty == number_of(slab)) head->empty = 0;
      const struct class_shape *shape = shape_of(slab);
      struct snug_counters_class *from = row_of(other, class_index), *to = row_of(arena, class_index);
      uint64_t used = shape->slots - slab->free;
      slab_add_count(from, -1);
      slab_add_count(to, 1);
      to->size_bytes = shape->size_bytes;
      counter_bump(&from->slab_bytes, -(uint64_t)shape->pages * PAGE_BYTES);
      counter_bump(&to->slab_bytes, (uint64_t)shape->pages * PAGE_BYTES);
      counter_bump(&from->outstanding_blocks, -used);
      counter_bump(&to->outstanding_blocks, used);
      __atomic_store_n(&slab->arena, (uint8_t)arena, __ATOMIC_RELAXED);
      slab_set_kind(slab); /* its blocks are in use, and others read their owner */
    }
    lock_give(&head->lock, RANK_CLASS);
    if (slab != NULL) {
      slab_list_add(&slabs.heads[arena][class_index], slab, bucket_of(slab));
      return slab;
    }
  }
  return NULL;
}

/* Joined blocks that serve for a class: calloc's fast path zeroes as much as the class has. They are the caller's by
 * now: a write to memory may take as long as whoever watches it likes, and no lock waits for that. */
static COLD void zero_beyond_class(unsigned class_index, void *const *blocks, size_t count) {
  size_t size_bytes = class_shapes[class_index].size_bytes;
  for (size_t i = 0; i < count; i++) memset((char *)blocks[i] + size_bytes, 0, slab_block_size(blocks[i]) - size_bytes);
}

void slab_take_noting(unsigned arena, unsigned class_index, void **blocks, size_t wanted, size_t requested_bytes,
                      bool *contended, uint32_t *taken) {
  ASSERT(wanted != 0 && requested_bytes <= class_shapes[class_index].size_bytes);
  struct class_head *head = &slabs.heads[arena][class_index];
  size_t left = wanted, joined = 0;
  if (lock_take(&head->lock, RANK_CLASS)) *contended = true;
  while (left != 0) {
    struct slab *slab;
    if (head->nonempty != 0) {
      slab = &slabs.records[head->first[bits_lowest(head->nonempty)]];
    } else {
      if (left != wanted) break; /* enough for now: no new slab for the rest of a batch */
      slab = slab_adopt(arena, class_index);
      if (slab == NULL) joined = slab_take_joined(arena, class_index, blocks, wanted, requested_bytes);
      if (joined != 0) break;
      if (slab == NULL) slab = slab_create(arena, class_index);
      if (slab == NULL) break;
    }
    if (head->empty == number_of(slab)) head->empty = 0;
    ASSERT(slab->class_index == class_index && slab->arena == arena && slab->bucket < BUCKETS);
    size_t count = slab->free < left ? slab->free : left;
    void **into = blocks + (left - count);
    size_t found = slab->purged == 0 ? take_slots(slab, slab->bits, into, count) : take_slots_purged(slab, into, count);
    if (unlikely(found != count)) fatal_corrupted("free slots of a slab", slab);
    left -= count;
    slab_list_settle(head, slab);
  }
  struct snug_counters_class *row = row_of(arena, class_index);
  counter_bump(&row->outstanding_blocks, wanted - left);
  counter_bump(&row->taken_blocks, wanted - left);
  if (left != wanted) {
    counter_bump(&row->sampled_requests, 1);
    counter_bump(&row->sampled_requested_bytes, requested_bytes);
  }
  left -= joined;
  for (size_t i = 0; left != 0 && i < wanted - left; i++) blocks[i] = blocks[i + left];
  __atomic_store_n(taken, (uint32_t)(wanted - left), __ATOMIC_RELEASE);
  lock_give(&head->lock, RANK_CLASS);
  if (unlikely(joined != 0)) zero_beyond_class(class_index, blocks, joined);
}

size_t slab_take(unsigned arena, unsigned class_index, void **blocks, size_t wanted, size_t requested_bytes,
                 bool *contended) {
  uint32_t taken;
  slab_take_noting(arena, class_index, blocks, wanted, requested_bytes, contended, &taken);
  return taken;
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
      slab_list_add(head, slab, bucket_of(slab));
    }
    return;
  }
  if (!empty || head->empty == 0) {
    slab_list_settle(head, slab);
    if (empty) head->empty = number_of(slab);
    return;
  }
  if (head->empty == number_of(slab)) return;
  slab_list_remove(head, slab);
  slab_release(slab);
}

/* The slot that begins at p; ends the process when none does, and first gives `held`, if it is not NULL. */
static ALWAYS_INLINE size_t slot_at(const struct slab *slab, const struct class_shape *shape, const char *base,
                                    const void *p, struct lock *held) {
  size_t offset = (size_t)((const char *)p - base);
  size_t slot = (uint64_t)offset * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT;
  if (unlikely(slot * shape->size_bytes != offset || slot >= shape->slots)) slab_fatal_interior(slab, p, held);
  return slot;
}

static _Noreturn COLD NEVER_INLINE void fatal_second_free(const void *block, struct lock *held) {
  slab_give_before_end(held);
  fatal_double_free(block);
}

/* Marks the slot of the block free. The class lock is held. */
static ALWAYS_INLINE void mark_slot_free(struct slab *slab, const struct class_shape *shape, size_t slot,
                                         const void *block, struct lock *held) {
  uint64_t bit = (uint64_t)1 << (slot % 64);
  if (unlikely(slab->bits[slot / 64] & bit)) fatal_second_free(block, held);
  set_word(slab, slot / 64, slab->bits[slot / 64] | bit);
  slab->free++;
  ASSERT(slab->free <= shape->slots);
}

/* Gives a run of blocks of one slab that has joints. Returns how many; *slots are those that they had. */
static NEVER_INLINE size_t give_joined(struct slab *slab, void *const *blocks, size_t count, size_t *slots,
                                       struct lock *held) {
  const struct class_shape *shape = shape_of(slab);
  char *base = page_address(slab->page);
  size_t i = 0;
  do {
    size_t slot = slot_at(slab, shape, base, blocks[i], held), joined = slab_joined_slots(slab, slot, held);
    mark_slot_free(slab, shape, slot, blocks[i], held);
    slab_give_joined(slab, slot, joined);
    *slots += joined;
    i++;
  } while (i < count && (size_t)((char *)blocks[i] - base) < shape->pages * PAGE_BYTES);
  return i;
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

bool slab_give_noting(void *const *blocks, size_t count, uint32_t *given) {
  bool contended = false;
  size_t i = 0;
  while (i < count) {
    unsigned kind = checked_kind(blocks[i]);
    unsigned arena = kind_arena(kind), class_index = kind_class(kind);
    const struct class_shape *shape = &class_shapes[class_index];
    struct class_head *head = &slabs.heads[arena][class_index];
    contended |= lock_take(&head->lock, RANK_CLASS);
    size_t page = page_index(blocks[i]), start = i, more_slots = 0;
    struct slab *slab = NULL;
    char *base = NULL;
    while (page < zone_pages() && (page_kind(page) | KIND_JOINTS) == (kind | KIND_JOINTS)) {
      /* never, when the slab was adopted meanwhile: once more */
      struct slab *next = slab_of_page(page);
      if (next != slab) {
        if (slab != NULL) settle_after_give(head, slab);
        slab = next;
        base = page_address(slab->page);
        if (unlikely(slab->class_index != class_index)) fatal_corrupted("slab record", slab);
        touch(slab);
      }
      if (unlikely(kind_has_joints(page_kind(page)))) {
        size_t slots = 0, given = give_joined(slab, blocks + i, count - i, &slots, &head->lock);
        i += given;
        more_slots += slots - given;
      } else {
        mark_slot_free(slab, shape, slot_at(slab, shape, base, blocks[i], &head->lock), blocks[i], &head->lock);
        i++;
      }
      if (i == count) break;
      page = page_index(blocks[i]);
    }
    if (slab != NULL) settle_after_give(head, slab);
    counter_bump(&row_of(arena, class_index)->outstanding_blocks, -(uint64_t)(i - start + more_slots));
    __atomic_store_n(given, (uint32_t)i, __ATOMIC_RELEASE);
    lock_give(&head->lock, RANK_CLASS);
  }
  return contended;
}

bool slab_give(void *const *blocks, size_t count) {
  uint32_t given;
  return slab_give_noting(blocks, count, &given);
}

const void *slab_first_block(const void *p) { return page_address(slab_of_page(page_index(p))->page); }

bool slab_is_joined(const void *p) {
  return kind_has_joints(page_kind(page_index(p))) && slab_block_size(p) != slab_slot_size(p);
}

bool slab_is_taken(const void *p) {
  const struct slab *slab = slab_of_page(page_index(p));
  size_t slot = (size_t)((const char *)p - page_address(slab->page)) / shape_of(slab)->size_bytes;
  return !(__atomic_load_n(&slab->bits[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1);
}

struct lock *slab_lock_taken(const void *p) {
  size_t page = page_index(p);
  unsigned kind = page < zone_pages() ? page_kind(page) : 0;
  if (!is_class(kind) || kind_arena(kind) >= ARENA_MAX) return NULL;
  struct lock *lock = &slabs.heads[kind_arena(kind)][kind_class(kind)].lock;
  if (!lock_try(lock, RANK_CLASS)) return NULL;
  bool same = page_kind(page) == kind; /* else the slab was another's before the lock was ours */
  size_t offset = same ? (size_t)((const char *)p - (const char *)slab_first_block(p)) : 0;
  if (same && offset % class_shapes[kind_class(kind)].size_bytes == 0 && slab_is_taken(p)) return lock;
  lock_give(lock, RANK_CLASS);
  return NULL;
}

/* The slot that begins at p; ends the process when none does, or it is free. Without the lock: neighbours may change,
 * its bit is the caller's. */
static ALWAYS_INLINE size_t owned_slot(const struct slab *slab, const struct class_shape *shape, const void *p) {
  size_t slot = slot_at(slab, shape, page_address(slab->page), p, NULL);
  uint64_t word = __atomic_load_n(&slab->bits[slot / 64], __ATOMIC_RELAXED);
  if (unlikely(word >> (slot % 64) & 1)) fatal_double_free(p);
  return slot;
}

size_t slab_slot_size(const void *p) {
  const struct slab *slab = slab_of_page(page_index(p));
  const struct class_shape *shape = shape_of(slab);
  owned_slot(slab, shape, p);
  return shape->size_bytes;
}

size_t slab_block_size(const void *p) {
  const struct slab *slab = slab_of_page(page_index(p));
  const struct class_shape *shape = shape_of(slab);
  size_t slot = owned_slot(slab, shape, p);
  bool may_be_joined = __atomic_load_n(&slab->joints, __ATOMIC_RELAXED) != 0;
  return unlikely(may_be_joined) ? slab_joined_slots(slab, slot, NULL) * shape->size_bytes : shape->size_bytes;
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
  slab_join_check(slab);
  unsigned has_no_joints = kind_has_joints(slab_kind(slab)) ? 0 : KIND_JOINTS; /* which may be there all the same */
  if (slab->purged & ~slab_untouched_pages(slab)) fatal_corrupted("purged pages of a slab (B5)", slab);
  for (size_t i = 0; i < shape->pages; i++) {
    if ((page_kind(slab->page + i) & ~has_no_joints) != slab_kind(slab) ||
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
    touched += is_touched(slab) ? slab_unpurged_pages(slab) : 0;
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
