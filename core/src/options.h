/* options.h: the settings. One table in options.c makes parser, help and messages. */
#ifndef SNUG_OPTIONS_H
#define SNUG_OPTIONS_H

#include "base.h"
#include "text.h"

struct options {
  uint32_t verbose;           /* 0 or 1 */
  uint32_t stats_print;       /* 0 or 1 */
  uint32_t arenas_max;        /* 0: as many as CPUs */
  uint32_t background;        /* 0 or 1 */
  uint32_t purge_cpu_percent; /* 0 .. 100 */
  uint32_t thp;               /* 0 or 1 */
};

HIDDEN extern struct options options;

/* Reads SNUG and MALLOC_ARENA_MAX. Warns on stderr about what it does not understand, and goes on. */
HIDDEN void options_read(void);

/* The effective settings in the syntax of SNUG. */
HIDDEN void options_describe(struct text *text);

#endif
