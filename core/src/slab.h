/* slab.h: blocks of a size class, carved out of slabs that all threads share.
 *
 * It does not know threads, caches or policies. A slab is a few pages of equal slots; its record (slab_record.h) lies
 * elsewhere, in one cache line, so that neither a malloc nor a free writes into the slab's own pages. Each class of
 * each arena has a lock. Blocks are taken from the fullest slab, lowest slot first, so that the others can empty
 * (docs/decisions/0002). Where there is none, and smaller classes have many holes, a block may be made of some of them
 * (slab_join.h).
 */
#ifndef SNUG_SLAB_H
#define SNUG_SLAB_H

#include "arena.h"
#include "base.h"
#include "classes.h"
#include "map.h"

enum { SLAB_RECORD_BYTES = 64 };

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

/* The same, and say under the lock how many blocks the slabs no longer have, or have again: a forked child finds that
 * the number is right. */
HIDDEN void slab_take_noting(unsigned arena, unsigned class_index, void **blocks, size_t wanted, size_t requested_bytes,
                             bool *contended, uint32_t *taken);
HIDDEN bool slab_give_noting(void *const *blocks, size_t count, uint32_t *given);

/* Bytes of the block that starts at p, whose page has a class kind. Ends the process when no live block starts there.
 */
HIDDEN size_t slab_block_size(const void *p);

/* The same of its first slot: less where it is a joined block (slab_join.h), and sooner known. */
HIDDEN size_t slab_slot_size(const void *p);

/* Whether the block that starts at p, in the zone, is a joined one. Where its slab has some, ends the process as
 * slab_block_size does. */
HIDDEN bool slab_is_joined(const void *p);

/* Pages that may hold memory, of slabs in which something was freed since slab_purge looked at them: no more can go. */
HIDDEN size_t slab_touched_pages(void);

/* From now on existing slabs serve no more, until one has at least a part of 1 / 2^unseal_shift free. Call with all
 * locks held. */
HIDDEN void slab_seal(unsigned unseal_shift);

/* The first slot of the slab that holds p, whose page has a class kind. */
HIDDEN const void *slab_first_block(const void *p);

/* Whether the slot at p is in use now, or was a moment ago. */
HIDDEN bool slab_is_taken(const void *p);

/* If a slot that is in use begins at p and the lock of its class is free, that lock, taken (rank CLASS): it stays in
 * use until the lock is given. Else NULL. */
struct lock;
HIDDEN struct lock *slab_lock_taken(const void *p);

HIDDEN size_t slab_check(void); /* asserts B1-B8; returns the slabs seen */
HIDDEN size_t slab_record_count(void);

HIDDEN void slab_lock_all(void);
HIDDEN void slab_unlock_all(void);
HIDDEN void slab_reset_locks(void);

#endif
