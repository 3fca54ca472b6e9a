#include "slab_record.h"

#include <string.h>

#include "pages.h"

struct slabs slabs;

void slab_untouch(struct slab *slab) {
  if (is_touched(slab)) slab_add_touched_pages(-slab_unpurged_pages(slab));
  __atomic_store_n(&slab->touched, 0, __ATOMIC_RELAXED);
}

void slab_set_purged(struct slab *slab, uint64_t purged) {
  size_t before = slab_unpurged_pages(slab);
  slab->purged = purged;
  if (is_touched(slab)) slab_add_touched_pages(slab_unpurged_pages(slab) - before);
}

uint64_t slab_untouched_pages(const struct slab *slab) {
  const struct class_shape *shape = shape_of(slab);
  uint64_t untouched = 0;
  for (size_t i = 0; i < shape->pages; i++) {
    size_t first, end;
    slots_of_page(shape, i, &first, &end);
    if (first >= end || bits_count(slab->bits, first, end - first) == end - first) untouched |= (uint64_t)1 << i;
  }
  return untouched;
}

void slab_resident_slots(const struct slab *slab, uint64_t resident[BITMAP_WORDS]) {
  for (size_t i = 0; i < BITMAP_WORDS; i++) resident[i] = slab->bits[i];
  for (uint64_t rest = slab->purged; rest != 0; rest &= rest - 1) {
    size_t first, end;
    slots_of_page(shape_of(slab), bits_lowest(rest), &first, &end);
    if (first < end) bits_set(resident, first, end - first, false);
  }
}

void slab_list_remove(struct class_head *head, struct slab *slab) {
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

void slab_list_add(struct class_head *head, struct slab *slab, unsigned bucket) {
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

struct slab *slab_record_take(void) {
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

unsigned slab_kind(const struct slab *slab) {
  unsigned joints = slab->joints != 0 && slabs.records[slab->joints].free != 0 ? KIND_JOINTS : 0;
  return joints | (unsigned)slab->arena << ARENA_SHIFT | slab->class_index;
}

static void set_kinds(const struct slab *slab, unsigned kind) {
  for (size_t i = 0; i < shape_of(slab)->pages; i++) page_set_kind(slab->page + i, kind);
}

void slab_set_kind(const struct slab *slab) { set_kinds(slab, slab_kind(slab)); }

void slab_announce_joints(const struct slab *slab) { set_kinds(slab, slab_kind(slab) | KIND_JOINTS); }

/* B6 */
static void claim_pages(const struct slab *slab) {
  for (size_t i = 0; i < shape_of(slab)->pages; i++) zone.owner[slab->page + i] = number_of(slab);
  slab_set_kind(slab);
}

struct slab *slab_create(unsigned arena, unsigned class_index) {
  ASSERT(arena < ARENA_MAX && class_index != 0 && class_index < CLASS_COUNT);
  const struct class_shape *shape = &class_shapes[class_index];
  struct slab *slab = slab_record_take();
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
  slab_add_count(row, 1);
  counter_bump(&row->slab_bytes, (uint64_t)shape->pages * PAGE_BYTES);
  counter_add(&snug_counters.slab_purged_bytes, (uint64_t)__builtin_popcountll(slab->purged) * PAGE_BYTES);
  slab_list_add(&slabs.heads[arena][class_index], slab, bucket_of(slab));
  return slab;
}

void slab_release(struct slab *slab) {
  const struct class_shape *shape = shape_of(slab);
  ASSERT(slab->free == shape->slots && slab->bucket != BUCKET_NO_SLAB);
  struct snug_counters_class *row = row_of(slab->arena, slab->class_index);
  slab_add_count(row, -1);
  counter_bump(&row->slab_bytes, -(uint64_t)shape->pages * PAGE_BYTES);
  counter_subtract(&snug_counters.slab_purged_bytes, (uint64_t)__builtin_popcountll(slab->purged) * PAGE_BYTES);
  size_t page = slab->page;
  uint64_t purged = slab->purged;
  slab_untouch(slab);
  if (unlikely(slab->joints != 0)) record_give(&slabs.records[slab->joints]);
  slab->joints = 0;
  record_give(slab);
  for (size_t i = 0; i < shape->pages; i++) page_set_kind(page + i, 0); /* M2: they are ours still */
  pages_give(page, shape->pages, purged);
}
