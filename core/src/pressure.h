/* pressure.h: how near the container's memory limit is, and what that asks of purging (docs/decisions/0041).
 *
 * It decides. cgroup.h reads, and purge.h asks, with the purge lock held, and gives back. Where live memory itself is
 * near the limit, what is given back is wanted again at once, and giving it back helps nobody. So near the limit there
 * are two rules beside those of purge.h:
 *
 *  sweep   Everything that can go does, at any price. That is a bet, judged when its wait is over, a second at first.
 *          It is lost if most of what went is held again, or if next to nothing went: then it is judged again after
 *          twice the wait, and so on; after 64 s the next one comes in any case. One that was won brings the next one,
 *          and halves the wait, to a second. At once one is due where the room, from what is held to the limit, falls
 *          below half of what it was at the last sweep, or came to be since by other means. Room that the sweep made
 *          does not count, or a lost bet would not wait. One that is cut, by a fork, is no bet, and due still; but the
 *          second in a row is one, with what both gave, so that forks don't bring sweeps at each tick. When its wait
 *          is over far from the limit, a bet is won if most of what went was away at each tick since: then the next
 *          sweep comes as soon as it is near again.
 *  growth  What the process holds may grow by half of the room from one look to the next. What it takes beyond that it
 *          pays for with free pages that hold memory, at any price. Taking those pages themselves is no growth.
 */
#ifndef SNUG_PRESSURE_H
#define SNUG_PRESSURE_H

#include "base.h"
#include "cgroup.h"

/* A new reading (NULL: there is no limit, or nobody may read it), and how many pages of the heap hold memory now. */
HIDDEN void pressure_look(const struct cgroup_memory *reading, size_t resident_pages);

/* A reading can't be had: descriptors run out when many connections come, as memory does. What the last one said stands
 * for ten such looks by the second; not for good, as after chroot(2) there will be none. */
HIDDEN void pressure_look_failed(bool by_the_second);

/* Whether the limit was near at the last look. */
HIDDEN bool pressure_is_near(void);

/* From what was held at the last look to the limit; SIZE_MAX without one. */
HIDDEN size_t pressure_room_pages(void);

/* At each tick, near or far: judges the last sweep if its wait is over, with so many pages holding memory now. Whether
 * the next one is due. */
HIDDEN bool pressure_judge_sweep(uint64_t now_ns, size_t resident_pages);

/* What a sweep gave back, how many pages hold memory after it, and whether it was not cut. */
HIDDEN void pressure_swept(uint64_t now_ns, size_t gone_pages, size_t left_pages, bool is_all);

/* How many pages may hold memory until the next look; SIZE_MAX: any number. No lock. */
HIDDEN size_t pressure_most_pages(void);

/* Nothing could be given back in place of growth: it may go on, to so many pages, until the next look. */
HIDDEN void pressure_allow(size_t pages);

#endif
