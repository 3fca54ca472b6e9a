/* gauges.h: brings those numbers of the counters page up to date that are not counted as they change: by ticks, and
 * when somebody asks. */
#ifndef SNUG_GAUGES_H
#define SNUG_GAUGES_H

#include "base.h"

/* Bytes of the table of samples, which count as metadata; atomic. */
HIDDEN extern uint64_t gauges_profile_bytes;

/* counts_all_caches: else, what caches hold is brought up to date by a slice of them (survey.h), and the purge lock is
 * held. */
HIDDEN void gauges_refresh(bool counts_all_caches);

#endif
