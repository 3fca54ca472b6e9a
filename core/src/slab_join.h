/* slab_join.h: blocks made of adjacent free slots of a smaller class, for a heap whose small blocks left many holes.
 *
 * It does not know threads or caches; slab.h asks it before it makes a slab of pages. When most blocks of a class were
 * freed, at random, hardly a page is without one, and the holes are of no use to larger blocks. So a *joined* block
 * takes a few of them, side by side in one slab. While a slab has such a block, its pages' kinds have KIND_JOINTS, and
 * frees there take the slow path, which gives a joined block to its slab at once. There all its slots become free: none
 * is ever taken for a request of one slot. slab_block_size says how long a block is. B7 to B9 (slab_record.h) say what
 * holds (docs/decisions/0044).
 */
#ifndef SNUG_SLAB_JOIN_H
#define SNUG_SLAB_JOIN_H

#include "slab_record.h"

/* Once per tick: which classes have many holes. */
HIDDEN void slab_join_tick(void);

/* Takes up to `wanted` blocks that serve for those of a class out of slabs of smaller classes of the same arena; stores
 * them downwards from blocks[wanted - 1]. requested_bytes as in slab_take. The lock of the class is held. What a
 * block is longer than the class is for the caller to zero, without it. Returns how many; 0 also when there are few
 * holes. */
HIDDEN size_t slab_take_joined(unsigned arena, unsigned class_index, void **blocks, size_t wanted,
                               size_t requested_bytes);

/* Before the end by a mistake that was found under the class lock, if it is not NULL. In a child of vfork(2) it is the
 * lock of its parent, which lives on. */
COLD HIDDEN void slab_give_before_end(struct lock *held);

/* Ends the process: p is inside a block of the slab. `held` is given first. */
_Noreturn COLD HIDDEN void slab_fatal_interior(const struct slab *slab, const void *p, struct lock *held);

/* In a slab with a record of joints, how many slots the block at `slot` has. Ends the process when it began before,
 * and first gives `held`. Needs no lock if the caller owns the block: `held` is NULL then. */
HIDDEN size_t slab_joined_slots(const struct slab *slab, size_t slot, struct lock *held);

/* Frees the slots of a joined block beyond the first, which is free already. The class lock is held. */
HIDDEN void slab_give_joined(struct slab *slab, size_t slot, size_t slots);

HIDDEN void slab_join_check(const struct slab *slab); /* asserts B7 and B8 */

#endif
