/* profile_budget.h: how far samples are apart, so that they cost the program next to nothing.
 *
 * It does not know what a sample is. The mean distance rises while more than 100 samples a second are taken, or while
 * they take more than a five-hundredth of the CPU time that the process uses, and falls again, down to what was asked
 * for, when far fewer are taken than may be. So a process that idles takes few, whatever each costs.
 * At first their number is the only limit: who asks for a profile of some seconds wants to see something in it.
 *
 * The mean depends on samples of before alone, so whoever draws the next distance has a weight for it that is right.
 * CPU time is asked for with the purge lock held (S1); where nobody may ask, the number a second is the only limit.
 */
#ifndef SNUG_PROFILE_BUDGET_H
#define SNUG_PROFILE_BUDGET_H

#include "base.h"

enum {
  PROFILE_BUDGET = 100,       /* samples a second */
  PROFILE_BUDGET_SHARE = 500, /* of the CPU time: a five-hundredth */
  PROFILE_BUDGET_FREE_S = 30, /* seconds from a change of the setting in which they may take a greater share */
  PROFILE_BUDGET_LOOK = 25,   /* samples after which CPU time is asked for */
  PROFILE_MEAN_MAX_BYTES = 1 << 30,
};

/* Once, before anything else: the counter of ticks is compared with the clock from now on. */
HIDDEN void profile_budget_prepare(void);

/* From now on samples are to be so far apart, and further while that is too much. */
HIDDEN void profile_budget_begin(uint64_t mean_bytes);

/* Bytes from one sample to the next, now. */
HIDDEN uint64_t profile_budget_mean_bytes(void);

/* Around what samples take: ticks before it, and what passed since then. */
HIDDEN uint64_t profile_budget_ticks(void);
HIDDEN void profile_budget_spent(uint64_t ticks_before);

/* A sample was taken. No lock is held. now: by the coarse clock. */
HIDDEN void profile_budget_count(uint64_t now);

/* In a forked child, with the locks reset: its CPU time begins anew. */
HIDDEN void profile_budget_after_fork(void);

#endif
