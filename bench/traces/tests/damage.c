/* damage.c: reads traces and recordings that were damaged on purpose, thousands of times, and checks that each is
 * either refused with a message or fulfils the invariants T1 to T3 of trace.h. Built with the sanitizers, so a
 * read outside the file ends it.
 *
 *     damage FILE ROUNDS SEED
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "own_memory.h"
#include "recording.h"
#include "trace.h"

static uint64_t random_state;

static uint64_t random_number(uint64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (random_state >> 20) % below;
}

static void fail(const char *what, unsigned long long where) {
  fprintf(stderr, "damage: %s at event %llu\n", what, where);
  exit(1);
}

static void check_invariants(const struct trace *trace) {
  bool *live = own_memory_reserve(trace->slot_count);
  uint64_t time_us = 0;
  for (uint64_t i = 0; i < trace->event_count; i++) {
    const struct event *event = &trace->events[i];
    if (event->thread >= trace->thread_count || event->alignment_log2 > TRACE_ALIGNMENT_LOG2_MAX)
      fail("T1 is broken", i);
    if (event->kind == EVENT_TIME) {
      if (event->size_bytes < time_us) fail("T3 is broken", i);
      time_us = event->size_bytes;
      continue;
    }
    if (event->kind == EVENT_END) continue;
    if (event->slot >= trace->slot_count || event->kind == EVENT_THREAD) fail("T1 is broken", i);
    bool needs_live = event->kind == EVENT_FREE || event->kind == EVENT_REALLOC;
    if (live[event->slot] != needs_live) fail("T2 is broken", i);
    live[event->slot] = event->kind != EVENT_FREE;
  }
  own_memory_release(live, trace->slot_count);
}

/* Changes some bytes, most often a few; sometimes in the header, which is small and decides much. */
static void damage(unsigned char *bytes, size_t size_bytes) {
  uint64_t changes = 1 + random_number(8);
  for (uint64_t i = 0; i < changes; i++) {
    uint64_t range = random_number(4) == 0 && size_bytes > 128 ? 128 : size_bytes;
    uint64_t at = random_number(range);
    if (random_number(2))
      bytes[at] ^= (unsigned char)(1u << random_number(8));
    else
      bytes[at] = (unsigned char)random_number(256);
  }
}

/* A wrong check sum would refuse every damaged trace before anything else is looked at. */
static void repair_sum(unsigned char *bytes, size_t size_bytes) {
  struct trace_header header;
  if (size_bytes < sizeof header) return;
  memcpy(&header, bytes, sizeof header);
  header.payload_sum = trace_payload_sum(bytes + sizeof header, size_bytes - sizeof header);
  memcpy(bytes, &header, sizeof header);
}

static bool decode(const unsigned char *bytes, size_t size_bytes, struct trace *trace, char *message) {
  struct recording_notes notes;
  if (recording_recognize(bytes, size_bytes)) return recording_decode(trace, bytes, size_bytes, &notes, message);
  if (trace_recognize(bytes, size_bytes)) return trace_decode(trace, bytes, size_bytes, message);
  return refuse(message, "not recognized");
}

int main(int argument_count, char **arguments) {
  char message[MESSAGE_BYTES] = "";
  const void *contents;
  size_t size_bytes;
  if (argument_count != 4 || !own_memory_map_file(arguments[1], &contents, &size_bytes, message)) {
    fprintf(stderr, "usage: damage FILE ROUNDS SEED; %s\n", message);
    return 2;
  }
  random_state = strtoull(arguments[3], NULL, 10);
  unsigned long long accepted = 0, rounds = strtoull(arguments[2], NULL, 10);
  for (unsigned long long round = 0; round < rounds; round++) {
    /* malloc, so that the sanitizer sees the exact end */
    size_t kept_bytes = random_number(10) == 0 ? random_number(size_bytes + 1) : size_bytes;
    unsigned char *copy = malloc(kept_bytes + 1);
    unsigned char *bytes = kept_bytes ? realloc(copy, kept_bytes) : copy;
    memcpy(bytes, contents, kept_bytes);
    if (round > 0 && kept_bytes > 0) /* round 0 is the whole file: it must be accepted */
      damage(bytes, kept_bytes);
    if (round > 0 && trace_recognize(bytes, kept_bytes)) repair_sum(bytes, kept_bytes);
    struct trace trace;
    message[0] = '\0';
    if (decode(bytes, kept_bytes, &trace, message)) {
      accepted++;
      check_invariants(&trace);
      trace_release(&trace);
    } else if (message[0] == '\0') {
      fail("a refusal without a message", round);
    }
    free(bytes);
  }
  printf("%llu rounds, %llu accepted\n", rounds, accepted);
  return accepted == 0;
}
