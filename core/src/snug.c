/* snug.c: the whole core as one unit, lowest layer first. This list is the order of the layers: a file may include
 * headers of those above it in this list, and no others (`make check`). The release build compiles this file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

/* Code between SMALL and FAST is no part of malloc and free: gcc makes it small instead of fast. */
#ifdef __clang__
#define SMALL
#define FAST
#else
#define SMALL _Pragma("GCC push_options") _Pragma("GCC optimize(\"Os\")")
#define FAST _Pragma("GCC pop_options")
#endif

#include "memory.c"
#include "sys.c"
SMALL
#include "symbols.c"
#include "hooks.c"
#include "rights.c"
#include "lock.c"
#include "fatal.c"
#include "options.c"
#include "malloc_conf.c"
#include "map.c"
#include "huge.c"
FAST
#include "pages.c"
#include "run.c"
#include "large.c"
#include "arena.c"
#include "slab_record.c"
#include "slab_join.c"
#include "slab.c"
SMALL
#include "slab_purge.c"
FAST
#include "bins.c"
#include "cache.c"
SMALL
#include "survey.c"
FAST
#include "steal.c"
#include "gauges.c"
SMALL
#include "cgroup.c"
#include "pressure.c"
#include "purge.c"
FAST
#include "tick.c"
SMALL
#include "control.c"
#include "janitor.c"
FAST
#include "maintain.c"
SMALL
#include "fault.c"
#include "guard.c"
FAST
#include "unwind.c"
#include "profile_table.c"
#include "interpreter.c"
#include "python.c"
#include "ruby.c"
SMALL
#include "report.c"
#include "fence.c"
#include "profile_budget.c"
#include "aside.c"
FAST
#include "profile.c"
SMALL
#include "profile_dump.c"
FAST
#include "block.c"
SMALL
#include "fork.c"
#include "stats.c"
#include "account.c"
#include "mallctl.c"
#include "stats_print.c"
#include "start.c"
#include "process.c"
#include "unload.c"
FAST
#include "api.c"
#include "jemalloc.c"
#include "glibc.c"
#include "cxx.c"
