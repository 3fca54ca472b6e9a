/* cgroup.h: what the container allows, from control groups version 2 or 1. Reads files, so only for ticks. */
#ifndef SNUG_CGROUP_H
#define SNUG_CGROUP_H

#include "base.h"

/* CPUs that the quota amounts to, rounded up; 0: no quota. Where nothing can be read, what it was when it was asked for
 * before. */
HIDDEN uint32_t cgroup_cpus(void);

struct cgroup_memory {
  uint64_t held_bytes; /* what the kernel can't just drop; far from the limit file cache, too, which it can */
  uint64_t limit_bytes;
};

/* Reads how much of a limit is in use, of that which left the least room when it was searched for, and with
 * asks_for_limit, or near it, whether that limit is still what it was: one file, or two; near it three. False without a
 * limit, or where its use can't be read. */
HIDDEN bool cgroup_memory(struct cgroup_memory *reading, bool asks_for_limit);

/* Whether a limit was found when it was last asked for. */
HIDDEN bool cgroup_has_memory_limit(void);

/* Whether more than nine tenths of the limit are held. */
HIDDEN bool cgroup_is_near_limit(const struct cgroup_memory *reading);

/* The limit is searched for once when it is asked for next. Where that can't be done it is what it was; the second time
 * in a row there is none. */
HIDDEN void cgroup_search_memory_limit(void);

/* The parts that decide, for tests: texts as the kernel shows them. */
HIDDEN bool cgroup_path_of(const char *proc_self_cgroup, const char *controller, char *path, size_t capacity_bytes);
HIDDEN uint64_t cgroup_stat_value(const char *memory_stat, const char *key);

#endif
