/* snug_counters.h: the page of counters that every process under snug keeps, and that others may read.
 *
 * C writes it, the `snug` tool (Rust) reads it; this header is the only description, and both sides assert
 * its offsets. The page is the symbol `snug_counters` of libsnug.so (or of the program, when linked
 * statically), aligned to SNUG_COUNTERS_ALIGN and starting with SNUG_COUNTERS_MAGIC. Another process of the
 * same user finds it by that symbol, or by looking for the magic at aligned addresses of the writable
 * mappings of the object, and copies it with process_vm_readv(2): nothing stops, nothing is locked.
 *
 * Rules for readers:
 *  R1  Check `magic`, then `version`; fields are only ever added at the end, which raises `size_bytes`. A change
 *      of meaning raises `version`.
 *  R2  Every field is written whole (naturally aligned). Fields do not agree to the byte with each other
 *      while the program runs; they do when it is idle.
 *  R3  Rows of arenas at or above `arena_count` are untouched zero pages: do not read them.
 *
 * How the numbers add up (checked by core/tests/unit/counters):
 *  E1  live blocks of a class   = sum over arenas of outstanding_blocks - those in thread caches
 *  E2  live allocated bytes     = sum(outstanding_blocks * size_bytes) - cached_bytes + run_bytes + large_bytes
 *  E3  live requested bytes     ~ for classes: outstanding * (sampled_requested_bytes / sampled_requests);
 *                                 for runs and large blocks exact: run_requested_bytes, large_requested_bytes
 *  E4  heap_top_bytes           = sum(slab_bytes) + run_bytes + dirty_bytes - large_retained_bytes + clean_bytes
 *  E5  resident estimate        = heap_top_bytes - clean_bytes - slab_purged_bytes + large_bytes
 *                                 + large_retained_bytes + metadata_bytes: at most this is resident
 */
#ifndef SNUG_COUNTERS_H
#define SNUG_COUNTERS_H

#include <stdint.h>

#define SNUG_COUNTERS_MAGIC "snug counters\n\0\1" /* 16 bytes, not terminated */
#define SNUG_COUNTERS_VERSION 1
#define SNUG_COUNTERS_ALIGN 4096
#define SNUG_COUNTERS_ARENAS 64  /* rows; arena_count says how many are in use */
#define SNUG_COUNTERS_CLASSES 80 /* rows; class_count says how many are in use */

/* One size class of one arena. 48 bytes. */
struct snug_counters_class {
  uint32_t size_bytes;              /* bytes per block; 0: no such class */
  uint32_t slabs;                   /* slabs that belong to it now */
  uint64_t slab_bytes;              /* pages of those slabs */
  uint64_t outstanding_blocks;      /* blocks outside slabs: live, or cached by a thread */
  uint64_t taken_blocks;            /* blocks ever taken out of slabs */
  uint64_t sampled_requests;        /* requests whose exact size was noted (one per cache refill) */
  uint64_t sampled_requested_bytes; /* and the sum of their sizes */
};

struct snug_counters {
  char magic[16];
  uint32_t version;      /* SNUG_COUNTERS_VERSION */
  uint32_t size_bytes;   /* of this struct */
  uint32_t pid;          /* process that writes it; a forked child writes its own copy */
  uint32_t class_count;  /* rows in use of each arena, row 0 unused */
  uint32_t arena_count;  /* arenas in use; at least 1 once anything was allocated */
  uint32_t page_size_bytes; /* of the system */
  char snug_version[16]; /* "0.1.0" */
  char settings[256];    /* effective settings, in the syntax of the SNUG variable */
  char warnings[256];    /* what start-up found wrong, "; " between; empty if nothing */

  /* Gauges, bytes unless named otherwise. */
  uint64_t heap_top_bytes;        /* heap from its base to the highest page ever used */
  uint64_t heap_committed_bytes;  /* heap made readable and writable */
  uint64_t clean_bytes;           /* free pages below the top that hold no memory */
  uint64_t dirty_bytes;           /* free pages that hold memory, and large_retained_bytes */
  uint64_t slab_purged_bytes;     /* pages inside slabs given back to the system (upper bound) */
  uint64_t run_blocks;            /* live page-granular blocks: count */
  uint64_t run_bytes;             /* their pages */
  uint64_t run_requested_bytes;   /* what was asked for */
  uint64_t large_blocks;          /* live blocks with a mapping of their own: count */
  uint64_t large_bytes;           /* their mappings */
  uint64_t large_requested_bytes; /* what was asked for */
  uint64_t large_retained_bytes;  /* free mappings kept for reuse */
  uint64_t cached_bytes;          /* blocks in thread caches, when last looked at */
  uint64_t cached_at_ns;          /* CLOCK_MONOTONIC of that look */
  uint64_t metadata_bytes;        /* maps, slab records, caches, tables: bytes ever touched */
  uint64_t dirty_cap_bytes;       /* dirty pages kept at most, now */
  uint64_t caches;                /* thread caches in use: count */

  /* Counts since the process started (a forked child goes on from its parent's). */
  uint64_t purges;                /* times free pages were given back */
  uint64_t purged_bytes;          /* and how much */
  uint64_t ticks;                 /* periodic looks from slow paths */
  uint64_t idle_purges;           /* times everything was given back because the process was idle */
  uint64_t janitor_starts;        /* times the helper thread was started */
  uint64_t steals;                /* idle thread caches emptied by others */
  uint64_t forks;                 /* forks seen by this process */
  uint64_t lock_waits;            /* times a thread had to sleep for a lock */
  uint64_t large_maps;            /* mappings made for large blocks */
  uint64_t large_unmaps;          /* and removed */
  uint64_t limit_purges;          /* purges because the container's memory limit was near */
  uint64_t reserved[6];

  struct snug_counters_class classes[SNUG_COUNTERS_ARENAS][SNUG_COUNTERS_CLASSES];
};

#endif
