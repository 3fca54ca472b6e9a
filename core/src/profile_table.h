/* profile_table.h: what sampling keeps: live samples, the stacks they were taken at, names of functions
 * (core/include/snug_profile.h).
 *
 * It does not know when samples are taken, or how stacks are walked. All of it is one mapping of fixed size, of which
 * only what was used holds memory; it stays until the process ends.
 *
 *      head | samples, found by address | stacks, added only | names, added only
 *
 *  V1  A sample is in the list of its address's bucket, or unused and in the list of those.
 *  V2  A stack or a name is whole before its bucket, or another that is found, leads to it: names are looked up without
 *      the lock.
 */
#ifndef SNUG_PROFILE_TABLE_H
#define SNUG_PROFILE_TABLE_H

#include "../include/snug_profile.h"
#include "base.h"
#include "unwind.h"

enum {
  PROFILE_NATIVE_MAX = 64,
  PROFILE_LANGUAGE_MAX = 128,
  PROFILE_LABEL_MAX_BYTES = 128,
  PROFILE_PATH_MAX_BYTES = 384,
};

/* A stack on its way into the table. */
struct profile_frames {
  uint32_t tags;
  enum unwind_end native_end;
  size_t native_count, language_count;
  /* NULL; or, where nothing may be kept (in a signal handler), what is told of each frame of a language instead. */
  void (*tell)(const char *label, size_t label_bytes, const char *path, size_t path_bytes, uint32_t line);
  uint64_t native[PROFILE_NATIVE_MAX], language[PROFILE_LANGUAGE_MAX]; /* as in struct snug_profile_stack */
};

HIDDEN extern struct snug_profile *profile_head; /* NULL: none yet; set once */

/* Makes the table, for at most so many live samples (0: the ordinary number). False: no memory. Nobody else is here. */
HIDDEN bool profile_table_make(uint32_t samples_max);

/* Offset of a function's name among the names, in units of 8 bytes; 0: there was no room. Of what is too long, the
 * beginning of the label and the end of the path are kept. */
HIDDEN uint32_t profile_table_name(const char *label, size_t label_bytes, const char *path, size_t path_bytes);

/* A word of a language's frame for struct profile_frames. What is too long is cut as above. */
HIDDEN uint64_t profile_table_frame(const struct profile_frames *frames, const char *label, size_t label_bytes,
                                    const char *path, size_t path_bytes, uint32_t line);

/* Offset of a stack of which there is no sample, as that of a sample; 0: there was no room. */
HIDDEN uint32_t profile_table_stack(const struct profile_frames *frames);

/* What lies at an offset other than 0: without the lock (V2). */
HIDDEN const struct snug_profile_stack *profile_table_stack_at(uint32_t offset);
HIDDEN const struct snug_profile_name *profile_table_name_at(uint32_t offset);

/* Puts a sample in; address, size_bytes, weight_bytes, time_ns, thread and blocks are set. Sets its stack; 0: there was
 * no room. False: there was none for the sample. */
HIDDEN bool profile_table_add(struct snug_profile_sample *sample, const struct profile_frames *frames);
/* The size of a stack with its frames. */
static inline size_t profile_stack_bytes(const struct snug_profile_stack *stack) {
  return sizeof *stack + ((size_t)stack->native_frames + stack->language_frames) * sizeof(uint64_t);
}

/* The block at the address is freed, or is about to move: if it was a sample, it is one no more. */
HIDDEN void profile_table_remove(const void *address);

/* Live samples, of whatever size. */
HIDDEN uint64_t profile_table_live(void);

/* Bytes of it that were ever written, about. */
HIDDEN uint64_t profile_table_bytes(void);

/* In a forked child: what is on the table is of an older generation. */
HIDDEN void profile_table_inherit(void);

/* All stacks with what was counted of them at one moment, in a mapping of *mapped_bytes to be unmapped; the first is at
 * offset 8, the last ends at *used_bytes. NULL: no memory, or the table was abandoned. */
HIDDEN char *profile_table_copy_stacks(size_t *used_bytes, size_t *mapped_bytes);

/* Forgets samples of live blocks, and what was allocated so far. */
HIDDEN void profile_table_reset(void);

/* Nothing is live any more: what is on the table is not to be trusted, or touched. */
HIDDEN void profile_table_abandon(void);

/* Counts a block that could not be made a sample. */
HIDDEN void profile_table_dropped(uint64_t weight_bytes);

HIDDEN void profile_table_check(void); /* asserts V1, and that stacks count what lives */
HIDDEN void profile_table_lock_all(void);
HIDDEN void profile_table_unlock_all(void);
HIDDEN void profile_table_reset_locks(void);

#endif
