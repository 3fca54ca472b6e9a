/* world.h: what the modules have of the world around the core: time, the kernel's refusals, a container. */
#ifndef SNUG_FUZZ_WORLD_H
#define SNUG_FUZZ_WORLD_H

#include "../../support/test.h"

#include <sys/mman.h>

#include "../../../include/jemalloc/jemalloc.h"
#include "../../../include/snug.h"
#include "../../../src/base.h"
#include "module.h"

extern uint64_t clock_ns;      /* stands still but for the module */
extern uint64_t refused_calls; /* in this process, so far */

/* What the files of the container say; NULL: the real ones are read. */
extern const char *container_limit, *container_use;

/* A module's own answer to a system call, before the kernel is asked. */
extern bool (*module_answers)(long number, long a, long b, long *result);

extern const struct fuzz_allocator own_allocator; /* the core's functions */
size_t trim_own_heap(void);
void end_own_thread(void); /* as libc calls the core when one ends */
extern size_t snug_check(void);

/* The core has begun, without a thread of its own. */
void begin_core(void);

/* A size: mostly a floating-point number up to 2 MiB; else up to 16 MiB, near a power of two, impossible, or small. */
size_t size_from(unsigned b);

#endif
