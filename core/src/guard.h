/* guard.h: SNUG=guard:1, blocks that show what was done to them. Misuse ends the process at the free, or at the write.
 *
 * It does not know caches. Blocks of up to 32 KiB are slots of an arena of their own, and longer than asked for; those
 * above, or when no slab can be had, have a mapping with a page in front, and one behind that cannot be touched:
 *
 *      slot                                            mapping
 *      | asked for            | slack, 0xa5 | mark |   | header, 0xa5 | asked for     | slack | fence |
 *
 * The header's page can only be read. Each call looks at the slots that were taken and freed last, and a fault is told
 * with the block it belongs to. A freed slot is filled with 0xf5 and its memory kept from reuse until some thousand
 * others have been freed; a freed mapping of up to 64 MiB loses its memory, and cannot be touched, until 64 others have
 * been. Blocks that are older than the setting, of the start of the program, are in other arenas and as without it.
 *
 *  W1  A slot of the guarded arena ends in a mark, stored whole: of a live block, of a freed one, or zero if none was
 *      there since its page was clean. The mark depends on the address, so what a neighbour wrote is none.
 *  W2  A slot that can be taken is all 0xf5 and a mark, or zero, page by page.
 */
#ifndef SNUG_GUARD_H
#define SNUG_GUARD_H

#include "base.h"

HIDDEN extern uint32_t guard_arena; /* atomic; of guarded slots; 0: guard:0 */

static inline bool guard_is_on(void) { return unlikely(__atomic_load_n(&guard_arena, __ATOMIC_RELAXED) != 0); }

/* From now on blocks are guarded, and no thread has a cache. False: no arena is left for it. */
HIDDEN bool guard_start(void);

/* As block_take_aligned; *clean: it reads as zero. NULL: no memory. */
HIDDEN void *guard_take(size_t alignment, size_t size_bytes, bool *clean);

/* False: p is no guarded block, and perhaps none at all. Each ends the process when what it sees of the block says that
 * it was freed, or that somebody wrote around it. */
HIDDEN bool guard_give(void *p);
HIDDEN bool guard_size(const void *p, size_t *size_bytes); /* as asked for: there is nothing more to use */

/* Whatever waits is checked and can be used again: at a limit, where it may be just what is missing, and at exit. */
HIDDEN void guard_end_waits(void);

/* If p points into a guarded mapping, its block; else NULL. For messages. */
HIDDEN void *guard_block_around(const void *p, size_t *size_bytes);

#endif
