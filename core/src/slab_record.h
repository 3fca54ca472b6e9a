/* slab_record.h: the records of slabs, their lists, and their life from pages to pages.
 *
 * It does not know who takes and gives blocks, nor which pages go: it is the inside of slab.h and slab_purge.h, and
 * nobody else's. All of a slab changes under the lock of its class, but for what says so.
 *
 *      record (64 bytes)                      pages in the zone
 *      | page, links, free, epoch, class |    | slot 0 | slot 1 | slot 2 | ...            | tail |
 *      | purged: a bit per page          |
 *      | bits: a one per free slot (256) |
 *
 * Each class of each arena has eight lists of its partly used slabs, by how full they are.
 *
 *  B1  free == ones in bits; bits above the class's slots are zero.
 *  B2  A slab of the current epoch with 0 < free is in the list of its bucket; full slabs are in none.
 *  B3  A slab of an older epoch (sealed by fork) is in no list: it accepts frees and does not serve, until enough of it
 *      is free that its pages are better used again.
 *  B4  A slab whose pages are being purged is in no list meanwhile: frees may touch it, nobody takes from it.
 *  B5  A bit in purged means that no live block touches the page and that it holds no memory.
 *  B6  kind of all the slab's pages is arena << 8 | class, with KIND_JOINTS at least while it has a joined block; owner
 *      is the record's number.
 *  B7  The record slab.joints, if any, has a one for each slot that belongs to a block that began before it; its `free`
 *      says how many. It stays while the slab lives, so that who owns a block may read without a lock: its neighbours'
 *      bits may change, its own do not.
 *  B8  Such a slot is in use: its bit is zero in the slab's own record, and so is that of the slot before it.
 *  B9  A joined block is aligned as all blocks of the class that it serves for, and at most a quarter of it is more
 *      than the shortest request of that class, in whole pieces of 16 bytes.
 */
#ifndef SNUG_SLAB_RECORD_H
#define SNUG_SLAB_RECORD_H

#include "arena.h"
#include "base.h"
#include "bits.h"
#include "classes.h"
#include "counters.h"
#include "lock.h"
#include "map.h"

enum {
  BUCKETS = 8, /* 0 holds the fullest slabs */
  BUCKET_FULL = 8,
  BUCKET_PURGING = 9,
  BUCKET_NO_SLAB = 10,
  BITMAP_WORDS = 4,
  TOUCHED = 0x80, /* in slab.touched: a free happened at the tick in the low bits */
  TICK_MASK = 0x7f,
};

struct slab {
  uint32_t page;               /* first page; constant while the slab lives */
  uint32_t next, prev;         /* in its list; class lock */
  uint16_t free;               /* class lock; in a record of joints: how many slots are */
  uint16_t epoch;              /* class lock */
  uint8_t class_index;         /* constant while the slab lives; atomic, as slab_purge peeks */
  uint8_t arena;               /* class lock of both arenas; atomic, the same */
  uint8_t bucket;              /* class lock */
  uint8_t touched;             /* atomic, the same */
  uint32_t joints;             /* class lock, and atomic: number of the record of B7 (slab_join.h), or 0 */
  uint64_t purged;             /* class lock */
  uint64_t bits[BITMAP_WORDS]; /* class lock */
};
_Static_assert(sizeof(struct slab) == 64, "a record is one cache line");
_Static_assert((int)CLASS_COUNT <= (int)KIND_RUN, "kinds of classes and of runs are apart");
_Static_assert((int)CLASS_COUNT <= SNUG_COUNTERS_CLASSES, "rows of the counters");

struct class_head {
  struct lock lock; /* rank CLASS */
  uint32_t first[BUCKETS];
  uint32_t empty;    /* a slab without blocks kept for reuse until the next tick, or 0; it is in its list, too */
  uint32_t nonempty; /* bit per bucket */
  uint8_t join_skips, join_skips_next; /* slabs to be made before holes are searched again (slab_join.h) */
} __attribute__((aligned(64)));

struct slabs {
  struct class_head heads[ARENA_MAX][CLASS_COUNT];
  struct lock records_lock; /* rank RECORDS; guards the table and the free records */
  struct table table;
  struct slab *records;  /* number 0 is none */
  uint32_t record_count; /* atomic: records ever used + 1 */
  uint32_t free_record;  /* stack through next */
  uint16_t epoch;        /* changes at a fork, all locks held */
  uint8_t unseal_shift;  /* the same */
  uint8_t tick;          /* atomic */
  uint32_t cursors[2];   /* of slab_purge: where it leaves small classes out, and where not; atomic */
  size_t touched_pages __attribute__((aligned(64))); /* atomic: of touched slabs, without their purged ones */
};

HIDDEN extern struct slabs slabs;

static ALWAYS_INLINE const struct class_shape *shape_of(const struct slab *slab) {
  return &class_shapes[slab->class_index];
}

static ALWAYS_INLINE uint32_t number_of(const struct slab *slab) { return (uint32_t)(slab - slabs.records); }

static ALWAYS_INLINE struct snug_counters_class *row_of(unsigned arena, unsigned class_index) {
  return &snug_counters.classes[arena][class_index];
}

/* Slabs of a class, more or fewer. */
static inline void slab_add_count(struct snug_counters_class *row, int change) {
  __atomic_store_n(&row->slabs, row->slabs + (uint32_t)change, __ATOMIC_RELAXED);
}

/* ---- touched slabs ---- */

static ALWAYS_INLINE bool is_touched(const struct slab *slab) {
  return __atomic_load_n(&slab->touched, __ATOMIC_RELAXED) != 0;
}

/* The pages count under the class lock of the slab they are in; the sum has many writers. */
static inline void slab_add_touched_pages(size_t count) {
  if (count != 0) __atomic_fetch_add(&slabs.touched_pages, count, __ATOMIC_RELAXED);
}

static inline size_t slab_unpurged_pages(const struct slab *slab) {
  return shape_of(slab)->pages - (size_t)__builtin_popcountll(slab->purged);
}

static ALWAYS_INLINE void touch(struct slab *slab) {
  if (!is_touched(slab)) slab_add_touched_pages(slab_unpurged_pages(slab));
  uint8_t now = (uint8_t)(TOUCHED | __atomic_load_n(&slabs.tick, __ATOMIC_RELAXED));
  __atomic_store_n(&slab->touched, now, __ATOMIC_RELAXED);
}

HIDDEN void slab_untouch(struct slab *slab);
HIDDEN void slab_set_purged(struct slab *slab, uint64_t purged);

/* First and one past the last slot that touch page i of a slab. */
static ALWAYS_INLINE void slots_of_page(const struct class_shape *shape, size_t i, size_t *first, size_t *end) {
  *first = (uint64_t)(i * PAGE_BYTES) * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT;
  *end = ((uint64_t)((i + 1) * PAGE_BYTES - 1) * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT) + 1;
  if (*end > shape->slots) *end = shape->slots;
}

/* Pages of the slab that no block touches. */
HIDDEN uint64_t slab_untouched_pages(const struct slab *slab);

/* Free slots of which all pages hold memory. */
HIDDEN void slab_resident_slots(const struct slab *slab, uint64_t resident[BITMAP_WORDS]);

static ALWAYS_INLINE bool slab_is_of(const struct slab *slab, unsigned arena, unsigned class_index) {
  return __atomic_load_n(&slab->class_index, __ATOMIC_RELAXED) == class_index &&
         __atomic_load_n(&slab->arena, __ATOMIC_RELAXED) == arena;
}

/* ---- lists ---- */

static ALWAYS_INLINE unsigned bucket_of(const struct slab *slab) {
  if (slab->free == 0) return BUCKET_FULL;
  return (slab->free - 1u) * shape_of(slab)->bucket_scale >> 16;
}

/* After class and arena, for slab_purge, which looks before it knows whose lock to take. */
static ALWAYS_INLINE void set_bucket(struct slab *slab, unsigned bucket) {
  __atomic_store_n(&slab->bucket, (uint8_t)bucket, __ATOMIC_RELEASE);
}

HIDDEN void slab_list_remove(struct class_head *head, struct slab *slab);
HIDDEN void slab_list_add(struct class_head *head, struct slab *slab, unsigned bucket);

/* Moves the slab to the list that B2 asks for. */
static ALWAYS_INLINE void slab_list_settle(struct class_head *head, struct slab *slab) {
  unsigned bucket = bucket_of(slab);
  if (bucket == slab->bucket) return;
  slab_list_remove(head, slab);
  slab_list_add(head, slab, bucket);
}

/* ---- life ---- */

/* A new slab, in its list; the class lock is held. NULL: no memory. */
HIDDEN struct slab *slab_create(unsigned arena, unsigned class_index);

/* Ends a slab that is in no list and has no blocks. */
HIDDEN void slab_release(struct slab *slab);

/* A record, for a slab or for joints (B7). NULL: no memory. */
HIDDEN struct slab *slab_record_take(void);

/* What its pages are (B6), and saying so of all of them, or that it has joints before it has. */
HIDDEN unsigned slab_kind(const struct slab *slab);
HIDDEN void slab_set_kind(const struct slab *slab);
HIDDEN void slab_announce_joints(const struct slab *slab);

#endif
