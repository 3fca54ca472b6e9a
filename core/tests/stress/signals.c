/* Signals interrupt malloc-heavy loops thousands of times per second, in every thread. The handlers do not allocate
 * and return normally: they only must find the allocator indifferent to being stopped anywhere. */
#include "stress.h"

#include <sys/time.h>

static pthread_t workers[THREADS_MAX];
static atomic_uint workers_running;
static atomic_ullong signals_handled;

static void handle(int signal_number) {
  (void)signal_number;
  int saved = errno;
  /* Work on the stack, long enough that others overtake the interrupted thread; a system call that fails. */
  unsigned char scratch[512];
  fill_pattern(scratch, sizeof scratch, (uintptr_t)&scratch);
  if (pattern_mismatch(scratch, sizeof scratch, (uintptr_t)&scratch) != sizeof scratch) abort();
  (void)!write(-1, "", 1);
  atomic_fetch_add(&signals_handled, 1);
  errno = saved;
}

static void *exchange(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on()) {
    for (int step = 0; step < 200; step++) exchange_step(&random, 2048);
    if (random_below(&random, 50) == 0) sleep_ms(1);
  }
  atomic_fetch_sub(&workers_running, 1);
  /* Joined threads may no longer be signalled: wait until the sender has seen that it should stop. */
  while (atomic_load(&workers_running) != 0) sleep_ms(1);
  return NULL;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGPROF, &action, NULL);
  sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {{0, 500}, {0, 500}};
  setitimer(ITIMER_PROF, &timer, NULL);
  setitimer(ITIMER_REAL, &timer, NULL);
  atomic_store(&workers_running, options.threads);
  for (unsigned i = 0; i < options.threads; i++) {
    int error = pthread_create(&workers[i], NULL, exchange, (void *)(uintptr_t)i);
    STRESS_CHECK(error == 0, "pthread_create: error %d", error);
  }
  uint64_t random = stream_seed(77);
  while (atomic_load(&workers_running) == options.threads) {
    pthread_kill(workers[random_below(&random, options.threads)], SIGUSR1);
    struct timespec pause = {0, (long)random_below(&random, 200000)};
    nanosleep(&pause, NULL);
  }
  for (unsigned i = 0; i < options.threads; i++) pthread_join(workers[i], NULL);
  setitimer(ITIMER_PROF, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
  exchange_drain();
  test_print(2, "signals: %llu handled\n", (unsigned long long)signals_handled);
  return stress_passed("signals");
}
