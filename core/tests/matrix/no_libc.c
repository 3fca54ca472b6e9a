/* A dynamic program without any libc, as some compilers of other languages make them. Says "ok" and ends. */
#include <sys/syscall.h>

static long call(long number, long a, long b, long c) {
#if defined(__x86_64__)
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
#endif
}

void _start(void);
void _start(void) {
  static const char text[] = "ok no_libc\n";
  call(SYS_write, 1, (long)text, sizeof text - 1);
  for (;;) call(SYS_exit_group, 0, 0, 0);
}
