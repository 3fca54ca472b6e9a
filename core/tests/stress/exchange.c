/* Threads exchange blocks of all sizes through shared slots; most blocks are freed by another thread than the one
 * that allocated them. Contents are checked at every free and realloc. */
#include "stress.h"

static void *exchange(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on())
    for (int step = 0; step < 1000; step++) exchange_step(&random, SLOTS_MAX);
  return NULL;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  run_threads(exchange, options.threads);
  exchange_drain();
  return stress_passed("exchange");
}
