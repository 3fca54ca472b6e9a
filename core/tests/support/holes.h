/* holes.h: small blocks of which most were freed, at random, so that hardly a page is without one. */
#ifndef SNUG_TESTS_HOLES_H
#define SNUG_TESTS_HOLES_H

#include "test.h"

#include <malloc.h>

enum { SMALL = 300000, KEPT_PERCENT = 30 };
static unsigned char *small[SMALL]; /* NULL: freed */
static size_t small_bytes = 60;
static uint64_t random_state = 3;

/* Time for the housekeeping between calls to see what was freed, also where this thread seldom gets a CPU. */
static inline void work_for_a_while(void) {
  enum { BLOCKS = 200, ROUNDS_MIN = 150 };
  static void *blocks[BLOCKS];
  double end_s = now_s() + 0.4;
  for (int round = 0; round < ROUNDS_MIN || now_s() < end_s; round++, sleep_ms(1)) {
    for (size_t i = 0; i < BLOCKS; i++) blocks[i] = hidden(malloc(3000));
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  }
}

static inline void leave_holes(void) {
  for (size_t i = 0; i < SMALL; i++) {
    small[i] = (unsigned char *)hidden(malloc(small_bytes));
    REQUIRE(small[i] != NULL);
    fill_pattern(small[i], small_bytes, i);
  }
  for (size_t i = 0; i < SMALL; i++) {
    if (random_below(&random_state, 100) < KEPT_PERCENT) continue;
    free(small[i]);
    small[i] = NULL;
  }
  work_for_a_while();
  malloc_trim(0); /* pages that are free and hold memory are used before holes */
}

static inline void free_small(void) {
  for (size_t i = 0; i < SMALL; i++) free(small[i]);
}

#endif
