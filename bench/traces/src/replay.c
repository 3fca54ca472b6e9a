/* replay.c: see replay.h. */
#define _GNU_SOURCE
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "message.h"
#include "own_memory.h"
#include "ticks.h"

enum {
  STACK_BYTES = 128 << 10, /* some allocators want much thread-local storage, which lies there too */
  SAMPLE_STEP_US_MIN = 1000,
};

struct block {
  unsigned char *address;
  uint64_t size_bytes;
};

struct worker {
  _Atomic uint32_t has_token;
  uint32_t number; /* of its thread in the trace */
  bool started;
  bool ended; /* at its END event; to be joined */
  char *stack;
  pthread_t thread;
  struct replay *replay;
};

struct replay {
  const struct trace *trace;
  const struct replay_options *options;
  struct replay_result *result;
  struct sampler *sampler;
  struct block *blocks; /* by slot */
  struct worker *workers;
  struct worker conductor;
  struct worker *ended; /* waits to be joined */
  uint64_t next_event;
  uint64_t live_bytes;
  uint64_t start_ns;
  uint64_t sample_step_us;
  uint64_t next_sample_us;
  uint64_t call_ticks;
  uint64_t work_ns;
  uint64_t paused_ns; /* of the current turn */
};

/* Blocks */

/* Writes what --touch says into block bytes from `from` on. The value lets --verify know the block again. */
static void touch_block(const struct replay *r, const struct block *block, uint64_t from, uint32_t slot) {
  if (from >= block->size_bytes || r->options->touch == TOUCH_NONE) return;
  if (r->options->touch == TOUCH_FIRST)
    block->address[0] = (unsigned char)slot;
  else
    memset(block->address + from, (unsigned char)slot, block->size_bytes - from);
}

/* Checks that nobody else wrote into the first `size_bytes` of the block. */
static void verify_block(struct replay *r, const struct block *block, uint64_t size_bytes, uint32_t slot) {
  if (!r->options->verify || !block->address || r->options->touch == TOUCH_NONE) return;
  uint64_t checked_bytes = r->options->touch == TOUCH_FIRST && size_bytes > 1 ? 1 : size_bytes;
  for (uint64_t i = 0; i < checked_bytes; i++) {
    if (block->address[i] != (unsigned char)slot) {
      r->result->corrupt_blocks++;
      return;
    }
  }
}

static void verify_zero(struct replay *r, const struct block *block) {
  for (uint64_t i = 0; r->options->verify && block->address && i < block->size_bytes; i++) {
    if (block->address[i] != 0) {
      r->result->corrupt_blocks++;
      return;
    }
  }
}

/* Checks the address: every block is aligned to 16 bytes, except that smaller ones may be to 8. */
static void verify_alignment(struct replay *r, const struct event *event, const void *address) {
  uint64_t alignment_bytes = event->size_bytes < 16 ? 8 : 16;
  if (event->alignment_log2 > 4) alignment_bytes = (uint64_t)1 << event->alignment_log2;
  if (r->options->verify && (uintptr_t)address % alignment_bytes != 0) r->result->corrupt_blocks++;
}

static void *call_allocator(struct replay *r, const struct event *event) {
  void *address = NULL;
  uint64_t start = read_ticks();
  switch (event->kind) {
    case EVENT_MALLOC: address = malloc(event->size_bytes); break;
    case EVENT_CALLOC: address = calloc(1, event->size_bytes); break;
    case EVENT_ALIGNED:
      /* posix_memalign refuses less than a pointer; memalign, which asked for it, does not exist everywhere. */
      if (posix_memalign(&address, (size_t)1 << (event->alignment_log2 < 3 ? 3 : event->alignment_log2),
                         event->size_bytes) != 0)
        address = NULL;
      break;
    default:
      /* realloc to 0 is a free for some; the recorder writes that as FREE, so only a crafted file has it. */
      address = realloc(r->blocks[event->slot].address, event->size_bytes ? event->size_bytes : 1);
  }
  r->call_ticks += read_ticks() - start;
  return address;
}

static void allocate(struct replay *r, const struct event *event) {
  struct block *block = &r->blocks[event->slot];
  void *address = call_allocator(r, event);
  r->result->failed_calls += address == NULL;
  *block = (struct block){.address = address, .size_bytes = address ? event->size_bytes : 0};
  r->live_bytes += block->size_bytes;
  verify_alignment(r, event, address);
  if (event->kind == EVENT_CALLOC) verify_zero(r, block);
  touch_block(r, block, 0, event->slot);
}

static void reallocate(struct replay *r, const struct event *event) {
  struct block *block = &r->blocks[event->slot];
  uint64_t old_bytes = block->size_bytes;
  void *address = call_allocator(r, event);
  if (!address) {
    r->result->failed_calls++;
    return; /* the block stays as it was */
  }
  *block = (struct block){.address = address, .size_bytes = event->size_bytes};
  r->live_bytes += event->size_bytes - old_bytes;
  verify_block(r, block, old_bytes < event->size_bytes ? old_bytes : event->size_bytes, event->slot);
  touch_block(r, block, old_bytes, event->slot);
}

static void release(struct replay *r, const struct event *event) {
  struct block *block = &r->blocks[event->slot];
  verify_block(r, block, block->size_bytes, event->slot);
  uint64_t start = read_ticks();
  free(block->address);
  r->call_ticks += read_ticks() - start;
  r->live_bytes -= block->size_bytes;
  *block = (struct block){0};
}

/* Time */

static void sleep_until(uint64_t time_ns) {
  struct timespec until = {.tv_sec = (time_t)(time_ns / 1000000000u), .tv_nsec = (long)(time_ns % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

/* Waits for a moment of the trace; notes how late the replay is. */
static void wait_for(struct replay *r, uint64_t time_us) {
  if (r->options->speed <= 0) return;
  uint64_t due_ns = r->start_ns + (uint64_t)((double)time_us * 1000.0 / r->options->speed);
  uint64_t now_ns = monotonic_ns();
  if (now_ns < due_ns)
    sleep_until(due_ns);
  else if ((double)(now_ns - due_ns) / 1e6 > r->result->behind_ms)
    r->result->behind_ms = (double)(now_ns - due_ns) / 1e6;
}

/* The trace's time moves on: takes the samples that are due on the way, and paces. */
static void advance_time(struct replay *r, uint64_t time_us) {
  uint64_t start_ns = monotonic_ns();
  while (r->next_sample_us <= time_us) {
    wait_for(r, r->next_sample_us);
    sampler_take(r->sampler, r->next_sample_us, r->live_bytes);
    r->next_sample_us += r->sample_step_us;
  }
  wait_for(r, time_us);
  r->paused_ns += monotonic_ns() - start_ns;
}

/* Turns */

static void wait_for_token(struct worker *worker) {
  while (!atomic_load_explicit(&worker->has_token, memory_order_acquire))
    syscall(SYS_futex, &worker->has_token, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
  atomic_store_explicit(&worker->has_token, 0, memory_order_relaxed);
}

static void pass_token(struct worker *worker) {
  worker->replay->result->token_passes++;
  atomic_store_explicit(&worker->has_token, 1, memory_order_release);
  syscall(SYS_futex, &worker->has_token, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void do_event(struct replay *r, const struct event *event) {
  switch (event->kind) {
    case EVENT_FREE: release(r, event); break;
    case EVENT_REALLOC: reallocate(r, event); break;
    case EVENT_TIME: advance_time(r, event->size_bytes); break;
    case EVENT_END: break;
    default: allocate(r, event);
  }
}

/* Does events while they are this worker's; all of them for the conductor. */
static void take_turn(struct worker *self) {
  struct replay *r = self->replay;
  bool is_alone = self == &r->conductor;
  uint64_t start_ns = monotonic_ns();
  r->paused_ns = 0;
  while (r->next_event < r->trace->event_count && !self->ended) {
    const struct event *event = &r->trace->events[r->next_event];
    if (event->thread != self->number && event->kind != EVENT_TIME && !is_alone) break;
    r->next_event++;
    do_event(r, event);
    self->ended = event->kind == EVENT_END && !is_alone;
  }
  r->work_ns += monotonic_ns() - start_ns - r->paused_ns;
}

/* The owner of the next turn: the thread of the next event, or the conductor if there is one to start or join. */
static struct worker *next_worker(struct replay *r) {
  if (r->ended || r->next_event >= r->trace->event_count) return &r->conductor;
  struct worker *next = &r->workers[r->trace->events[r->next_event].thread];
  return next->started ? next : &r->conductor;
}

static void *run_worker(void *argument) {
  struct worker *self = argument;
  while (!self->ended) {
    wait_for_token(self);
    take_turn(self);
    if (self->ended) self->replay->ended = self;
    pass_token(next_worker(self->replay));
  }
  return NULL;
}

static bool start_worker(struct worker *worker, char *message) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, worker->stack, STACK_BYTES);
  worker->ended = false;
  int error = pthread_create(&worker->thread, &attributes, run_worker, worker);
  pthread_attr_destroy(&attributes);
  worker->started = error == 0;
  return error == 0 ||
         refuse(message, "cannot start thread %u of the trace: %s", worker->number, strerrordesc_np(error));
}

static bool conduct(struct replay *r, char *message) {
  while (r->next_event < r->trace->event_count || r->ended) {
    if (r->ended) {
      pthread_join(r->ended->thread, NULL);
      r->ended->started = false;
      r->ended = NULL;
      continue;
    }
    const struct event *event = &r->trace->events[r->next_event];
    if (event->kind == EVENT_TIME) { /* is nobody's, and a thread that has ended cannot wait */
      advance_time(r, event->size_bytes);
      r->next_event++;
      continue;
    }
    struct worker *next = &r->workers[event->thread];
    if (!next->started && !start_worker(next, message)) return false;
    pass_token(next);
    wait_for_token(&r->conductor);
  }
  return true;
}

/* Set-up */

/* What the system could give without swapping; all there is if /proc does not say. */
static uint64_t available_bytes(void) {
  char text[512] = "";
  int descriptor = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  ssize_t length = descriptor >= 0 ? read(descriptor, text, sizeof text - 1) : 0;
  if (descriptor >= 0) close(descriptor);
  const char *line = length > 0 ? strstr(text, "MemAvailable:") : NULL;
  if (line) return strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024;
  return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Refuses before the machine runs out of memory. */
static bool check_room(const struct trace *trace, const struct replay_options *options, char *message) {
  uint64_t needed_bytes = options->touch == TOUCH_ALL ? trace->summary.peak_live_bytes : 0;
  if (options->with_threads) needed_bytes += (uint64_t)trace->thread_count * STACK_BYTES;
  uint64_t free_bytes = available_bytes();
  if (needed_bytes <= free_bytes) return true;
  return refuse(message, "%llu MB are needed at once (live blocks and stacks), but only %llu MB are free",
                (unsigned long long)(needed_bytes >> 20), (unsigned long long)(free_bytes >> 20));
}

static void prepare(struct replay *r) {
  const struct trace *trace = r->trace;
  r->blocks = own_memory_resident((size_t)trace->slot_count * sizeof(struct block));
  r->workers = own_memory_resident((size_t)trace->thread_count * sizeof(struct worker));
  r->conductor.replay = r;
  for (uint32_t i = 0; i < trace->thread_count; i++) {
    r->workers[i] = (struct worker){.number = i, .replay = r};
    if (r->options->with_threads) r->workers[i].stack = own_memory_resident(STACK_BYTES);
  }
  uint32_t steps = r->options->sample_count;
  r->sample_step_us = trace->summary.duration_us / (steps ? steps : 1);
  if (r->sample_step_us < SAMPLE_STEP_US_MIN) r->sample_step_us = SAMPLE_STEP_US_MIN;
  r->next_sample_us = r->sample_step_us;
}

static double seconds_of(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static void note_usage(struct replay_result *result, const struct rusage *before, const struct rusage *after) {
  result->user_s = seconds_of(after->ru_utime) - seconds_of(before->ru_utime);
  result->system_s = seconds_of(after->ru_stime) - seconds_of(before->ru_stime);
  result->minor_faults = (uint64_t)(after->ru_minflt - before->ru_minflt);
}

bool replay_run(const struct trace *trace, const struct replay_options *options, struct sampler *sampler,
                struct replay_result *result, char *message) {
  struct replay replay = {.trace = trace, .options = options, .result = result, .sampler = sampler};
  *result = (struct replay_result){0};
  if (!check_room(trace, options, message)) return false;
  double tick_ns = ticks_length_ns(), overhead_ticks = ticks_overhead();
  prepare(&replay);
  sampler_take_base(sampler);
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  replay.start_ns = monotonic_ns();
  if (!options->with_threads)
    take_turn(&replay.conductor);
  else if (!conduct(&replay, message))
    return false;
  result->wall_s = (double)(monotonic_ns() - replay.start_ns) / 1e9;
  getrusage(RUSAGE_SELF, &after);
  note_usage(result, &before, &after);
  result->end = sampler_look(sampler, trace->summary.duration_us, replay.live_bytes);
  result->peak_bytes = sampler_peak_bytes(sampler);
  sleep_until(monotonic_ns() + options->idle_ms * (uint64_t)1000000);
  result->idle = sampler_look(sampler, trace->summary.duration_us + options->idle_ms * 1000, replay.live_bytes);
  double calls = (double)trace->summary.call_count;
  result->call_s = ((double)replay.call_ticks * tick_ns - calls * overhead_ticks * tick_ns) / 1e9;
  result->work_s = (double)replay.work_ns / 1e9 - 2 * calls * overhead_ticks * tick_ns / 1e9;
  return true;
}
