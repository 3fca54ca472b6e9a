/* unwind.h: the native frames of the calling thread.
 *
 * It asks nobody: no lock, no allocation, no library for unwinding, which would need both. On x86-64 it follows the
 * tables that compilers write for exceptions (.eh_frame), found by glibc's _dl_find_object, which is made for signal
 * handlers (2.35), and frame pointers where there is no table, as in code made at run time. On aarch64 it follows frame
 * pointers, which that platform's functions keep.
 *
 *  U1  Memory of the stack is read only after the kernel said that it is there, page by page: whatever tables and
 *      registers say, nothing here can fault on it.
 *  U2  Each frame lies further up the stack than the one before, so the walk ends.
 */
#ifndef SNUG_UNWIND_H
#define SNUG_UNWIND_H

#include "base.h"

/* At start: looks up where tables are, under musl, whose loader must not be asked while it may be at work. */
HIDDEN void unwind_prepare(void);

/* Where code lies: a segment of a library or a program, or a function. None: 0 and 0. */
struct unwind_range {
  uintptr_t start, end;
};

static inline bool unwind_range_holds(struct unwind_range range, uint64_t pc) {
  return pc >= range.start && pc < range.end;
}

enum unwind_end {
  UNWIND_CUT,     /* what comes next can't be told */
  UNWIND_ENOUGH,  /* as many as were asked for, or some of code beyond which nobody looks */
  UNWIND_OUTMOST, /* the last one is that which began the thread */
};

/* Program counters of the callers of this function, innermost first: return addresses, less one. Behind some that lie
 * in one of `last`, two ranges or NULL, there are no more. Returns how many. */
HIDDEN size_t unwind_here(uint64_t *frames, size_t most, const struct unwind_range *last, enum unwind_end *end);

/* The same from where a signal interrupted, as its handler is told: first that instruction, then its callers. */
HIDDEN size_t unwind_interrupted(const void *context, uint64_t *frames, size_t most, enum unwind_end *end);

#endif
