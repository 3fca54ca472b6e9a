/* unwind_memory.h: what unwind.c and its platforms share: reading memory that may not be there (U1), and tables. */
#ifndef SNUG_UNWIND_MEMORY_H
#define SNUG_UNWIND_MEMORY_H

#include "base.h"

enum { FRAME_MAX_BYTES = 1 << 20 }; /* longer than this no frame is that only a frame pointer shows */

/* Pages known to be there: a range that grows with the walk, and the last one outside of it. */
struct stack_memory {
  uintptr_t low, high, other;
};

/* Whether the page of the address can be read. */
HIDDEN bool unwind_is_there(struct stack_memory *memory, uintptr_t address);

/* The header of the tables (.eh_frame_hdr) of the object that holds the address; NULL: none is known. */
HIDDEN const uint8_t *unwind_tables(uint64_t pc);

/* Reads an aligned word of the thread's stack, or of data that tables point to. */
static inline bool read_word(struct stack_memory *memory, uint64_t address, uint64_t *word) {
  if (address % sizeof *word != 0 || !unwind_is_there(memory, (uintptr_t)address)) return false;
  *word = *(const uint64_t *)(uintptr_t)address;
  return true;
}

/* The caller, by the pair of words that the frame pointer points to: its frame pointer and the return address. */
static inline bool step_by_frame_pointer(uint64_t *pc, uint64_t *sp, uint64_t *fp, struct stack_memory *memory) {
  uint64_t caller_fp, return_address, frame = *fp;
  if (frame < *sp || frame - *sp > FRAME_MAX_BYTES) return false;
  if (!read_word(memory, frame, &caller_fp) || !read_word(memory, frame + 8, &return_address)) return false;
  *pc = return_address;
  *sp = frame + 16;
  *fp = caller_fp;
  return true;
}

#endif
