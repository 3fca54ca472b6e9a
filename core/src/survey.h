/* survey.h: what all caches show together: whether there is life, and what they hold.
 *
 * It takes no lock, and changes nothing but its own notes: it reads what owners write whole (cache.h, C5), in caches
 * that stay where they are for good. Of many caches it looks at a slice at a time: all of them are a turn.
 *
 *  H1  The counter cached_bytes is the sum of what each cache counts for (counted_bytes).
 *  H2  Each cache was looked at for that since cached_at_ns, or did not exist then.
 */
#ifndef SNUG_SURVEY_H
#define SNUG_SURVEY_H

#include "base.h"
#include "cache.h"

enum {
  SURVEY_SLICE = 128,     /* so many caches, or ... */
  SURVEY_SLICES_MAX = 16, /* ... so many that a turn has no more slices than this */
};

/* How many caches are a slice now. */
HIDDEN uint32_t survey_slice(void);

/* A number that changes when any thread used its cache since the last call: the sign of life of the process. For the
 * janitor alone. It never misses life, but of many threads that stop at once it may speak for a turn more. */
HIDDEN uint64_t survey_activity(void);

/* Around what a thief does to a cache whose door is shut, which is no sign of life: before it, and after it with what
 * that returned. */
HIDDEN bool survey_before_theft(const struct cache *cache);
HIDDEN void survey_after_theft(struct cache *cache, bool was_seen);

/* Takes an unused cache off the sums, before its memory goes. The purge lock is held. */
HIDDEN void survey_forget(struct cache *cache);

/* Brings the counter cached_bytes up to date, by the next slice, and then the purge lock is held, or by all caches. */
HIDDEN void survey_count_slice(void);
HIDDEN void survey_count_all(void);

#endif
