/* syscall_aarch64.h: one system call on aarch64. Returns what the kernel returns: a value, or -errno. */
#ifndef SNUG_SYSCALL_ARCH_H
#define SNUG_SYSCALL_ARCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include "libc.h"

static inline long syscall_raw(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}

/* Starts a thread that shares everything with this process and runs entry() on the given stack, with
 * thread_block as its thread pointer; entry must not return. Returns the thread's id, or -errno. */
static inline long clone_raw(unsigned long flags, void *stack_top, int *parent_tid, int *child_tid, void *thread_block,
                             void (*entry)(void)) {
  register long x8 __asm__("x8") = 220;
  register long x0 __asm__("x0") = (long)flags;
  register long x1 __asm__("x1") = (long)stack_top;
  register long x2 __asm__("x2") = (long)parent_tid;
  register long x3 __asm__("x3") = (long)thread_block;
  register long x4 __asm__("x4") = (long)child_tid;
  register long x9 __asm__("x9") = (long)entry;
  __asm__ volatile(
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "blr x9\n\t"
      "brk 1\n"
      "1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x9)
      : "memory", "x30");
  return x0;
}

/* The same by clone3(2), which takes a description of size_bytes. */
static inline long clone3_raw(const void *description, size_t size_bytes, void (*entry)(void)) {
  register long x8 __asm__("x8") = 435;
  register long x0 __asm__("x0") = (long)description;
  register long x1 __asm__("x1") = (long)size_bytes;
  register long x9 __asm__("x9") = (long)entry;
  __asm__ volatile(
      "svc 0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, xzr\n\t"
      "blr x9\n\t"
      "brk 1\n"
      "1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x9)
      : "memory", "x30");
  return x0;
}

/* The interrupted registers, from what a signal handler is told: x0 to x30, sp, pc. */
static inline const void *interrupted_registers(const void *context) {
  return ((const ucontext_t *)context)->uc_mcontext.regs;
}

/* What the instruction did that a handler of SIGSEGV is told about: the kernel's record of it is not searched for. */
static inline const char *kind_of_access(const void *context) {
  (void)context;
  return "access";
}

/* Where a signal handler returns to. Debuggers and unwinders know it by its bytes, as the kernel's own. */
__asm__(
    ".pushsection .text\n\t"
    "nop\n\t"
    ".hidden snug_signal_return\n\t"
    ".type snug_signal_return, %function\n"
    "snug_signal_return:\n\t"
    "mov x8, #139\n\t"
    "svc #0\n\t"
    ".size snug_signal_return, . - snug_signal_return\n\t"
    ".popsection");

#define VDSO_CLOCK_GETTIME "__kernel_clock_gettime"

static inline void cpu_relax(void) { __asm__ volatile("yield"); }

static inline uint64_t cpu_ticks(void) {
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}

/* libgcc asks by this name, which not every libc has, for the atomic instructions there are; before our first one. */
__attribute__((visibility("hidden"))) unsigned long __getauxval(unsigned long type);
unsigned long __getauxval(unsigned long type) { return getauxval != NULL ? getauxval(type) : 0; }

#endif
