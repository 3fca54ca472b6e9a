/* ticks.h: a clock cheap enough to read around every call of malloc, and the ordinary one. */
#ifndef SNUG_TRACES_TICKS_H
#define SNUG_TRACES_TICKS_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Ticks of unknown length; ticks_length_ns tells it. Not ordered against the instructions around it: single
 * readings are off by some, sums over many calls are not. */
static inline uint64_t read_ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return monotonic_ns();
#endif
}

/* Nanoseconds per tick, measured over 20 ms. */
double ticks_length_ns(void);

/* Ticks that two readings with nothing between them are apart, on average. */
double ticks_overhead(void);

#endif
