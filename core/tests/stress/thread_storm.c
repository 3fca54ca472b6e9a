/* About 400 threads at a time, which come, use their caches, idle for a while and go, so that each tick looks at a
 * part of them only; some vanish without a word. Another one trims the heap, and so all caches, while others fork: each
 * child checks all that it inherited, and has threads of its own, too, in the caches of those that don't exist there.
 */
#include "stress.h"

#include <limits.h>

enum { LIVE = 400, WAVE = 40, CHILD_TIMEOUT_S = 60, STORM_SLOTS = 2048, CHILDS_THREADS = 20, STACK_BYTES = 256 * 1024 };

static pthread_attr_t small_stack;
static pthread_key_t last_round_key;
static atomic_uint live;
static atomic_ullong threads_ended, forks;

/* In the very last destructor: then nobody tells the allocator that the thread ends. */
static void allocate_in_the_last_round(void *argument) {
  static __thread int round;
  if (++round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(last_round_key, argument);
    return;
  }
  void *blocks[20];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = hidden(malloc(48));
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
}

static void *come_and_go(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  if ((uintptr_t)argument % 16 == 15) {
    pthread_setspecific(last_round_key, &last_round_key);
  } else {
    for (uint64_t bursts = 1 + random_below(&random, 3); bursts != 0 && stress_goes_on(); bursts--) {
      for (uint64_t step = random_below(&random, 200); step != 0; step--) exchange_step(&random, STORM_SLOTS);
      sleep_ms((long)random_below(&random, 500));
    }
  }
  atomic_fetch_add(&threads_ended, 1);
  atomic_fetch_sub(&live, 1);
  return NULL;
}

/* They are detached: nobody waits for one that idles. */
static void *start_threads(void *argument) {
  for (uintptr_t number = 0; stress_goes_on();) {
    for (int i = 0; i < WAVE && atomic_load(&live) < LIVE; i++) {
      pthread_t thread;
      atomic_fetch_add(&live, 1);
      int error = pthread_create(&thread, &small_stack, come_and_go, (void *)number++);
      STRESS_CHECK(error == 0, "pthread_create: error %d after %zu threads", error, (size_t)number);
      pthread_detach(thread);
    }
    sleep_ms(2);
  }
  return argument;
}

static void *exchange_in_child(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument ^ (uint64_t)getpid() << 20);
  for (int step = 0; step < 500; step++) exchange_step(&random, STORM_SLOTS);
  return NULL;
}

static void live_as_child(uint64_t *random) {
  alarm(CHILD_TIMEOUT_S);
  if (random_below(random, 2) && snug_check != NULL) snug_check();
  for (int step = 0; step < 100; step++) exchange_step(random, STORM_SLOTS);
  pthread_t threads[CHILDS_THREADS];
  for (uintptr_t i = 0; i < CHILDS_THREADS; i++)
    STRESS_CHECK(pthread_create(&threads[i], NULL, exchange_in_child, (void *)i) == 0, "no thread in a child");
  exchange_in_child((void *)(uintptr_t)CHILDS_THREADS);
  for (size_t i = 0; i < CHILDS_THREADS; i++) pthread_join(threads[i], NULL);
  exchange_drain();
  if (snug_check != NULL) snug_check();
  _exit(0);
}

static void *fork_repeatedly(void *argument) {
  uint64_t random = stream_seed(1000 + (uintptr_t)argument);
  while (stress_goes_on()) {
    pid_t child = fork(), waited;
    STRESS_CHECK(child >= 0, "fork: errno %d", errno);
    if (child == 0) live_as_child(&random);
    int status = 0;
    do waited = waitpid(child, &status, 0);
    while (waited < 0 && errno == EINTR);
    STRESS_CHECK(waited == child && status == 0, "child %d ended with wait status 0x%x", (int)child, status);
    atomic_fetch_add(&forks, 1);
    for (uint64_t step = random_below(&random, 500); step != 0; step--) exchange_step(&random, STORM_SLOTS);
  }
  return NULL;
}

static void *trim_again_and_again(void *argument) {
  for (; stress_goes_on(); sleep_ms(3)) trim_heap();
  return argument;
}

static void *do_one_thing(void *argument) {
  uintptr_t number = (uintptr_t)argument;
  return number == 0 ? start_threads(NULL) : number == 1 ? trim_again_and_again(NULL) : fork_repeatedly(argument);
}

int main(int argc, char **argv) {
  enum { FORKERS = 2 };
  stress_begin(argc, argv);
  pthread_attr_init(&small_stack);
  STRESS_CHECK(pthread_attr_setstacksize(&small_stack, STACK_BYTES) == 0, "no stack of %d bytes", STACK_BYTES);
  STRESS_CHECK(pthread_key_create(&last_round_key, allocate_in_the_last_round) == 0, "no key");
  run_threads(do_one_thing, 2 + FORKERS);
  while (atomic_load(&live) != 0) sleep_ms(10);
  sleep_ms(100); /* the last ones' destructors */
  exchange_drain();
  test_print(2, "thread_storm: %llu threads, %llu forks\n", (unsigned long long)threads_ended,
             (unsigned long long)forks);
  return stress_passed("thread_storm");
}
