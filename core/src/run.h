/* run.h: blocks of 32 KiB to 1 MiB, each a run of whole pages in the zone.
 *
 *      kind[first] = KIND_RUN     owner[first] = pages | slack << 12     (slack: bytes of the pages not asked for)
 *      kind[rest]  = 0
 *
 * It does not know classes or caches. A run grows in place into free pages and gives its tail back when it shrinks.
 */
#ifndef SNUG_RUN_H
#define SNUG_RUN_H

#include "base.h"
#include "pages.h"

enum { RUN_MAX_BYTES = PAGES_RUN_MAX * PAGE_BYTES };

/* A block of size_bytes (1 .. RUN_MAX_BYTES) at a multiple of alignment (a power of two up to RUN_MAX_BYTES).
 * *clean: it reads as zero. NULL: no memory. */
HIDDEN void *run_take(size_t size_bytes, size_t alignment, bool *clean);

/* p must lie on a page of kind KIND_RUN. Ends the process when it is not the start of the run. */
HIDDEN void run_give(void *p);

/* Usable bytes of the run that starts at p; 0 when p is not its start. */
HIDDEN size_t run_size(const void *p);

/* Shortens or lengthens the run in place. Returns false, and changes nothing, when the pages behind are taken. */
HIDDEN bool run_resize(void *p, size_t size_bytes);

/* Start of the run that holds p, which lies in the zone; NULL when it is in none. For messages: it looks for the start
 * page by page. */
HIDDEN void *run_holding(const void *p);

#endif
