/* Threads work in bursts and pause for 0-500 ms between them, so that their caches are idle again and again while
 * others work, and are in use again just when somebody empties them. More threads than CPUs, always. */
#include "stress.h"

static void *burst_and_pause(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  /* A private block list: LIFO reuse straight out of the thread's cache, the state a thief would disturb. */
  struct parcel own[64];
  while (stress_goes_on()) {
    uint64_t steps = random_below(&random, 4000);
    for (uint64_t step = 0; step < steps; step++) {
      exchange_step(&random, 512);
      size_t count = 1 + random_below(&random, COUNT_OF(own));
      for (size_t i = 0; i < count; i++) own[i] = parcel_new(&random);
      for (size_t i = count; i > 0; i--) free(parcel_open(parcel_wrap(own[i - 1])).block);
      if (step % 16 == 0 && !stress_goes_on()) break;
    }
    /* Often just around the 100 and 300 ms after which a thread counts as idle. */
    static const long around_ms[] = {0, 1, 95, 105, 150, 290, 310, 500};
    sleep_ms(around_ms[random_below(&random, COUNT_OF(around_ms))]);
  }
  return NULL;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  run_threads(burst_and_pause, options.threads * 4 <= THREADS_MAX ? options.threads * 4 : THREADS_MAX);
  exchange_drain();
  return stress_passed("idle_threads");
}
