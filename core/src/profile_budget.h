/* profile_budget.h: how far samples are apart, so that they cost the program next to nothing.
 *
 * It does not know what a sample is. The mean distance follows what may be taken: at most 100 samples a second, and no
 * more than a two-hundredth of the CPU time that the process uses pays for, by what they took; but 25 a second may be
 * taken of any process, unless that took a two-hundredth of one CPU. So a leak of 100 kB/s among 200 MB/s has a sample
 * every 80 seconds or more often, at a cost of half a thousandth of one CPU. It never falls below what was asked for.
 * At first their number is the only limit: who asks for a profile of some seconds wants to see something in it.
 *
 * The mean depends on samples of before alone, so whoever draws the next distance has a weight for it that is right.
 * Distances that are not over yet may be drawn again at any moment: as they have no memory, that changes no estimate.
 * CPU time is asked for with the purge lock held (S1); where nobody may ask, the number a second is the only limit.
 */
#ifndef SNUG_PROFILE_BUDGET_H
#define SNUG_PROFILE_BUDGET_H

#include "base.h"

enum {
  PROFILE_BUDGET = 100,       /* samples a second */
  PROFILE_BUDGET_LEAST = 25,  /* of them whatever CPU time is used */
  PROFILE_BUDGET_SHARE = 200, /* of the CPU time: a two-hundredth */
  PROFILE_BUDGET_FREE_S = 30, /* seconds from a change of the setting in which they may take a greater share */
  PROFILE_BUDGET_LOOK = 25,   /* samples after which CPU time is asked for */
  PROFILE_MEAN_MAX_BYTES = 1 << 30,
};

/* Once, before anything else: the counter of ticks is compared with the clock from now on. */
HIDDEN void profile_budget_prepare(void);

/* From now on samples are to be so far apart, and further while that is too much. */
HIDDEN void profile_budget_begin(uint64_t mean_bytes);

HIDDEN extern uint64_t profile_budget_stale_bytes; /* atomic: a distance drawn by a mean above is to be drawn again */

/* Bytes from one sample to the next, now. */
HIDDEN uint64_t profile_budget_mean_bytes(void);

/* Around what samples take: ticks before it, and what passed since then. */
HIDDEN uint64_t profile_budget_ticks(void);
HIDDEN void profile_budget_spent(uint64_t ticks_before);

/* A sample was taken. No lock is held. now: by the coarse clock. */
HIDDEN void profile_budget_count(uint64_t now);

/* Time has passed, perhaps without samples. No lock is held. */
HIDDEN void profile_budget_tick(void);

/* In a forked child, with the locks reset: its CPU time begins anew. */
HIDDEN void profile_budget_after_fork(void);

#endif
