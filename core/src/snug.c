/* snug.c: the whole core as one unit, lowest layer first. This list is the order of the layers: a file may include
 * headers of those above it in this list, and no others (`make check`). The release build compiles this file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sys.c"
#include "lock.c"
#include "fatal.c"
#include "options.c"
#include "map.c"
#include "pages.c"
#include "run.c"
#include "large.c"
#include "slab.c"
#include "cache.c"
#include "gauges.c"
#include "cgroup.c"
#include "purge.c"
#include "control.c"
#include "janitor.c"
#include "maintain.c"
#include "block.c"
#include "fork.c"
#include "stats.c"
#include "start.c"
#include "process.c"
#include "api.c"
#include "glibc.c"
#include "cxx.c"
