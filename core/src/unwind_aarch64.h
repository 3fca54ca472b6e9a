/* unwind_aarch64.h: one step of unwind.c on aarch64: frame records, a pointer to the caller's and a return address. */
#ifndef SNUG_UNWIND_AARCH64_H
#define SNUG_UNWIND_AARCH64_H

#include "unwind_memory.h"

struct machine {
  uint64_t pc, sp, fp;
};

/* Where a program's addresses end: libraries lie right below. The kernel gives more than 48 bits only to programs that
 * ask for it, by a hint to mmap(2). */
#define ADDRESSES_END (UINT64_C(1) << 48)

static ALWAYS_INLINE struct machine machine_here(void) {
  struct machine machine;
  machine.fp = (uint64_t)__builtin_frame_address(0);
  machine.sp = machine.fp;
  machine.pc = 0;
  return machine;
}

/* Where a signal interrupted, by its registers as the kernel keeps them. */
static inline struct machine machine_interrupted(const uint64_t *saved) {
  enum { FRAME = 29, STACK = 31, INSTRUCTION = 32 };
  return (struct machine){saved[INSTRUCTION], saved[STACK], saved[FRAME]};
}

static inline bool machine_step(struct machine *machine, struct stack_memory *memory, bool *is_signal) {
  *is_signal = false;
  if (machine->fp == 0) return machine->pc = 0, true; /* the outermost */
  if (!step_by_frame_pointer(&machine->pc, &machine->sp, &machine->fp, memory)) return false;
  machine->pc &= ADDRESSES_END - 1; /* pointer authentication may have set those above */
  return true;
}

#endif
