/* slab.h: blocks of a size class, carved out of slabs that all threads share.
 *
 * It does not know threads, caches or policies. A slab is a few pages of equal slots; its record lies elsewhere, in one
 * cache line, so that neither a malloc nor a free writes into the slab's own pages:
 *
 *      record (64 bytes)                      pages in the zone
 *      | page, links, free, epoch, class |    | slot 0 | slot 1 | slot 2 | ...            | tail |
 *      | purged: a bit per page          |
 *      | bits: a one per free slot (256) |
 *
 * Each class of each arena has a lock and eight lists of its partly used slabs, by how full they are. Blocks are taken
 * from the fullest slab, lowest slot first, so that the others can empty.
 *
 *  B1  free == ones in bits; bits above the class's slots are zero.
 *  B2  A slab of the current epoch with 0 < free is in the list of its bucket; full slabs are in none.
 *  B3  A slab of an older epoch (sealed by fork) is in no list: it accepts frees and does not serve, until enough of it
 *      is free that its pages are better used again.
 *  B4  A slab whose pages are being purged is in no list meanwhile: frees may touch it, nobody takes from it.
 *  B5  A bit in purged means that no live block touches the page and that it holds no memory.
 *  B6  kind of all the slab's pages is arena << 8 | class, owner is the record's number.
 */
#ifndef SNUG_SLAB_H
#define SNUG_SLAB_H

#include "arena.h"
#include "base.h"
#include "classes.h"
#include "map.h"

enum {
  ARENA_SHIFT = 8, /* in a page's kind */
  SLAB_RECORD_BYTES = 64,
};

/* What a page's kind says, when it is a class's. */
static ALWAYS_INLINE unsigned kind_class(unsigned kind) { return kind & ((1 << ARENA_SHIFT) - 1); }
static ALWAYS_INLINE unsigned kind_arena(unsigned kind) { return kind >> ARENA_SHIFT; }

/* Whether it is, of whatever arena. */
static ALWAYS_INLINE bool is_class(unsigned kind) { return kind_class(kind) - 1 < CLASS_COUNT - 1; }

/* Must run after map_init. Returns false when there is no room for records: then there are no slabs. */
HIDDEN bool slab_init(void);

/* Takes up to `wanted` blocks of a class into blocks[]; the one that should be used first comes last.
 * requested_bytes is what the program asked for this time: the sample behind live_requested_bytes.
 * *contended is set when the lock was held by another thread. Returns how many; 0 when there is no memory. */
HIDDEN size_t slab_take(unsigned arena, unsigned class_index, void **blocks, size_t wanted, size_t requested_bytes,
                        bool *contended);

/* Gives blocks back, of any classes and arenas; runs of equal ones are cheapest. Ends the process when one was free
 * already, or is not the start of a block. Returns true when a lock was held by another thread. */
HIDDEN bool slab_give(void *const *blocks, size_t count);

/* Bytes of the block that starts at p, whose page has a class kind. Ends the process when no live block starts there.
 */
HIDDEN size_t slab_block_size(const void *p);

/* Looks at max_records slabs, going on where the last call ended, and gives memory of pages that no block touches back
 * to the system, in classes of at least min_class_bytes. With only_aged, of slabs where nothing was freed since
 * the tick before last. Empty slabs kept for reuse go to the page heap. Ends early after max_pages (and the rest of a
 * slab), or when purging stops.
 * Returns the pages given back to the system. */
HIDDEN size_t slab_purge(size_t min_class_bytes, bool only_aged, size_t max_records, size_t max_pages);

/* Pages that may hold memory, of slabs in which something was freed since slab_purge looked at them: no more can go. */
HIDDEN size_t slab_touched_pages(void);

/* Time for only_aged: called once per tick. */
HIDDEN void slab_tick(void);

/* From now on existing slabs serve no more, until one has at least a part of 1 / 2^unseal_shift free. Call with all
 * locks held. */
HIDDEN void slab_seal(unsigned unseal_shift);

/* The first slot of the slab that holds p, whose page has a class kind. */
HIDDEN const void *slab_first_block(const void *p);

/* Whether the slot at p is in use now, or was a moment ago. */
HIDDEN bool slab_is_taken(const void *p);

HIDDEN size_t slab_check(void); /* asserts B1-B6; returns the slabs seen */
HIDDEN size_t slab_record_count(void);

HIDDEN void slab_lock_all(void);
HIDDEN void slab_unlock_all(void);
HIDDEN void slab_reset_locks(void);

#endif
