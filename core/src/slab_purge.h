/* slab_purge.h: gives back pages inside slabs that no block touches.
 *
 * It does not know when, nor how much may go: purge.h says. A slab leaves its list for the system call, which runs
 * without a lock (B4, B5), once for each range of pages (docs/decisions/0010).
 */
#ifndef SNUG_SLAB_PURGE_H
#define SNUG_SLAB_PURGE_H

#include "base.h"

/* Looks at max_records slabs, and gives memory of pages that no block touches back to the kernel, in classes of at
 * least min_class_bytes. It goes on where the last call for all classes ended, if it is for all (0), else where the
 * last one for some did. With only_aged, of slabs where nothing was freed since the tick before last. Empty slabs kept
 * for reuse go to the page heap. Ends early after max_pages (and the rest of a slab), or when purging stops.
 * Returns the pages given back to the kernel. */
HIDDEN size_t slab_purge(size_t min_class_bytes, bool only_aged, size_t max_records, size_t max_pages);

/* Time for only_aged: called once per tick. */
HIDDEN void slab_tick(void);

#endif
