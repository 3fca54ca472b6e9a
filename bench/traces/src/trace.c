/* trace.c: see trace.h. */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "own_memory.h"
#include "slots.h"
#include "varint.h"

enum {
  HEAD_KIND_SHIFT = 5,
  HEAD_MORE = 1 << 4,
  HEAD_VALUE_BITS = 4,
  HEAD_VALUE_MASK = (1 << HEAD_VALUE_BITS) - 1,
  EVENT_FILE_BYTES_MAX = 1 + 3 * VARINT_BYTES_MAX,
};

static const uint64_t TIME_US_MAX = (uint64_t)1 << 52; /* far beyond any recording, far from overflow */

bool trace_recognize(const void *contents, size_t size_bytes) {
  return size_bytes >= 8 && memcmp(contents, TRACE_MAGIC, 8) == 0;
}

uint64_t trace_payload_sum(const uint8_t *payload, size_t size_bytes) {
  uint64_t sum = 0xcbf29ce484222325u; /* FNV-1a */
  for (size_t i = 0; i < size_bytes; i++) sum = (sum ^ payload[i]) * 0x100000001b3u;
  return sum;
}

void trace_release(struct trace *trace) { own_memory_release(trace->events, trace->reserved_bytes); }

/* Summary */

static bool returns_block(uint8_t kind) {
  return kind == EVENT_MALLOC || kind == EVENT_CALLOC || kind == EVENT_ALIGNED || kind == EVENT_REALLOC;
}

/* Adds a call to the summary. sizes[slot] is what lives there. */
static void summarize_call(struct trace_summary *summary, uint64_t *sizes, const struct event *event) {
  summary->call_count++;
  if (event->kind == EVENT_FREE || event->kind == EVENT_REALLOC) {
    summary->end_live_bytes -= sizes[event->slot];
    summary->end_live_blocks--;
  }
  if (event->kind == EVENT_FREE) {
    summary->free_count++;
    return;
  }
  sizes[event->slot] = event->size_bytes;
  summary->allocation_count++;
  summary->requested_bytes += event->size_bytes;
  summary->end_live_bytes += event->size_bytes;
  summary->end_live_blocks++;
  if (summary->end_live_bytes > summary->peak_live_bytes) summary->peak_live_bytes = summary->end_live_bytes;
}

bool trace_summarize(struct trace *trace, char *message) {
  struct trace_summary summary = {0};
  size_t sizes_bytes = (size_t)trace->slot_count * sizeof(uint64_t);
  uint64_t *sizes = own_memory_reserve(sizes_bytes);
  bool *started = own_memory_reserve(TRACE_THREADS_MAX);
  for (uint64_t i = 0; i < trace->event_count && summary.peak_live_bytes <= TRACE_SIZE_BYTES_MAX; i++) {
    const struct event *event = &trace->events[i];
    if (event->kind == EVENT_TIME) {
      summary.duration_us = event->size_bytes;
      continue;
    }
    summary.threads_started += !started[event->thread];
    started[event->thread] = event->kind != EVENT_END;
    if (event->kind != EVENT_END) summarize_call(&summary, sizes, event);
  }
  own_memory_release(started, TRACE_THREADS_MAX);
  own_memory_release(sizes, sizes_bytes);
  trace->summary = summary;
  if (summary.peak_live_bytes > TRACE_SIZE_BYTES_MAX)
    return refuse(message, "damaged: more bytes live at once than an address space holds; record it again");
  return true;
}

bool trace_cut(struct trace *trace, uint64_t until_us, char *message) {
  for (uint64_t i = 0; i < trace->event_count; i++) {
    if (trace->events[i].kind == EVENT_TIME && trace->events[i].size_bytes > until_us) trace->event_count = i;
  }
  return trace_summarize(trace, message);
}

/* Reading */

struct decoder {
  struct byte_reader reader;
  struct trace *trace;
  const struct trace_header *header;
  struct slots slots;
  uint32_t *slot_of; /* by block number; SLOT_DEAD once freed */
  uint64_t newest;   /* block number */
  uint64_t time_us;
  uint16_t thread;
};

static const uint32_t SLOT_DEAD = UINT32_MAX;

static bool refuse_damaged(char *message, const char *what) {
  return refuse(message, "damaged: %s; copy it again or record it again", what);
}

static bool check_header(const struct trace_header *header, size_t size_bytes, char *message) {
  if (size_bytes < sizeof *header || !trace_recognize(header, size_bytes))
    return refuse(message, "not a trace: it does not start with \"snugtrc\"");
  if (header->version != TRACE_VERSION || header->header_bytes != sizeof *header)
    return refuse(message, "version %u of the trace format; this snug-replay reads version %d", header->version,
                  TRACE_VERSION);
  size_t payload_bytes = size_bytes - sizeof *header;
  if (header->payload_bytes > payload_bytes)
    return refuse(message, "truncated: %zu of %llu bytes are there; copy it again or record it again", size_bytes,
                  (unsigned long long)(header->payload_bytes + sizeof *header));
  if (header->payload_bytes < payload_bytes) return refuse_damaged(message, "more bytes than its header says");
  if (header->event_count > payload_bytes || header->allocation_count > payload_bytes ||
      header->slot_count > header->allocation_count || header->thread_count > TRACE_THREADS_MAX)
    return refuse_damaged(message, "the header's counts do not fit its size");
  if (trace_payload_sum((const uint8_t *)(header + 1), payload_bytes) != header->payload_sum)
    return refuse_damaged(message, "its check sum is wrong");
  return true;
}

/* Takes the block of that age out of the numbering. */
static bool decode_age(struct decoder *d, uint64_t age, uint32_t *slot) {
  if (age >= d->newest) return false;
  uint64_t number = d->newest - age;
  *slot = d->slot_of[number];
  d->slot_of[number] = SLOT_DEAD;
  return *slot != SLOT_DEAD;
}

static bool number_block(struct decoder *d, uint32_t slot) {
  if (d->newest >= d->header->allocation_count || slot >= d->header->slot_count) return false;
  d->slot_of[++d->newest] = slot;
  return true;
}

static bool decode_call(struct decoder *d, struct event *event, uint64_t value) {
  event->thread = d->thread;
  event->size_bytes = value;
  if (event->kind == EVENT_FREE || event->kind == EVENT_REALLOC) {
    if (!decode_age(d, value, &event->slot)) return false;
    event->size_bytes = event->kind == EVENT_REALLOC ? read_varint(&d->reader) : 0;
  } else {
    event->slot = slots_take(&d->slots);
  }
  if (event->kind == EVENT_ALIGNED) {
    uint64_t alignment_log2 = read_varint(&d->reader);
    if (alignment_log2 > TRACE_ALIGNMENT_LOG2_MAX) return false;
    event->alignment_log2 = (uint8_t)alignment_log2;
  }
  if (event->kind == EVENT_FREE)
    slots_give_back(&d->slots, event->slot);
  else if (!number_block(d, event->slot))
    return false;
  return event->size_bytes <= TRACE_SIZE_BYTES_MAX;
}

/* Decodes one event of the file; false if it breaks a rule of the format. */
static bool decode_event(struct decoder *d) {
  uint8_t head = read_byte(&d->reader);
  uint64_t value = head & HEAD_VALUE_MASK;
  if (head & HEAD_MORE) {
    uint64_t rest = read_varint(&d->reader);
    if (rest >> (64 - HEAD_VALUE_BITS)) return false;
    value |= rest << HEAD_VALUE_BITS;
  }
  struct event event = {.kind = head >> HEAD_KIND_SHIFT, .thread = d->thread};
  switch (event.kind) {
    case EVENT_THREAD: d->thread = (uint16_t)value; return value < d->header->thread_count;
    case EVENT_TIME:
      if (value > TIME_US_MAX - d->time_us) return false;
      event.size_bytes = d->time_us += value;
      break;
    case EVENT_END: break;
    default:
      if (!decode_call(d, &event, value)) return false;
  }
  d->trace->events[d->trace->event_count++] = event;
  return !d->reader.failed;
}

static bool decode_payload(struct decoder *d, char *message) {
  const struct trace_header *header = d->header;
  if (header->thread_count == 0 && header->event_count > 0) return refuse_damaged(message, "events without a thread");
  for (uint64_t i = 0; i < header->event_count; i++) {
    if (!decode_event(d))
      return refuse(message, "damaged: event %llu makes no sense; copy it again or record it again",
                    (unsigned long long)i);
  }
  d->trace->slot_count = d->slots.count;
  d->trace->thread_count = header->thread_count;
  if (d->reader.next != d->reader.end) return refuse_damaged(message, "bytes are left after the last event");
  if (!trace_summarize(d->trace, message)) return false;
  const struct trace_summary *summary = &d->trace->summary;
  if (summary->allocation_count != header->allocation_count || summary->peak_live_bytes != header->peak_live_bytes ||
      summary->end_live_bytes != header->end_live_bytes || summary->duration_us != header->duration_us)
    return refuse_damaged(message, "the events do not add up to the header's sums");
  return true;
}

bool trace_decode(struct trace *trace, const void *contents, size_t size_bytes, char *message) {
  const struct trace_header *header = contents;
  if (!check_header(header, size_bytes, message)) return false;
  const uint8_t *payload = (const uint8_t *)(header + 1);
  *trace = (struct trace){.reserved_bytes = header->event_count * sizeof(struct event)};
  trace->events = own_memory_reserve(trace->reserved_bytes);
  struct decoder decoder = {
      .reader = {.next = payload, .end = payload + header->payload_bytes},
      .trace = trace,
      .header = header,
  };
  size_t numbers_bytes = (header->allocation_count + 1) * sizeof(uint32_t);
  slots_start(&decoder.slots, header->event_count);
  decoder.slot_of = own_memory_reserve(numbers_bytes);
  bool decoded = decode_payload(&decoder, message);
  own_memory_release(decoder.slot_of, numbers_bytes);
  slots_release(&decoder.slots);
  if (!decoded) trace_release(trace);
  return decoded;
}

/* Writing */

struct encoder {
  uint8_t *cursor;
  uint64_t *number_of; /* by slot */
  uint64_t newest;     /* block number */
  uint64_t time_us;
  uint64_t event_count;
  uint16_t thread;
};

static void put_head(struct encoder *e, enum event_kind kind, uint64_t value) {
  uint8_t head = (uint8_t)(kind << HEAD_KIND_SHIFT | (value & HEAD_VALUE_MASK));
  e->event_count++;
  if (value >> HEAD_VALUE_BITS == 0) {
    *e->cursor++ = head;
    return;
  }
  *e->cursor++ = head | HEAD_MORE;
  e->cursor = put_varint(e->cursor, value >> HEAD_VALUE_BITS);
}

static void encode_event(struct encoder *e, const struct event *event) {
  if (event->kind == EVENT_TIME) {
    put_head(e, EVENT_TIME, event->size_bytes - e->time_us);
    e->time_us = event->size_bytes;
    return;
  }
  if (event->thread != e->thread) put_head(e, EVENT_THREAD, event->thread);
  e->thread = event->thread;
  switch (event->kind) {
    case EVENT_FREE: put_head(e, EVENT_FREE, e->newest - e->number_of[event->slot]); break;
    case EVENT_REALLOC:
      put_head(e, EVENT_REALLOC, e->newest - e->number_of[event->slot]);
      e->cursor = put_varint(e->cursor, event->size_bytes);
      break;
    default: put_head(e, event->kind, event->size_bytes);
  }
  if (event->kind == EVENT_ALIGNED) e->cursor = put_varint(e->cursor, event->alignment_log2);
  if (returns_block(event->kind)) e->number_of[event->slot] = ++e->newest;
}

static bool write_whole(const char *path, const void *bytes, size_t size_bytes, char *message) {
  int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return refuse(message, "cannot create %s: %s", path, strerrordesc_np(errno));
  for (size_t done = 0; done < size_bytes;) {
    ssize_t written = write(descriptor, (const char *)bytes + done, size_bytes - done);
    if (written < 0 && errno != EINTR) {
      refuse(message, "cannot write %s: %s", path, strerrordesc_np(errno));
      close(descriptor);
      return false;
    }
    done += written > 0 ? (size_t)written : 0;
  }
  if (close(descriptor) != 0) return refuse(message, "cannot write %s: %s", path, strerrordesc_np(errno));
  return true;
}

bool trace_save(const struct trace *trace, const char *path, char *message) {
  size_t file_bytes_max = sizeof(struct trace_header) + trace->event_count * EVENT_FILE_BYTES_MAX;
  size_t numbers_bytes = (size_t)trace->slot_count * sizeof(uint64_t);
  uint8_t *file = own_memory_reserve(file_bytes_max);
  struct trace_header *header = (struct trace_header *)file;
  uint8_t *payload = file + sizeof *header;
  struct encoder encoder = {.cursor = payload, .number_of = own_memory_reserve(numbers_bytes)};
  for (uint64_t i = 0; i < trace->event_count; i++) encode_event(&encoder, &trace->events[i]);
  size_t payload_bytes = (size_t)(encoder.cursor - payload);
  *header = (struct trace_header){
      .magic = {'s', 'n', 'u', 'g', 't', 'r', 'c', '\n'},
      .version = TRACE_VERSION,
      .header_bytes = sizeof *header,
      .event_count = encoder.event_count,
      .payload_bytes = payload_bytes,
      .payload_sum = trace_payload_sum(payload, payload_bytes),
      .allocation_count = trace->summary.allocation_count,
      .peak_live_bytes = trace->summary.peak_live_bytes,
      .end_live_bytes = trace->summary.end_live_bytes,
      .duration_us = trace->summary.duration_us,
      .slot_count = trace->slot_count,
      .thread_count = trace->thread_count,
  };
  bool saved = write_whole(path, file, sizeof *header + payload_bytes, message);
  own_memory_release(encoder.number_of, numbers_bytes);
  own_memory_release(file, file_bytes_max);
  return saved;
}
