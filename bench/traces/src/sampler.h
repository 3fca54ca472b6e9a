/* sampler.h: what is resident, against what lives, at moments of a replay. Does not know traces.
 *
 * All numbers are beyond a base, which is taken when everything of the replayer's own (events, tables, stacks) is
 * resident already; so what comes on top is the allocator's.
 *
 * Under snug, a sample also asks snug_stats where each byte is:
 *
 *     resident = live requested + rounding + slab free + cached + dirty + metadata + rest
 *
 * live requested is the replayer's own count; slab free leaves out pages that were given back. The rest is what
 * nobody accounts for (negative when snug counts pages that were never touched, as with --touch none).
 */
#ifndef SNUG_TRACES_SAMPLER_H
#define SNUG_TRACES_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

enum resident_part {
  PART_LIVE_REQUESTED,
  PART_ROUNDING,
  PART_SLAB_FREE,
  PART_CACHED,
  PART_DIRTY,
  PART_METADATA,
  PART_REST,
  PART_COUNT,
};

extern const char *const resident_part_names[PART_COUNT]; /* as in JSON: "live_requested" */

struct sample {
  uint64_t time_us; /* of the trace */
  int64_t resident_bytes;
  uint64_t live_bytes;
  int64_t parts[PART_COUNT]; /* 0 unless the sampler has them */
};

struct sampler {
  int statm; /* descriptor of /proc/self/statm */
  int64_t base_bytes;
  uint64_t page_bytes;
  bool has_parts; /* the allocator is snug */
  struct sample *samples;
  uint32_t sample_count;
  uint32_t sample_capacity;
};

/* Makes room for that many samples. Ends the program if /proc is missing. */
void sampler_start(struct sampler *sampler, uint32_t capacity);

/* From now on, what is resident counts as the replayer's own. Also forgets the peak so far. */
void sampler_take_base(struct sampler *sampler);

/* Looks now. Does not keep the sample. */
struct sample sampler_look(const struct sampler *sampler, uint64_t time_us, uint64_t live_bytes);

/* Looks now and keeps the sample, if there is room. */
void sampler_take(struct sampler *sampler, uint64_t time_us, uint64_t live_bytes);

/* The greatest resident size since the base, as the kernel saw it; that of the samples where it does not say. */
int64_t sampler_peak_bytes(const struct sampler *sampler);

#endif
