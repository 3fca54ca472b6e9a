/* recording_writer.h: writes the events of this process into its recording (recording_format.h).
 * Does not know where events come from: recorder.c stands in for malloc and calls it.
 *
 * Cost of an event: one atomic addition, one coarse clock, some ten bytes stored; about 30 ns.
 *
 * Invariants
 *  W1  Nothing here allocates with malloc, and errno is left as it was.
 *  W2  A process only writes into its own file. Everything that says which file that is lies in one page that the
 *      kernel hands to a forked child zeroed (MADV_WIPEONFORK), so the child finds itself without a recording and
 *      opens one, whatever way it was forked.
 *  W3  A chunk is written by one thread at a time: the one whose writer points to it, or the holder of the lock.
 *  W4  No descriptor stays open between calls: programs that close descriptors they do not know are common, and
 *      the number would come to mean one of their own files.
 */
#ifndef SNUG_TRACES_RECORDING_WRITER_H
#define SNUG_TRACES_RECORDING_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "recording_format.h"

/* Draws the sequence number of a realloc that is about to start; 0 if it cannot be recorded. */
uint64_t recording_draw_sequence(void);

/* Writes down that `block` was allocated. To be called after it was; block is not NULL. */
void recording_allocated(enum record_kind kind, const void *block, size_t size_bytes, unsigned alignment_log2);

/* Writes down that `block` is freed. To be called before it is. */
void recording_freed(const void *block);

/* Writes down that `old_block` became `block`; `sequence` was drawn before it did. */
void recording_reallocated(uint64_t sequence, const void *old_block, const void *block, size_t size_bytes);

#endif
