/* syscall_x86_64.h: one system call on x86-64. Returns what the kernel returns: a value, or -errno. */
#ifndef SNUG_SYSCALL_ARCH_H
#define SNUG_SYSCALL_ARCH_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

static inline long syscall_raw(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

/* Starts a thread that shares everything with this process and runs entry() on the given stack, with
 * thread_block as its thread pointer; entry must not return. Returns the thread's id, or -errno. */
static inline long clone_raw(unsigned long flags, void *stack_top, int *parent_tid, int *child_tid, void *thread_block,
                             void (*entry)(void)) {
  long result;
  register long r10 __asm__("r10") = (long)child_tid;
  register long r8 __asm__("r8") = (long)thread_block;
  register long r9 __asm__("r9") = (long)entry; /* not in rbp, which the new thread clears first */
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "call *%%r9\n\t"
      "ud2\n"
      "1:"
      : "=a"(result)
      : "a"(56L), "D"(flags), "S"(stack_top), "d"(parent_tid), "r"(r10), "r"(r8), "r"(r9)
      : "rcx", "r11", "memory");
  return result;
}

/* The same by clone3(2), which takes a description of size_bytes. */
static inline long clone3_raw(const void *description, size_t size_bytes, void (*entry)(void)) {
  long result;
  register long r9 __asm__("r9") = (long)entry;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "call *%%r9\n\t"
      "ud2\n"
      "1:"
      : "=a"(result)
      : "a"(435L), "D"(description), "S"(size_bytes), "r"(r9)
      : "rcx", "r11", "memory");
  return result;
}

/* The interrupted registers, from what a signal handler is told, in the kernel's order. */
static inline const void *interrupted_registers(const void *context) {
  return ((const ucontext_t *)context)->uc_mcontext.gregs;
}

/* What the instruction did that a handler of SIGSEGV is told about: bit 1 of the page fault's code. */
static inline const char *kind_of_access(const void *context) {
  enum { ERROR_CODE = 19, IS_WRITE = 2 }; /* REG_ERR */
  return (((const ucontext_t *)context)->uc_mcontext.gregs[ERROR_CODE] & IS_WRITE) != 0 ? "write" : "read";
}

/* Where a signal handler returns to. Debuggers and unwinders know it by its bytes, as libc's own. */
__asm__(
    ".pushsection .text\n\t"
    "nop\n\t"
    ".hidden snug_signal_return\n\t"
    ".type snug_signal_return, @function\n"
    "snug_signal_return:\n\t"
    "movq $15, %rax\n\t"
    "syscall\n\t"
    ".size snug_signal_return, . - snug_signal_return\n\t"
    ".popsection");

#define VDSO_CLOCK_GETTIME "__vdso_clock_gettime"

static inline void cpu_relax(void) { __asm__ volatile("pause"); }

static inline uint64_t cpu_ticks(void) { return __builtin_ia32_rdtsc(); }

#endif
