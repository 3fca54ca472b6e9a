/* report.h: the results of a replay for people, for programs, and for `snug compare`. Measures nothing. */
#ifndef SNUG_TRACES_REPORT_H
#define SNUG_TRACES_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "replay.h"

struct report {
  const char *trace_path;
  const char *allocator; /* file that malloc came from */
  const struct trace *trace;
  const struct replay_options *options;
  const struct replay_result *result;
  const struct sampler *sampler;
};

/* Some lines to read, then `snug-metric: NAME=VALUE` lines. */
void report_print(const struct report *report, FILE *out);

/* One JSON object; its "samples" are rows as named by "sample_fields". */
void report_write_json(const struct report *report, FILE *out);

/* The samples, one per line. */
void report_write_csv(const struct report *report, FILE *out);

#endif
