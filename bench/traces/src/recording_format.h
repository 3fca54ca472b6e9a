/* recording_format.h: the file that libsnug_record.so writes while a program runs.
 * Does not know how it is written (recorder.c) or made into a trace (recording.c).
 *
 *   | header, 4096 bytes | chunk 0, 64 KiB | chunk 1 | ... | chunk chunk_count-1 |
 *
 * A chunk belongs to one thread at a time, which writes into it through a shared mapping of the file: nothing is
 * buffered in the process, so a server that is killed loses no event. A chunk starts with `used_bytes` and holds
 * that many bytes of records after its 16-byte header. A record is one byte,
 *
 *      7        4 3       0
 *     | sequence | kind    |   and then, by kind:
 *
 *   SEGMENT  thread          the records that follow are this thread's; differences start again from 0
 *   TIME     time            microseconds since the start, as the difference to the segment's last one
 *   EXIT                     the thread has run its destructors: it ends after its last event
 *   MALLOC   address size
 *   CALLOC   address size    size is the product
 *   ALIGNED  address size alignment_log2
 *   FREE     address
 *   REALLOC  address size old_address sequence_end
 *
 * All operands are varints. Addresses are differences to the segment's last address in units of 16 bytes, sign
 * folded. `sequence` is the difference of the event's sequence number to the segment's last one, less 1, if
 * that is below 15; else 15, and the rest follows as a varint before the other operands.
 *
 * Order. Every event draws its number from one counter of the process: an allocation after the block is there, a free
 * before it is gone. So if two events name the same address, the one that could only come first has the lower
 * number, whatever thread it ran on, and sorting by number gives an order in which no block is used before it
 * exists. A realloc needs two numbers, one before and one after: the old block may be somebody else's in between.
 * Calls that failed (NULL) are not recorded; their numbers are missing.
 */
#ifndef SNUG_TRACES_RECORDING_FORMAT_H
#define SNUG_TRACES_RECORDING_FORMAT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#define RECORDING_MAGIC "snugrec\n" /* 8 bytes, without its zero */

enum {
  RECORDING_VERSION = 1,
  RECORDING_HEADER_BYTES = 4096,
  RECORDING_CHUNK_BYTES = 65536,
  RECORDING_ADDRESS_SHIFT = 4, /* malloc aligns to 16 */
  RECORDING_SEQUENCE_ESCAPE = 15,
};

enum record_kind {
  RECORD_NONE, /* never written: an untouched byte of a chunk */
  RECORD_SEGMENT,
  RECORD_TIME,
  RECORD_EXIT,
  RECORD_MALLOC,
  RECORD_CALLOC,
  RECORD_ALIGNED,
  RECORD_FREE,
  RECORD_REALLOC,
};

struct recording_header {
  char magic[8];
  uint32_t version;
  uint32_t chunk_bytes;
  uint32_t pid;
  uint32_t parent_pid;
  uint64_t start_ns;               /* CLOCK_MONOTONIC */
  _Atomic uint32_t chunk_count;    /* chunks handed out; all of them are in the file */
  _Atomic uint32_t thread_count;   /* numbers handed out to threads */
  _Atomic uint64_t sequence_count; /* numbers handed out to events */
  _Atomic uint64_t lost_events;    /* events of signal handlers that ran inside the recorder, or after it stopped */
};

struct recording_chunk {
  _Atomic uint32_t used_bytes; /* of records; raised after a record is whole */
  uint32_t reserved[3];
  uint8_t records[];
};

static_assert(sizeof(struct recording_header) <= RECORDING_HEADER_BYTES, "the header has its own page");
static_assert(sizeof(struct recording_chunk) == 16, "drawn above");

#endif
