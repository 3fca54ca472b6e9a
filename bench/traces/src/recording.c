/* recording.c: see recording.h. */
#include "recording.h"

#include <string.h>

#include "address_table.h"
#include "message.h"
#include "own_memory.h"
#include "recording_format.h"
#include "slots.h"
#include "varint.h"

/* An event at the index of its sequence number. A realloc has two: the old address at its first number, everything
 * else at its last. */
struct staged {
  uint64_t address;    /* in units of 16 bytes, as recorded */
  uint64_t size_bytes; /* REALLOC_START: sequence number of its end */
  uint64_t time_us;
  uint32_t thread;
  uint8_t kind; /* of record_kind, or one of the two below; RECORD_NONE: nothing has this number */
  uint8_t alignment_log2;
  uint32_t slot; /* of the block that a realloc took, or SLOT_NONE */
};

enum { STAGED_REALLOC_START = 100, STAGED_REALLOC_END };
static const uint32_t SLOT_NONE = UINT32_MAX;

struct thread_span {
  uint64_t last_sequence;
  uint32_t number; /* in the trace, once it has started */
  bool exited;
  bool started;
};

struct staging {
  struct staged *events;
  uint64_t sequence_end; /* numbers are below it */
  struct thread_span *threads;
  uint32_t thread_count;
  uint64_t last_sequence; /* greatest that is staged */
};

/* State of one segment of a chunk. */
struct segment {
  uint64_t sequence;
  uint64_t address;
  uint64_t time_us;
  uint32_t thread;
  bool started;
};

bool recording_recognize(const void *contents, size_t size_bytes) {
  return size_bytes >= 8 && memcmp(contents, RECORDING_MAGIC, 8) == 0;
}

/* Staging */

static bool check_header(const struct recording_header *header, size_t size_bytes, char *message) {
  if (size_bytes < RECORDING_HEADER_BYTES)
    return refuse(message, "truncated: not even its header is whole; record it again");
  if (header->version != RECORDING_VERSION || header->chunk_bytes != RECORDING_CHUNK_BYTES)
    return refuse(message, "version %u of the recording format; this snug-replay reads version %d", header->version,
                  RECORDING_VERSION);
  uint64_t whole_bytes = RECORDING_HEADER_BYTES + (uint64_t)header->chunk_count * RECORDING_CHUNK_BYTES;
  if (size_bytes < whole_bytes)
    return refuse(message, "truncated: %zu of %llu bytes are there; copy it again or record it again", size_bytes,
                  (unsigned long long)whole_bytes);
  /* Each number stands for at least one byte of a record; failed calls, which have none, are rare. */
  if (header->sequence_count > whole_bytes + (1u << 20) || header->thread_count > whole_bytes)
    return refuse(message, "damaged: its counts do not fit its size; record it again");
  return true;
}

/* Claims the place of a sequence number; NULL if there is none such or it is taken. */
static struct staged *stage(struct staging *staging, uint64_t sequence, const struct segment *segment, uint8_t kind) {
  if (sequence == 0 || sequence >= staging->sequence_end || staging->events[sequence].kind != RECORD_NONE) return NULL;
  struct thread_span *thread = &staging->threads[segment->thread];
  if (sequence > thread->last_sequence) thread->last_sequence = sequence;
  if (sequence > staging->last_sequence) staging->last_sequence = sequence;
  struct staged *event = &staging->events[sequence];
  *event = (struct staged){.kind = kind, .thread = segment->thread, .time_us = segment->time_us, .slot = SLOT_NONE};
  return event;
}

static bool stage_realloc_start(struct staging *staging, struct segment *segment, struct byte_reader *reader) {
  uint64_t old_address = segment->address + (uint64_t)unfold_sign(read_varint(reader));
  uint64_t sequence_end = segment->sequence + 1 + read_varint(reader);
  struct staged *start = stage(staging, segment->sequence, segment, STAGED_REALLOC_START);
  if (!start || sequence_end <= segment->sequence) return false;
  start->address = old_address;
  start->size_bytes = sequence_end;
  segment->sequence = sequence_end;
  return true;
}

static bool stage_call(struct staging *staging, struct segment *segment, struct byte_reader *reader, uint8_t head) {
  uint8_t kind = head & 15;
  uint64_t step = head >> 4;
  if (step == RECORDING_SEQUENCE_ESCAPE) step += read_varint(reader);
  segment->sequence += step + 1;
  segment->address += (uint64_t)unfold_sign(read_varint(reader));
  uint64_t size_bytes = kind == RECORD_FREE ? 0 : read_varint(reader);
  uint64_t alignment_log2 = kind == RECORD_ALIGNED ? read_varint(reader) : 0;
  if (size_bytes > TRACE_SIZE_BYTES_MAX || alignment_log2 > TRACE_ALIGNMENT_LOG2_MAX || reader->failed) return false;
  if (kind == RECORD_REALLOC) {
    if (!stage_realloc_start(staging, segment, reader)) return false;
    kind = STAGED_REALLOC_END;
  }
  struct staged *event = stage(staging, segment->sequence, segment, kind);
  if (!event || reader->failed) return false;
  event->address = segment->address;
  event->size_bytes = size_bytes;
  event->alignment_log2 = (uint8_t)alignment_log2;
  return true;
}

static bool stage_record(struct staging *staging, struct segment *segment, struct byte_reader *reader) {
  uint8_t head = read_byte(reader);
  uint8_t kind = head & 15;
  if (kind == RECORD_SEGMENT) {
    *segment = (struct segment){.started = true};
    uint64_t thread = read_varint(reader);
    segment->thread = (uint32_t)thread;
    return thread < staging->thread_count;
  }
  if (!segment->started) return false;
  if (kind == RECORD_TIME) {
    segment->time_us += read_varint(reader);
    return segment->time_us < (uint64_t)1 << 52;
  }
  if (kind == RECORD_EXIT) return staging->threads[segment->thread].exited = true;
  return kind >= RECORD_MALLOC && kind <= RECORD_REALLOC && stage_call(staging, segment, reader, head);
}

static bool stage_chunk(struct staging *staging, const struct recording_chunk *chunk) {
  uint32_t used_bytes = chunk->used_bytes;
  if (used_bytes > RECORDING_CHUNK_BYTES - sizeof *chunk) return false;
  struct byte_reader reader = {.next = chunk->records, .end = chunk->records + used_bytes};
  struct segment segment = {.started = false};
  while (reader.next < reader.end) {
    if (!stage_record(staging, &segment, &reader) || reader.failed) return false;
  }
  return true;
}

/* Naming */

struct naming {
  struct staging *staging;
  struct trace *trace;
  struct recording_notes *notes;
  struct address_table live;
  struct slots slots;
  struct slots thread_numbers;
  uint64_t time_us;
};

static void emit(struct naming *n, struct event event) { n->trace->events[n->trace->event_count++] = event; }

/* The trace's number for the thread of an event; 65,535 and more are refused by the caller. */
static uint16_t thread_number(struct naming *n, uint32_t recorded) {
  struct thread_span *thread = &n->staging->threads[recorded];
  if (!thread->started) {
    thread->started = true;
    thread->number = slots_take(&n->thread_numbers);
  }
  return (uint16_t)thread->number;
}

/* Ends the thread if nothing of it comes after this sequence number. */
static void end_thread(struct naming *n, uint32_t recorded, uint64_t sequence) {
  struct thread_span *thread = &n->staging->threads[recorded];
  if (!thread->exited || sequence != thread->last_sequence) return;
  emit(n, (struct event){.kind = EVENT_END, .thread = thread_number(n, recorded)});
  slots_give_back(&n->thread_numbers, thread->number);
}

/* Makes a block of that slot live at the event's address. */
static void bind_address(struct naming *n, const struct staged *staged, uint32_t slot, uint16_t thread) {
  uint32_t forgotten;
  if (address_table_take(&n->live, staged->address, &forgotten)) {
    n->notes->implied_frees++;
    emit(n, (struct event){.kind = EVENT_FREE, .slot = forgotten, .thread = thread});
    slots_give_back(&n->slots, forgotten);
  }
  address_table_add(&n->live, staged->address, slot);
}

static void name_allocation(struct naming *n, const struct staged *staged, uint16_t thread) {
  static const uint8_t kinds[] = {[RECORD_MALLOC] = EVENT_MALLOC,
                                  [RECORD_CALLOC] = EVENT_CALLOC,
                                  [RECORD_ALIGNED] = EVENT_ALIGNED,
                                  [STAGED_REALLOC_END] = EVENT_REALLOC};
  struct event event = {.kind = kinds[staged->kind],
                        .size_bytes = staged->size_bytes,
                        .alignment_log2 = staged->alignment_log2,
                        .thread = thread};
  event.slot = staged->slot;
  if (staged->slot == SLOT_NONE) {
    if (event.kind == EVENT_REALLOC) /* of a block from before the recording */
      event.kind = EVENT_MALLOC;
    event.slot = slots_take(&n->slots);
  }
  bind_address(n, staged, event.slot, thread);
  emit(n, event);
}

static void name_event(struct naming *n, uint64_t sequence) {
  const struct staged *staged = &n->staging->events[sequence];
  if (staged->time_us > n->time_us) {
    n->time_us = staged->time_us;
    emit(n, (struct event){.kind = EVENT_TIME, .size_bytes = n->time_us});
  }
  uint16_t thread = thread_number(n, staged->thread);
  uint32_t slot;
  if (staged->kind == STAGED_REALLOC_START) {
    if (address_table_take(&n->live, staged->address, &slot))
      n->staging->events[staged->size_bytes].slot = slot;
    else
      n->notes->unknown_frees++;
  } else if (staged->kind != RECORD_FREE) {
    name_allocation(n, staged, thread);
  } else if (address_table_take(&n->live, staged->address, &slot)) {
    emit(n, (struct event){.kind = EVENT_FREE, .slot = slot, .thread = thread});
    slots_give_back(&n->slots, slot);
  } else {
    n->notes->unknown_frees++;
  }
  end_thread(n, staged->thread, sequence);
}

static bool name_events(struct staging *staging, struct trace *trace, struct recording_notes *notes, char *message) {
  uint64_t staged_end = staging->last_sequence + 1;
  /* An event may bring a TIME and an implied FREE with it, and a thread its END. */
  *trace = (struct trace){.reserved_bytes = (3 * staged_end + staging->thread_count) * sizeof(struct event)};
  trace->events = own_memory_reserve(trace->reserved_bytes);
  struct naming naming = {.staging = staging, .trace = trace, .notes = notes};
  address_table_start(&naming.live);
  slots_start(&naming.slots, staged_end);
  slots_start(&naming.thread_numbers, staging->thread_count);
  for (uint64_t sequence = 1; sequence < staged_end; sequence++) {
    if (staging->events[sequence].kind != RECORD_NONE) name_event(&naming, sequence);
  }
  trace->slot_count = naming.slots.count;
  trace->thread_count = naming.thread_numbers.count;
  slots_release(&naming.thread_numbers);
  slots_release(&naming.slots);
  address_table_release(&naming.live);
  bool named =
      trace->thread_count <= TRACE_THREADS_MAX
          ? trace_summarize(trace, message)
          : refuse(message, "%u threads at once; at most %d can be replayed", trace->thread_count, TRACE_THREADS_MAX);
  if (!named) trace_release(trace);
  return named;
}

bool recording_decode(struct trace *trace, const void *contents, size_t size_bytes, struct recording_notes *notes,
                      char *message) {
  const struct recording_header *header = contents;
  if (!check_header(header, size_bytes, message)) return false;
  *notes = (struct recording_notes){.lost_events = header->lost_events};
  struct staging staging = {.sequence_end = header->sequence_count + 1, .thread_count = header->thread_count};
  size_t events_bytes = staging.sequence_end * sizeof(struct staged);
  size_t threads_bytes = staging.thread_count * sizeof(struct thread_span);
  staging.events = own_memory_reserve(events_bytes);
  staging.threads = own_memory_reserve(threads_bytes);
  bool decoded = true;
  for (uint32_t i = 0; i < header->chunk_count && decoded; i++) {
    const uint8_t *chunk = (const uint8_t *)contents + RECORDING_HEADER_BYTES + (size_t)i * RECORDING_CHUNK_BYTES;
    decoded = stage_chunk(&staging, (const struct recording_chunk *)chunk);
    if (!decoded) refuse(message, "damaged: chunk %u makes no sense; copy it again or record it again", i);
  }
  if (decoded) decoded = name_events(&staging, trace, notes, message);
  own_memory_release(staging.threads, threads_bytes);
  own_memory_release(staging.events, events_bytes);
  return decoded;
}
