/* describe.h: what a trace consists of: sizes, what lives, lifetimes, frees by other threads. Runs nothing. */
#ifndef SNUG_TRACES_DESCRIBE_H
#define SNUG_TRACES_DESCRIBE_H

#include <stdio.h>

#include "trace.h"

void describe_trace(const struct trace *trace, FILE *out);

#endif
