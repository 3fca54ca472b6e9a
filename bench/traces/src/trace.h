/* trace.h: a trace in memory, and the compact file it is kept in. Does not know how it was recorded
 * (recording.h) or what it is run for (replay.h).
 *
 * In memory a trace is an array of events in the one order in which they are replayed. A live block is named by a
 * slot; slots are used again, so a table of slot_count entries holds all the blocks that ever live at once.
 *
 * In the file a block is named by its number: each call that returns a block gives it the next one, counting from
 * 1. Frees name it by age, the distance from the newest number, which is mostly small. An event is
 *
 *      7   5 4          3   0
 *     | kind | more? | value |   and while more: varint of the rest of the value, then further operands
 *
 *   MALLOC   size                     CALLOC  size
 *   ALIGNED  size, alignment_log2     FREE    age
 *   REALLOC  age, size                the block gets a new number
 *   THREAD   thread                   the events that follow are this thread's
 *   TIME     microseconds             since the last TIME
 *   END      0                        this thread ends; its number may be used again
 *
 * after a header of 96 bytes (struct trace_header), whose sums let a reader refuse a file that is not whole.
 *
 * Invariants of a loaded trace, whatever the file contained
 *  T1  Every event's slot is below slot_count, thread below thread_count, alignment_log2 below 32.
 *  T2  FREE and REALLOC name a slot that is live; MALLOC, CALLOC and ALIGNED one that is not.
 *  T3  TIME never goes back. An event after the END of its thread belongs to a new thread of that number.
 */
#ifndef SNUG_TRACES_TRACE_H
#define SNUG_TRACES_TRACE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC "snugtrc\n" /* 8 bytes, without its zero */

enum {
  TRACE_VERSION = 1,
  TRACE_THREADS_MAX = 65535,
  TRACE_ALIGNMENT_LOG2_MAX = 31,
};
#define TRACE_SIZE_BYTES_MAX ((uint64_t)1 << 47) /* of one block: all of user space */

enum event_kind {
  EVENT_MALLOC,
  EVENT_CALLOC,
  EVENT_ALIGNED,
  EVENT_FREE,
  EVENT_REALLOC,
  EVENT_THREAD, /* in the file only */
  EVENT_TIME,
  EVENT_END,
};

struct event {
  uint64_t size_bytes; /* TIME: microseconds since the start of the trace */
  uint32_t slot;
  uint16_t thread;
  uint8_t kind;
  uint8_t alignment_log2;
};
static_assert(sizeof(struct event) == 16, "millions of them");

/* What can be told without replaying. */
struct trace_summary {
  uint64_t call_count;       /* events that are calls: neither TIME nor END */
  uint64_t allocation_count; /* calls that return a block, realloc included */
  uint64_t free_count;
  uint64_t requested_bytes; /* sum over those calls */
  uint64_t peak_live_bytes;
  uint64_t end_live_bytes;
  uint64_t end_live_blocks;
  uint64_t duration_us;
  uint32_t threads_started;
};

struct trace {
  struct event *events;
  uint64_t event_count;
  size_t reserved_bytes; /* of events, for releasing them */
  uint32_t slot_count;
  uint32_t thread_count; /* at once, not in all */
  struct trace_summary summary;
};

struct trace_header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint64_t event_count;   /* in the file, THREAD included */
  uint64_t payload_bytes; /* after the header */
  uint64_t payload_sum;   /* trace_payload_sum of them */
  uint64_t allocation_count;
  uint64_t peak_live_bytes;
  uint64_t end_live_bytes;
  uint64_t duration_us;
  uint32_t slot_count;
  uint32_t thread_count;
  uint64_t reserved[2];
};
static_assert(sizeof(struct trace_header) == 96, "drawn above");

/* Makes the summary of events that fulfil T1 to T3, and refuses totals that cannot be true. */
bool trace_summarize(struct trace *trace, char *message);

/* Reads a trace file that lies in memory. Refuses what is not whole or not consistent; never reads outside. */
bool trace_decode(struct trace *trace, const void *contents, size_t size_bytes, char *message);

/* Writes the trace to `path`. */
bool trace_save(const struct trace *trace, const char *path, char *message);

/* Checks whether the contents begin like a trace file. */
bool trace_recognize(const void *contents, size_t size_bytes);

/* Drops everything after the moment `until_us` of the trace; what lives then lives at the end. */
bool trace_cut(struct trace *trace, uint64_t until_us, char *message);

uint64_t trace_payload_sum(const uint8_t *payload, size_t size_bytes);
void trace_release(struct trace *trace);

#endif
