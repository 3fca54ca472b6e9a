/* Several threads fork at random moments while others allocate. Each child checks all that it inherited, goes on
 * allocating with threads of its own, forks grandchildren, frees everything and ends. A child that hangs is killed by
 * its alarm, and that is a failure. */
#include "stress.h"

enum { CHILD_TIMEOUT_S = 60, FORKERS = 2, FORK_SLOTS = 1024 };

static atomic_ullong forks;
static bool child_may_have_threads = true;

static void *exchange(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on())
    for (int step = 0; step < 100; step++) exchange_step(&random, FORK_SLOTS);
  return NULL;
}

static void *exchange_in_child(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument ^ (uint64_t)getpid() << 20);
  uint64_t steps = random_below(&random, 16) == 0 ? 5000 : 300;
  for (uint64_t step = 0; step < steps; step++) exchange_step(&random, FORK_SLOTS);
  return NULL;
}

static void wait_for(pid_t child) {
  int status = 0;
  pid_t waited;
  do waited = waitpid(child, &status, 0);
  while (waited < 0 && errno == EINTR);
  STRESS_CHECK(waited == child, "waitpid: errno %d", errno);
  STRESS_CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "child %d hung for %d s", (int)child,
               CHILD_TIMEOUT_S);
  STRESS_CHECK(status == 0, "child %d ended with wait status 0x%x", (int)child, status);
}

static void live_as_child(uint64_t *random, int generation);

static void fork_once(uint64_t *random, int generation) {
  pid_t child = fork();
  STRESS_CHECK(child >= 0, "fork: errno %d", errno);
  if (child == 0) {
    alarm(CHILD_TIMEOUT_S);
    live_as_child(random, generation);
    /* Some children end as programs do, with exit handlers, some as workers do. */
    if (random_below(random, 2)) exit(0);
    _exit(0);
  }
  wait_for(child);
}

static void live_as_child(uint64_t *random, int generation) {
  if (random_below(random, 2)) { /* most children of servers are short: a few calls and an end */
    for (int step = 0; step < 20; step++) exchange_step(random, FORK_SLOTS);
    return;
  }
  if (snug_check != NULL) snug_check();
  for (int step = 0; step < 100; step++) exchange_step(random, FORK_SLOTS);
  if (child_may_have_threads) run_threads(exchange_in_child, 1 + (unsigned)random_below(random, 3));
  if (generation < 3 && random_below(random, 3) == 0) fork_once(random, generation + 1);
  if (random_below(random, 2)) {
    exchange_drain();
    if (snug_check != NULL) snug_check();
  }
}

static void *fork_repeatedly(void *argument) {
  uint64_t random = stream_seed(1000 + (uintptr_t)argument);
  while (stress_goes_on()) {
    for (uint64_t step = random_below(&random, 500); step > 0; step--) exchange_step(&random, FORK_SLOTS);
    fork_once(&random, 0);
    atomic_fetch_add(&forks, 1);
  }
  return NULL;
}

static void *fork_or_exchange(void *argument) {
  return (uintptr_t)argument < FORKERS ? fork_repeatedly(argument) : exchange(argument);
}

/* The emulator (qemu-user 7.2) can't start a thread in a child whose parent had several, whatever allocates: it fails
 * its own assertion in plugins/core.c, that the number it gives the thread is new. So children do without; main forks,
 * and the janitor stays away (SNUG=background:0, in tests.mk). */
static void fork_from_main_alone(void) {
  child_may_have_threads = false;
  pthread_t threads[THREADS_MAX];
  for (unsigned i = 0; i < options.threads; i++)
    STRESS_CHECK(pthread_create(&threads[i], NULL, exchange, (void *)(uintptr_t)i) == 0, "pthread_create");
  fork_repeatedly((void *)(uintptr_t)0);
  for (unsigned i = 0; i < options.threads; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  if (getenv("TEST_EMULATED"))
    fork_from_main_alone();
  else
    run_threads(fork_or_exchange, options.threads + FORKERS);
  exchange_drain();
  test_print(2, "fork_storm: %llu forks\n", (unsigned long long)forks);
  return stress_passed("fork_storm");
}
