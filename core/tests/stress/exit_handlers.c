/* Processes that end: exit handlers, destructors and thread-specific data free while other threads still allocate, in
 * children forked from a process that itself has threads. */
#include "stress.h"

enum { BLOCKS = 500 };
static struct parcel parcels[3][BLOCKS];
static uint64_t child_random;

static void fill(struct parcel *row) {
  for (size_t i = 0; i < BLOCKS; i++) row[i] = parcel_new(&child_random);
}

static void release(struct parcel *row) {
  for (size_t i = 0; i < BLOCKS; i++) {
    if (row[i].block == NULL) continue;
    free(parcel_open(parcel_wrap(row[i])).block);
    row[i].block = NULL;
  }
}

static void release_at_exit(void) {
  release(parcels[0]);
  fill(parcels[0]); /* handlers may allocate, too */
  release(parcels[0]);
}

static void release_some_and_leave_a_handler(void) {
  release(parcels[1]);
  atexit(release_at_exit);
}

/* Runs after the exit handlers, when the C library has already begun to take itself down. */
__attribute__((destructor)) static void release_last(void) { release(parcels[2]); }

static void *exchange_for_ever(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument ^ (uint64_t)getpid() << 20);
  while (argument != &random) exchange_step(&random, 1024); /* always: the compilers disagree about for (;;) */
  return NULL;
}

__attribute__((noreturn)) static void *end_process(void *argument) { exit((int)(intptr_t)argument); }

static void live_as_child(uint64_t number) {
  alarm(60);
  child_random = stream_seed(number);
  for (size_t i = 0; i < COUNT_OF(parcels); i++) fill(parcels[i]);
  atexit(release_some_and_leave_a_handler);
  for (unsigned i = 0; i < options.threads; i++) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, exchange_for_ever, (void *)(uintptr_t)i);
    STRESS_CHECK(error == 0, "pthread_create: error %d", error);
  }
  sleep_ms((long)random_below(&child_random, 10));
  if (number % 3 == 0) { /* another thread ends the process while main sits in malloc */
    pthread_t thread;
    STRESS_CHECK(pthread_create(&thread, NULL, end_process, NULL) == 0, "pthread_create");
    exchange_for_ever((void *)(uintptr_t)999);
  }
  exit(0);
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  uint64_t children = 0;
  for (; stress_goes_on(); children++) {
    pid_t child = fork();
    STRESS_CHECK(child >= 0, "fork: errno %d", errno);
    if (child == 0) live_as_child(children);
    int status = 0;
    STRESS_CHECK(waitpid(child, &status, 0) == child, "waitpid: errno %d", errno);
    STRESS_CHECK(status == 0, "child %llu ended with wait status 0x%x", (unsigned long long)children, status);
  }
  test_print(2, "exit_handlers: %llu processes\n", (unsigned long long)children);
  return stress_passed("exit_handlers");
}
