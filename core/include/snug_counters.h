/* snug_counters.h: the page of counters that every process under snug keeps, and that others may read.
 *
 * C writes it, the `snug` tool (Rust) reads it; this header is the only description, and both sides assert
 * its offsets. The page is the symbol `snug_counters` of libsnug.so (or of the program, when linked
 * statically), aligned to SNUG_COUNTERS_ALIGN and starting with SNUG_COUNTERS_MAGIC. Another process of the
 * same user finds it by that symbol, or by looking for the magic at aligned addresses of the writable
 * mappings of the object, and copies it out of /proc/PID/mem: nothing stops, nothing is locked.
 *
 * Rules for readers:
 *  R1  Check `magic`, then `version`; fields are only ever added at the end, which raises `size_bytes`. A change
 *      of meaning raises `version`.
 *  R2  Every field is written whole (naturally aligned). Fields do not agree to the byte with each other
 *      while the program runs; they do when it is idle.
 *  R3  Rows of arenas at or above `arena_count` are untouched zero pages: do not read them.
 *
 * Requests: another process of the same user may ask for a purge or another setting by writing `request`,
 * `request_from` and `request_check` with process_vm_writev(2). Slow paths and the janitor look there; a process that
 * makes no slow call has no thread that could answer.
 *  Q1  `request_check` must be snug_request_check() of the other two words and the page's `pid`, else nothing happens:
 *      so a request half written, or mixed of two, or copied into a forked child, is none.
 *  Q2  `answer_to` becomes the `request_check` of what was answered, after `answer` was written. A requester that finds
 *      other words in place of its own was overtaken, and writes them again once the others are answered.
 *  Q3  `request_from` must differ between any two requests: the requester's process, and a number that it counts up.
 *  Q4  A requester overwrites a request that waits only if that is for a purge, and its process is gone or it has
 *      waited for long: nobody waits for a purge any more, but a setting was promised.
 *
 * Wishes: each setting has words of its own, where a request for it waits beside those for others and beside a purge;
 * of two for one setting the last counts. The words of `lease` ask for samples (the setting `profile`) up to a moment:
 * who asks says so again before it comes, and if nobody does the library ends them by itself, whatever became of the
 * requester. A lease changes nothing while `profile` is set, and setting it ends the lease.
 *  Q5  A requester writes the four words of a wish, and then a number to `wished` that nobody wrote there before:
 *      `from`. The library looks for wishes when that number changes.
 *  Q6  `check` must be snug_wish_check() of the other three words and the page's `pid`. As Q1 to Q3 say for requests.
 *
 * How the numbers add up (checked by core/tests/unit/counters):
 *  E1  live blocks of a class   = sum over arenas of outstanding_blocks - those in thread caches
 *  E2  live allocated bytes     = sum(outstanding_blocks * size_bytes) - cached_bytes + run_bytes + large_bytes
 *                                 (a block made of several slots of a class counts as those, here and in E1, but in
 *                                 a thread cache as one of the class that it serves for)
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
#define SNUG_COUNTERS_VERSION 2
#define SNUG_COUNTERS_ALIGN 4096
#define SNUG_COUNTERS_ARENAS 64  /* rows; arena_count says how many are in use */
#define SNUG_COUNTERS_CLASSES 96 /* rows; class_count says how many are in use */
#define SNUG_COUNTERS_RETAINED 16
#define SNUG_COUNTERS_TABLES 8
#define SNUG_COUNTERS_WISHES 16 /* at least as many as there are settings */

/* One size class of one arena. 48 bytes. */
struct snug_counters_class {
  uint32_t size_bytes;              /* bytes per block; 0: no such class */
  uint32_t slabs;                   /* slabs that belong to it now */
  uint64_t slab_bytes;              /* pages of those slabs */
  uint64_t outstanding_blocks;      /* blocks outside slabs: live, or cached by a thread; one of n slots counts n */
  uint64_t taken_blocks;            /* blocks ever taken out of slabs */
  uint64_t sampled_requests;        /* requests whose exact size was noted (one per cache refill) */
  uint64_t sampled_requested_bytes; /* and the sum of their sizes */
};

/* Addresses that are reserved, of which a part at the beginning is used. */
struct snug_counters_range {
  uint64_t address; /* 0: none */
  uint64_t reserved_bytes;
};

/* Another value for a setting. */
struct snug_counters_wish {
  uint64_t request;  /* as `request` below: SNUG_REQUEST_SET or SNUG_REQUEST_SWITCH */
  uint64_t from;     /* Q3 */
  uint64_t until_ns; /* of a lease: CLOCK_MONOTONIC; else 0 */
  uint64_t check;    /* Q6; never 0 once there was one */
  uint64_t answer;   /* by the library, as below */
  uint64_t answer_to;
};

struct snug_counters {
  char magic[16];
  uint32_t version;         /* SNUG_COUNTERS_VERSION */
  uint32_t size_bytes;      /* of this struct */
  uint32_t pid;             /* process that writes it; a forked child writes its own copy */
  uint32_t class_count;     /* rows in use of each arena, row 0 unused */
  uint32_t arena_count;     /* arenas in use; at least 1 once anything was allocated */
  uint32_t page_size_bytes; /* of the system */
  char snug_version[16];    /* "0.1.0" */
  char settings[256];       /* effective settings, in the syntax of the SNUG variable */
  char warnings[256];       /* what start-up found wrong, "; " between; empty if nothing */

  /* Gauges, bytes unless named otherwise. */
  uint64_t heap_top_bytes;        /* heap from its base to the highest page ever used */
  uint64_t heap_committed_bytes;  /* heap made readable and writable */
  uint64_t clean_bytes;           /* free pages below the top that hold no memory */
  uint64_t dirty_bytes;           /* free pages that hold memory, and large_retained_bytes */
  uint64_t slab_purged_bytes;     /* pages inside slabs given back to the kernel (upper bound) */
  uint64_t run_blocks;            /* live page-granular blocks: count */
  uint64_t run_bytes;             /* their pages */
  uint64_t run_requested_bytes;   /* what was asked for */
  uint64_t large_blocks;          /* live blocks with a mapping of their own: count */
  uint64_t large_bytes;           /* their mappings */
  uint64_t large_requested_bytes; /* what was asked for */
  uint64_t large_retained_bytes;  /* free mappings kept for reuse */
  uint64_t cached_bytes;          /* blocks in thread caches, when last looked at */
  uint64_t cached_at_ns;          /* CLOCK_MONOTONIC of that look, of many caches of the oldest */
  uint64_t metadata_bytes;        /* maps, slab records, caches, tables: bytes ever touched, less what went back */
  uint64_t dirty_cap_bytes;       /* so much of dirty_bytes may stay unused from tick to tick, now */
  uint64_t caches;                /* thread caches in use: count */

  /* Counts since the process started (a forked child goes on from its parent's). */
  uint64_t purges;         /* times free pages were given back */
  uint64_t purged_bytes;   /* and how much */
  uint64_t ticks;          /* periodic looks from slow paths */
  uint64_t idle_purges;    /* times everything was given back because the process was idle */
  uint64_t janitor_starts; /* times the helper thread was started */
  uint64_t steals;         /* idle thread caches emptied by others */
  uint64_t forks;          /* forks seen by this process */
  uint64_t lock_waits;     /* times a thread had to sleep for a lock */
  uint64_t large_maps;     /* mappings made for large blocks */
  uint64_t large_unmaps;   /* and removed */
  uint64_t limit_purges;   /* purges because the container's memory limit was near */

  /* Requests from outside. All zero in a library that knows none. */
  uint64_t abilities;     /* bit k: kind k of request is known; bit 32 + n: number n of `settings` can change */
  uint64_t request;       /* bits 0-7: kind; 8-15: which of `settings`, from 0; 16-31: zero; 32-63: its value */
  uint64_t request_from;  /* bits 0-31: process that asks; 32-63: its count of requests */
  uint64_t request_check; /* Q1; never 0 */
  uint64_t answer;        /* bits 0-7: enum snug_answer; 8-63: bytes given back; or, if out of range, 8-31: least */
                          /* value, 32-63: highest */
  uint64_t answer_to;     /* Q2 */

  struct snug_counters_class classes[SNUG_COUNTERS_ARENAS][SNUG_COUNTERS_CLASSES];

  uint64_t profile_address; /* of a struct snug_profile (snug_profile.h); 0: sampling was never on */

  /* Where the heap is, for those who ask which pages of it hold memory. Rows of large blocks are three words: where the
   * mapping begins, its bytes, what was asked for. One is unused if the first is 0, and holds no memory if that is no
   * multiple of a page. */
  uint64_t heap_address; /* its base, from which heap_top_bytes counts; 0: there is none */
  uint64_t large_table_address;
  uint64_t large_table_rows;
  uint64_t large_retained_address; /* SNUG_COUNTERS_RETAINED rows of mappings that are kept for reuse */
  struct snug_counters_range tables[SNUG_COUNTERS_TABLES]; /* metadata, but for the table of large blocks */

  struct snug_counters_range guard_slots; /* of SNUG=guard_samples: sampled blocks, and pages that can't be touched */

  uint64_t wished;            /* Q5 */
  uint64_t sampling_until_ns; /* of the lease that holds now; 0: none does. A forked child has it from its parent */
  uint64_t sampling_for;      /* and its `from` */
  struct snug_counters_wish lease;
  struct snug_counters_wish wishes[SNUG_COUNTERS_WISHES]; /* by the number of the setting in `settings` */
};

enum snug_request {
  SNUG_REQUEST_PURGE = 1,  /* give everything back that can be */
  SNUG_REQUEST_SET = 2,    /* a setting, to a number */
  SNUG_REQUEST_SWITCH = 3, /* a setting, to "on" or "off": only one that is 0 or 1 */
};

enum snug_answer {
  SNUG_ANSWER_DONE = 1,
  SNUG_ANSWER_UNKNOWN_KIND = 2,
  SNUG_ANSWER_UNKNOWN_SETTING = 3,
  SNUG_ANSWER_FIXED = 4, /* the setting can't change while the program runs */
  SNUG_ANSWER_OUT_OF_RANGE = 5,
};

/* Q1. The mixing steps are those of splitmix64 (Steele, Lea and Flood, 2014). */
static inline uint64_t snug_request_check(uint64_t request, uint64_t request_from, uint32_t pid) {
  uint64_t mixed = request + pid * UINT64_C(0x9e3779b97f4a7c15);
  mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9) + request_from;
  mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (mixed ^ (mixed >> 31)) | 1;
}

/* Q6 */
static inline uint64_t snug_wish_check(uint64_t request, uint64_t from, uint64_t until_ns, uint32_t pid) {
  return snug_request_check(snug_request_check(request, from, pid), until_ns, pid);
}

#endif
