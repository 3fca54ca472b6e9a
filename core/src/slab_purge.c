#include "slab_purge.h"

#include "bits.h"
#include "counters.h"
#include "huge.h"
#include "lock.h"
#include "pages.h"
#include "slab.h"
#include "slab_record.h"
#include "sys.h"

enum {
  PURGE_SLABS = 32,   /* slabs taken out of their lists at a time */
  STOP_RECORDS = 512, /* records looked at between two looks at whether purging stops */
};

struct purge_item {
  struct slab *slab;
  uint64_t idle; /* pages to give back */
};

/* Pages of the slab that could be given back and may hold memory. Where the system's pages are larger than ours, one of
 * ours that was touched again brings its whole group back, and only untouched groups can go. */
static uint64_t purgeable_pages(const struct slab *slab) {
  size_t ratio = zone.page_bytes / PAGE_BYTES;
  uint64_t untouched = slab_untouched_pages(slab), whole = 0;
  if (ratio == 1) return untouched & ~slab->purged;
  for (size_t i = round_up(slab->page, ratio) - slab->page; i + ratio <= 64; i += ratio) {
    uint64_t mask = bits_mask((unsigned)i, (unsigned)ratio);
    if ((untouched & mask) == mask && (slab->purged & mask) != mask) whole |= mask;
  }
  return whole;
}

/* If the slab is due, takes it out of its list (B4) and says which pages can go. */
static bool purge_begin(struct slab *slab, size_t min_class_bytes, bool only_aged, struct purge_item *item) {
  uint8_t touched = __atomic_load_n(&slab->touched, __ATOMIC_RELAXED);
  if (touched == 0) return false;
  uint8_t age = (uint8_t)((__atomic_load_n(&slabs.tick, __ATOMIC_RELAXED) - touched) & TICK_MASK);
  if (only_aged && age < 2) return false;
  if (!huge_may_break() && huge_may_be_at(__atomic_load_n(&slab->page, __ATOMIC_RELAXED))) return false;
  unsigned class_index = __atomic_load_n(&slab->class_index, __ATOMIC_RELAXED);
  unsigned arena = __atomic_load_n(&slab->arena, __ATOMIC_RELAXED);
  if (class_shapes[class_index].size_bytes < min_class_bytes) return false;
  struct class_head *head = &slabs.heads[arena][class_index];
  bool due = false;
  lock_take(&head->lock, RANK_CLASS);
  /* The record may have been released and taken again for another class: bucket is read first, class and arena after.
   */
  if (__atomic_load_n(&slab->bucket, __ATOMIC_ACQUIRE) < BUCKET_PURGING && slab_is_of(slab, arena, class_index) &&
      is_touched(slab)) {
    slab_untouch(slab);
    if (slab->free == 0) { /* refilled: nothing can go */
    } else if (head->empty == number_of(slab)) {
      head->empty = 0;
      slab_list_remove(head, slab);
      slab_release(slab);
    } else if (slab->epoch != slabs.epoch && slab->free == shape_of(slab)->slots) {
      slab_release(slab); /* it was kept empty when it was sealed */
    } else {
      item->slab = slab;
      item->idle = purgeable_pages(slab);
      due = item->idle != 0;
      if (due && slab->epoch == slabs.epoch) slab_list_remove(head, slab);
      if (due) set_bucket(slab, BUCKET_PURGING);
    }
  }
  lock_give(&head->lock, RANK_CLASS);
  return due;
}

/* Gives the pages back; no lock is held and nobody else serves from the slab. Returns those that went. */
static uint64_t purge_pages(const struct purge_item *item) {
  uint64_t gone = 0;
  if (!pages_break_huge(item->slab->page)) return 0;
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
  ASSERT((gone & ~slab_untouched_pages(slab)) == 0); /* B5: nobody took from it meanwhile */
  counter_add(&snug_counters.slab_purged_bytes, (uint64_t)__builtin_popcountll(gone & ~slab->purged) * PAGE_BYTES);
  slab_set_purged(slab, slab->purged | gone);
  if (huge_may_be_at(slab->page)) touch(slab); /* another time */
  if (slab->free == shape_of(slab)->slots) {
    slab_release(slab);
  } else {
    slab_list_add(head, slab, slab->epoch == slabs.epoch ? bucket_of(slab) : BUCKET_FULL);
  }
  lock_give(&head->lock, RANK_CLASS);
}

size_t slab_purge(size_t min_class_bytes, bool only_aged, size_t max_records, size_t max_pages) {
  struct purge_item items[PURGE_SLABS];
  size_t record_count = slab_record_count(), purged = 0;
  if (max_records > record_count) max_records = record_count;
  uint32_t *cursor = &slabs.cursors[min_class_bytes == 0]; /* of its own: steps that others make are not its own */
  size_t number = __atomic_load_n(cursor, __ATOMIC_RELAXED);
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
  __atomic_store_n(cursor, (uint32_t)number, __ATOMIC_RELAXED);
  return purged;
}

void slab_tick(void) {
  uint8_t next = (uint8_t)((__atomic_load_n(&slabs.tick, __ATOMIC_RELAXED) + 1) & TICK_MASK);
  __atomic_store_n(&slabs.tick, next, __ATOMIC_RELAXED);
}
