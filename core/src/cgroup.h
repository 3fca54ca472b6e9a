/* cgroup.h: what the container allows, from control groups version 2 or 1. Reads files, so only for ticks. */
#ifndef SNUG_CGROUP_H
#define SNUG_CGROUP_H

#include "base.h"

/* CPUs that the quota amounts to, rounded up; 0: no quota. */
HIDDEN uint32_t cgroup_cpus(void);

/* Whether memory that cannot be dropped (not file cache) fills more than nine tenths of the limit. False without a
 * limit. */
HIDDEN bool cgroup_memory_is_nearly_full(void);

/* Whether a limit was found when it was last asked for: then asking again reads one file. */
HIDDEN bool cgroup_has_memory_limit(void);

/* The limit is looked for anew when it is asked for next. */
HIDDEN void cgroup_forget_memory_limit(void);

/* The parts that decide, for tests: texts as the kernel shows them. */
HIDDEN bool cgroup_path_of(const char *proc_self_cgroup, const char *controller, char *path, size_t capacity_bytes);
HIDDEN uint64_t cgroup_stat_value(const char *memory_stat, const char *key);
HIDDEN bool cgroup_is_nearly_full(uint64_t usage_bytes, uint64_t file_bytes, uint64_t limit_bytes);

#endif
