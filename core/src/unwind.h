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

/* Looks up where tables are, if that may take the loader's lock: musl's must not be taken while it may be held. */
HIDDEN void unwind_prepare(bool at_start);

/* Where the code of a library or a program lies; 0 and 0: unknown. */
struct unwind_range {
  uintptr_t start, end;
};

/* That of the object with this address. */
HIDDEN struct unwind_range unwind_range_of(uintptr_t address);

/* Program counters of the callers of this function, innermost first: return addresses, less one. *whole: the walk came
 * to the end of the stack, to `most`, or some frames into the code of `last`, beyond which nobody looks. Returns how
 * many. */
HIDDEN size_t unwind_here(uint64_t *frames, size_t most, struct unwind_range last, bool *whole);

/* The same from where a signal interrupted, as its handler is told: first that instruction, then its callers. */
HIDDEN size_t unwind_interrupted(const void *context, uint64_t *frames, size_t most, bool *whole);

#endif
