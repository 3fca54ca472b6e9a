/* Thousands of short threads. They end with full caches, free in the destructors of thread-specific data (also in
 * the second and third round of destructors, after the allocator's own may have run), and leave blocks that others
 * free after them. Some call the allocator for the first time in the very last round, after which nobody tells it that
 * they end, while another thread trims the heap and so the caches of others. */
#include "stress.h"

#include <limits.h>

#ifndef DESTRUCTOR_ROUNDS
#define DESTRUCTOR_ROUNDS 3 /* less under TSan, which takes a thread's state away before the last round */
#endif

enum { KEYS = 4, ROUNDS = DESTRUCTOR_ROUNDS };

static pthread_key_t keys[KEYS], last_round_key;
static atomic_ullong threads_ended;

struct inheritance {
  int rounds;
  pthread_key_t key;
  struct parcel parcels[8];
};

/* Runs at thread exit: checks and frees some, and comes again while rounds are left. */
static void release(void *argument) {
  struct inheritance *mine = argument;
  for (size_t i = 0; i < COUNT_OF(mine->parcels); i++) {
    if (mine->parcels[i].block == NULL || i % ROUNDS != (size_t)mine->rounds % ROUNDS) continue;
    free(parcel_open(parcel_wrap(mine->parcels[i])).block);
    mine->parcels[i].block = NULL;
  }
  uint64_t random = (uintptr_t)argument;
  free(parcel_open(parcel_wrap(parcel_new(&random))).block);
  if (mine->rounds-- > 0) {
    pthread_setspecific(mine->key, mine);
    return;
  }
  for (size_t i = 0; i < COUNT_OF(mine->parcels); i++)
    if (mine->parcels[i].block != NULL) free(parcel_open(parcel_wrap(mine->parcels[i])).block);
  free(mine);
}

static void free_in_the_last_round(void *argument) {
  static __thread int round;
  if (++round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(last_round_key, argument);
    return;
  }
  void *blocks[50];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = hidden(malloc(64));
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
}

static void *live_shortly(void *argument) {
  if ((uintptr_t)argument % 8 == 7 && ROUNDS > 1) {
    pthread_setspecific(last_round_key, &last_round_key);
    return NULL;
  }
  uint64_t random = stream_seed((uintptr_t)argument);
  for (size_t k = 0; k < KEYS; k++) {
    struct inheritance *mine = malloc(sizeof *mine);
    STRESS_CHECK(mine != NULL, "no memory");
    mine->rounds = (int)random_below(&random, ROUNDS + 1);
    mine->key = keys[k];
    for (size_t i = 0; i < COUNT_OF(mine->parcels); i++) mine->parcels[i] = parcel_new(&random);
    pthread_setspecific(keys[k], mine);
  }
  for (uint64_t step = random_below(&random, 200); step > 0; step--) exchange_step(&random, 1024);
  /* Fill the caches with what was just freed. */
  struct parcel burst[128];
  for (size_t i = 0; i < COUNT_OF(burst); i++) burst[i] = parcel_new(&random);
  for (size_t i = 0; i < COUNT_OF(burst); i++) free(parcel_open(parcel_wrap(burst[i])).block);
  atomic_fetch_add(&threads_ended, 1);
  if (random_below(&random, 8) == 0) pthread_exit(NULL);
  return NULL;
}

static void *start_short_threads(void *argument) {
  uint64_t random = stream_seed(5000 + (uintptr_t)argument), number = (uintptr_t)argument << 32;
  while (stress_goes_on()) {
    pthread_t batch[16];
    size_t count = 1 + random_below(&random, COUNT_OF(batch));
    for (size_t i = 0; i < count; i++) {
      int error = pthread_create(&batch[i], NULL, live_shortly, (void *)(uintptr_t)number++);
      STRESS_CHECK(error == 0, "pthread_create: error %d after %llu threads", error, (unsigned long long)threads_ended);
      if (random_below(&random, 4) == 0) {
        pthread_detach(batch[i]);
        batch[i] = pthread_self();
      }
    }
    for (size_t i = 0; i < count; i++)
      if (!pthread_equal(batch[i], pthread_self())) pthread_join(batch[i], NULL);
  }
  return NULL;
}

static void *trim_again_and_again(void *argument) {
  for (; stress_goes_on(); sleep_ms(1)) trim_heap();
  return argument;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  for (size_t k = 0; k < KEYS; k++) STRESS_CHECK(pthread_key_create(&keys[k], release) == 0, "no key");
  STRESS_CHECK(pthread_key_create(&last_round_key, free_in_the_last_round) == 0, "no key");
  pthread_t trimmer;
  STRESS_CHECK(pthread_create(&trimmer, NULL, trim_again_and_again, NULL) == 0, "no thread");
  run_threads(start_short_threads, options.threads);
  pthread_join(trimmer, NULL);
  sleep_ms(200); /* the detached ones */
  exchange_drain();
  test_print(2, "short_threads: %llu threads\n", (unsigned long long)threads_ended);
  return stress_passed("short_threads");
}
