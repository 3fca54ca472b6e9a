/* ticks.c: see ticks.h. */
#define _GNU_SOURCE
#include "ticks.h"

double ticks_length_ns(void) {
  const uint64_t span_ns = 20000000;
  uint64_t start_ns = monotonic_ns(), start = read_ticks(), now_ns;
  do now_ns = monotonic_ns();
  while (now_ns - start_ns < span_ns);
  return (double)(now_ns - start_ns) / (double)(read_ticks() - start);
}

double ticks_overhead(void) {
  enum { ROUNDS = 20, PAIRS = 1000 };
  double least = 1e9; /* the least of some rounds: the others were interrupted */
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t sum = 0;
    for (int i = 0; i < PAIRS; i++) {
      uint64_t before = read_ticks();
      sum += read_ticks() - before;
    }
    if ((double)sum / PAIRS < least) least = (double)sum / PAIRS;
  }
  return least;
}
