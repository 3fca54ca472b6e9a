/* huge.h: the kernel's huge pages in a large heap (docs/decisions/0006).
 *
 * Where a heap of gigabytes grows, its new pages may come 2 MiB at a time: some hundred times fewer faults, and fewer
 * misses of the TLB afterwards. When it grows again the kernel is told to make no more of them there, so that pages
 * that were given back come back singly. One chunk of each growth has small pages, and so has all of it where the last
 * such chunk shows that the program does not touch what it asks for: of a huge page one byte is enough to take all.
 *
 * A huge page of which a part is given back stays whole with the kernel until memory is short, although that part
 * counts as resident no more. So before a part of a chunk goes, all huge pages of the chunk are broken: into small
 * ones, of which each can go. That is expensive, and done under the purge lock only; purge.c says when it pays. A chunk
 * that is free goes whole. Either way it gets no new ones, until the zone has shrunk past it and grows again. Whether a
 * chunk may have huge pages is known from its growth until then: an upper bound, as the kernel may have had none to
 * give.
 */
#ifndef SNUG_HUGE_H
#define SNUG_HUGE_H

#include "base.h"

/* The zone ends after page `end` now, no more after page `from`; multiples of CHUNK_PAGES. The pages lock is held. */
HIDDEN void huge_grew(size_t from, size_t end);

/* The zone is about to end after page `end`. The pages lock is held. */
HIDDEN void huge_shrinks(size_t end);

/* The setting is known, and the zone ends after page `end`. Called once, before there is a second thread. */
HIDDEN void huge_start(size_t end);

/* Whether the heap is so large that huge pages may be wanted where it grows; and whether they are. The purge lock is
 * held. */
HIDDEN bool huge_may_be_wanted(void);
HIDDEN void huge_want_more(bool more);

/* The kernel makes none: no chunk has any, from now on. The purge lock is held. */
HIDDEN void huge_give_up(void);

/* Chunks that may have huge pages. No lock. */
HIDDEN size_t huge_chunks(void);

/* From now on so many chunks may be broken. The purge lock is held. */
HIDDEN void huge_allow_breaks(size_t chunks);

/* Chunks that were broken since the last call. The purge lock is held. */
HIDDEN size_t huge_take_breaks(void);

/* Whether the chunk of this page may have huge pages; and whether they may be broken now. No lock. */
HIDDEN bool huge_may_be_at(size_t page);
HIDDEN bool huge_may_break(void);

/* All of this page's chunk was given back, and nobody else uses it. No lock. */
HIDDEN void huge_went(size_t page);

/* Breaks the huge pages of this page's chunk, if that is allowed. The purge lock is held, and none above it. */
HIDDEN bool huge_break(size_t page);

#endif
