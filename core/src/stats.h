/* stats.h: the account of the heap, for snug.h, for mallinfo and as JSON. Reads the counters; changes nothing. */
#ifndef SNUG_STATS_CORE_H
#define SNUG_STATS_CORE_H

#include "../include/snug.h"
#include "base.h"

HIDDEN void stats_collect(struct snug_stats *stats);
/* Live blocks with a mapping of their own: their bytes and number. */
HIDDEN size_t stats_large_bytes(size_t *blocks);

HIDDEN void stats_write_json(int fd);

#endif
