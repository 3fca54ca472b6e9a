/* replay.h: does again what a trace says, with the malloc of this process. Does not know files or reports.
 *
 * With threads, one of them runs at a time, as in an interpreter with a global lock: the token passes to the thread
 * of the next event. So the order is always the recorded one, and every allocator sees the same calls from the same
 * threads; what is not seen is contention.
 *
 *     conductor:  starts and joins threads, keeps the token before the first event and after the last
 *     worker n :  waits for the token, does events while they are its own, passes the token on
 *
 * Time. Work is what passes while a thread has the token, less the pauses of pacing and sampling; handing the token
 * over is not in it. Samples are taken at even steps of the trace's own time, however fast it is replayed, so a mean
 * over samples is a mean over time.
 *
 * Invariant R1: everything in struct replay is touched by the holder of the token only; passing it orders memory.
 */
#ifndef SNUG_TRACES_REPLAY_H
#define SNUG_TRACES_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "sampler.h"
#include "trace.h"

enum touch { TOUCH_ALL, TOUCH_FIRST, TOUCH_NONE };

struct replay_options {
  bool with_threads;
  double speed; /* times real time; 0: as fast as it goes */
  enum touch touch;
  bool verify; /* check that blocks keep their contents */
  uint32_t sample_count;
  uint32_t idle_ms; /* wait after the end, then look again */
};

struct replay_result {
  double wall_s; /* from the first event to the last, pauses included */
  double work_s; /* defined above */
  double call_s; /* of it, inside malloc, free and so on */
  double user_s; /* CPU time of the process, helper threads of the allocator included */
  double system_s;
  double behind_ms; /* the most that a paced replay was late */
  uint64_t minor_faults;
  uint64_t token_passes;
  uint64_t failed_calls;   /* the allocator gave NULL */
  uint64_t corrupt_blocks; /* with verify */
  int64_t peak_bytes;
  struct sample end;  /* after the last event */
  struct sample idle; /* idle_ms later */
};

/* Replays. `sampler` then holds the samples. On a machine too small for the trace, or without room for threads,
 * returns false and explains. */
bool replay_run(const struct trace *trace, const struct replay_options *options, struct sampler *sampler,
                struct replay_result *result, char *message);

#endif
