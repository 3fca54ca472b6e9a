/* snug_profile.h: sampled allocations, as a process under snug keeps them and others may read them.
 *
 * The field `profile_address` of the page of counters says where the head lies, once sampling was switched on (the
 * setting `profile`); tables follow it. C writes them, the `snug` tool (Rust) reads them out of /proc/PID/mem;
 * this header is the only description, and a test of the tool compares its offsets.
 *
 * Requests are sampled by their bytes: the distance from one sample to the next is exponentially distributed around
 * a mean. A sample of s bytes then stands for s / (1 - exp(-s / mean)) bytes, its weight; any sum of weights estimates
 * the sum of bytes without bias, whichever samples are chosen and even if the mean changes meanwhile.
 *
 * Rules for readers:
 *  P1  Check `magic`, then `version`. Tables are read with the sizes of rows and the addresses that the head says.
 *  P2  `changes` is odd while tables change, and another number afterwards: who finds the same even number before and
 *      after has a whole copy.
 *  P3  Stacks and names are only ever added. Offsets of 0 mean none.
 *  P4  A sample of an older `generation` than the head's is inherited: the parent took it before the fork, and most
 *      often the block lies in pages that both share.
 */
#ifndef SNUG_PROFILE_H
#define SNUG_PROFILE_H

#include <stdint.h>

#define SNUG_PROFILE_MAGIC "snug profile\n\0\0\1" /* 16 bytes, not terminated */
#define SNUG_PROFILE_VERSION 1

/* A live block that was sampled. 56 bytes. */
struct snug_profile_sample {
  uint64_t address;      /* 0: unused row */
  uint64_t size_bytes;   /* as asked for */
  uint64_t weight_bytes; /* what it stands for */
  uint64_t time_ns;      /* CLOCK_MONOTONIC, in coarse steps */
  uint32_t stack;        /* offset among the stacks, in units of 8 bytes */
  uint32_t generation;   /* P4 */
  uint32_t thread;       /* tells threads apart: the low half of an address of its own */
  uint32_t next;         /* the core's own */
  uint64_t blocks;       /* for how many blocks it stands, in 1/1024 */
};

/* Where samples were taken; the frames follow: native_frames words, program counters, the innermost first; then
 * language_frames words, an offset among the names in units of 8 bytes in the low half, a line in the high half. */
struct snug_profile_stack {
  uint32_t hash;
  uint32_t next; /* the core's own */
  uint16_t native_frames;
  uint16_t language_frames;
  uint32_t tags;             /* enum snug_profile_tag */
  uint64_t allocated_bytes;  /* sum of weights of all samples ever taken here */
  uint64_t allocated_blocks; /* in 1/1024 */
  uint64_t live_bytes;       /* of those not freed yet */
  uint64_t live_blocks;
};

/* A function of an interpreter's language. Its name and its file follow, label_bytes and path_bytes long. */
struct snug_profile_name {
  uint32_t hash;
  uint32_t next; /* the core's own */
  uint16_t label_bytes;
  uint16_t path_bytes;
  uint32_t unused;
};

/* What a stack lacks, and why. */
enum snug_profile_tag {
  SNUG_PROFILE_RUBY = 1,             /* the frames of the language are Ruby's */
  SNUG_PROFILE_RUBY_NO_LOCK = 2,     /* the thread did not hold Ruby's lock: native frames only */
  SNUG_PROFILE_RUBY_GC = 4,          /* the collector ran: native frames only */
  SNUG_PROFILE_RUBY_NO_CONTEXT = 8,  /* Ruby's machine was about to start, or to end */
  SNUG_PROFILE_DEEP = 16,            /* there are more frames further out */
  SNUG_PROFILE_CUT = 32,             /* native frames end where one could not be unwound */
  SNUG_PROFILE_NO_ROOM = 64,         /* the table of stacks is full: frames unknown */
  SNUG_PROFILE_PYTHON = 128,         /* the frames of the language are Python's */
  SNUG_PROFILE_PYTHON_NO_LOCK = 256, /* the thread did not hold Python's lock: native frames only */
};

struct snug_profile {
  char magic[16];
  uint32_t version;
  uint32_t size_bytes; /* of this struct */
  uint32_t sample_size_bytes;
  uint32_t stack_size_bytes;
  uint32_t name_size_bytes;
  uint32_t generation;      /* forks between the process that switched sampling on and this one */
  uint64_t changes;         /* P2 */
  uint64_t started_ns;      /* CLOCK_MONOTONIC when sampling was first switched on */
  uint64_t mean_bytes;      /* between two samples, now: it rises while they are too many, or take too much CPU time */
  uint64_t taken;           /* samples ever taken */
  uint64_t freed;           /* of these, blocks freed */
  uint64_t dropped;         /* blocks that should have been samples: a table was full, or memory */
  uint64_t dropped_bytes;   /* weights of those */
  uint64_t stacks_missed;   /* samples whose stack found no room */
  uint64_t names_missed;    /* frames whose name found no room */
  uint64_t samples_address; /* rows 0 .. sample_count - 1 */
  uint64_t sample_count;    /* rows ever used */
  uint64_t sample_capacity;
  uint64_t stacks_address;
  uint64_t stacks_bytes; /* used */
  uint64_t stacks_capacity_bytes;
  uint64_t names_address;
  uint64_t names_bytes; /* used */
  uint64_t names_capacity_bytes;
  /* Interpreters in the process, major << 8 | minor of each, with SNUG_PROFILE_UNREAD. 0: there was none when sampling
   * began, or an older library took the samples. */
  uint32_t ruby;
  uint32_t python;
};

/* The interpreter's code is not read: its version is one that the library does not know, or a part of it is missing.
 * All frames are native. */
#define SNUG_PROFILE_UNREAD 0x80000000u

#endif
