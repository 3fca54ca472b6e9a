/* arena.h: which arenas there are, and how many caches take blocks from each.
 *
 * It does not know slabs or caches. An arena is a set of slabs with locks of its own. There is one until threads keep
 * finding its locks held (cache.h); then they spread over as many as they can run on CPUs at once, or fewer by option.
 * One that nobody uses any more lends its slabs to the others (slab.h).
 *
 *  A1  users of an arena = the caches in use whose arena it is, and one forever of a reserved one.
 *  A2  An arena at or above arena_count() has had no users, and so no slabs.
 */
#ifndef SNUG_ARENA_H
#define SNUG_ARENA_H

#include "base.h"
#include "classes.h"

enum {
  ARENA_MAX = 64,
  ARENA_RESERVED_MAX = 2,
  ARENA_SHIFT = 8,      /* in a page's kind */
  KIND_JOINTS = 0x8000, /* the same: some blocks of the slab are joined (slab_join.h) */
};

_Static_assert((int)ARENA_MAX << ARENA_SHIFT <= (int)KIND_JOINTS, "the parts of a kind are apart");

/* What a page's kind says, when it is a class's. */
static ALWAYS_INLINE unsigned kind_class(unsigned kind) { return kind & ((1 << ARENA_SHIFT) - 1); }
static ALWAYS_INLINE unsigned kind_arena(unsigned kind) { return (kind & ~(unsigned)KIND_JOINTS) >> ARENA_SHIFT; }

static ALWAYS_INLINE bool kind_has_joints(unsigned kind) { return (kind & KIND_JOINTS) != 0; }

/* Whether it is, of whatever arena. */
static ALWAYS_INLINE bool is_class(unsigned kind) { return kind_class(kind) - 1 < CLASS_COUNT - 1; }

/* From now on arena 0 can be used. */
HIDDEN void arena_init(void);

/* Arenas ever used: the highest number + 1. */
HIDDEN unsigned arena_count(void);

HIDDEN uint32_t arena_users(unsigned arena);

/* A cache takes its blocks from the arena from now on, or does not any more. The caches lock is held. */
HIDDEN void arena_join(unsigned arena);
HIDDEN void arena_leave(unsigned arena);

/* No cache takes blocks from any arena now: in a forked child, which counts anew. The caches lock is held. */
HIDDEN void arena_forget_users(void);

/* CPUs the process may use (cgroup's quota included). 0: not asked yet. */
HIDDEN void arena_set_cpus(uint32_t count);
HIDDEN uint32_t arena_cpus(void);

/* Arenas that threads may spread over: as many as CPUs, or fewer by option. */
HIDDEN uint32_t arena_allowed(void);

/* The one of these with the fewest users. */
HIDDEN unsigned arena_least_used(void);

/* An arena for guarded blocks alone (W1, W2), or for sampled ones, whose slabs are zero at first, and that neither
 * lends nor borrows. The caches lock is held. 0: all are in use, or there are none. */
HIDDEN unsigned arena_reserve(void);
HIDDEN bool arena_is_reserved(unsigned arena);

#endif
