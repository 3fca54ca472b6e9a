/* budget.h: what giving memory back may cost. Tokens for the time of purges and of the faults they cause.
 *
 * Time fills a bucket of tokens; each page that is purged takes its price out. How fast it fills (docs/decisions/0004):
 *
 *  share   purge_cpu_percent of the time that passes, or, where that is more,
 *  held    what the free memory that waits costs: 8 GB are worth a CPU. Times purge_cpu_percent.
 *  own     But at most 3 % of the CPU time that the process itself uses, times purge_cpu_percent: a server that does
 *          little must not spend a tenth of it on purges.
 *
 * The price of a page is measured once.
 *
 * All functions: the purge lock is held.
 */
#ifndef SNUG_BUDGET_H
#define SNUG_BUDGET_H

#include "base.h"

/* Fills the bucket for the time since the last call. dirty_pages: those that wait, which cost what memory costs. */
HIDDEN void budget_earn(size_t dirty_pages);

/* How many pages the tokens pay for. */
HIDDEN size_t budget_pages(void);

/* Takes the price of so many pages out; there may be debts, which time pays. */
HIDDEN void budget_spend(size_t pages);

/* Whether purge_cpu_percent of so much time pays for so many pages. */
HIDDEN bool budget_is_paid_by(uint64_t time_ns, size_t pages);

/* At ticks: short programs need no price. */
HIDDEN void budget_measure_price(void);

#endif
