/* answers.h: what the asker leaves where `snug leak` and `snug compare` read it, from outside of the process.
 *
 * The tool finds it by its symbol. Each number is written at once, but not all of them together: a reader may get one
 * from this answer and another from the one before. */
#ifndef SNUG_ANSWERS_H
#define SNUG_ANSWERS_H

#include <stdint.h>

#define SNUG_ANSWERS_MAGIC "snug answers 1\n" /* with the NUL, 16 bytes */

struct snug_answers {
  char magic[16];
  uint64_t answered_at_ns; /* CLOCK_MONOTONIC; 0: never in this process */
  uint64_t live_bytes;     /* allocated and not freed; blocks in the allocator's own caches may count as live */
  uint64_t resident_bytes; /* at most what the allocator holds in memory */
};

#endif
