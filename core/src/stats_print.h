/* stats_print.h: jemalloc's malloc_stats_print, for people and as JSON. It knows the heap by mallctl.h alone. */
#ifndef SNUG_STATS_PRINT_H
#define SNUG_STATS_PRINT_H

#include "base.h"

/* At exit, as MALLOC_CONF=stats_print:true asked for it. */
HIDDEN void stats_print_at_exit(void);

#endif
