/* recording.h: makes a trace of what libsnug_record.so wrote (recording_format.h): puts the events of all threads
 * into their one order, and names blocks by slots instead of addresses. Does not know the trace file.
 *
 * The order is found without sorting, because sequence numbers are dense: an event is staged at the index of its
 * number. Then one walk with a table from address to slot names the blocks.
 */
#ifndef SNUG_TRACES_RECORDING_H
#define SNUG_TRACES_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace.h"

/* What did not fit together; all 0 when the program used only malloc and was recorded from its start. */
struct recording_notes {
  uint64_t unknown_frees; /* of blocks from before the recording (a forked child's), or not seen; left out */
  uint64_t implied_frees; /* of blocks whose address was handed out again: their free was not seen; put in */
  uint64_t lost_events;   /* the recorder says so */
};

bool recording_recognize(const void *contents, size_t size_bytes);

/* Reads a recording that lies in memory. Refuses what is not whole or not consistent; never reads outside. */
bool recording_decode(struct trace *trace, const void *contents, size_t size_bytes, struct recording_notes *notes,
                      char *message);

#endif
