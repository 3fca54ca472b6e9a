/* Sampling is switched on and off, with all kinds of means, and with and without fences, while threads exchange blocks,
 * begin and end, and fork. The table is checked with the heap, in parents and children. */
#include "stress.h"

#include <dlfcn.h>

#include "../../include/snug_counters.h"

enum { STORM_SLOTS = 1024, CHILD_TIMEOUT_S = 60 };

static struct snug_counters *page;              /* NULL: another allocator */
static uint64_t profile_setting, guard_setting; /* their numbers among those of the page */

static uint64_t number_of_setting(const char *name) {
  uint64_t number = 0;
  for (const char *at = page->settings; strncmp(at, name, strlen(name)) != 0; number++) {
    at = strchr(at, ',');
    STRESS_CHECK(at != NULL, "no setting %s in %s", name, page->settings);
    at++;
  }
  return number;
}

static void find_settings(void) {
  page = dlsym(RTLD_DEFAULT, "snug_counters");
  if (page == NULL) return;
  profile_setting = number_of_setting("profile:");
  guard_setting = number_of_setting("guard_samples:");
}

/* Without waiting for an answer: the next request may overtake this one. */
static void ask_for(uint64_t setting, uint64_t value) {
  static atomic_ullong count;
  if (page == NULL) return;
  uint64_t request = SNUG_REQUEST_SET | setting << 8 | value << 32, from = (uint64_t)getpid() | ++count << 32;
  page->request = request;
  page->request_from = from;
  page->request_check = snug_request_check(request, from, page->pid);
}

static void *switch_on_and_off(void *argument) {
  static const uint64_t means[] = {0, 2, 0, 100, 4096, 0, 1, 50000};
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on()) {
    ask_for(profile_setting, means[random_below(&random, COUNT_OF(means))]);
    for (int step = 0; step < 200; step++) exchange_step(&random, STORM_SLOTS);
    ask_for(guard_setting, random_below(&random, 3) != 0 ? 64 : 0);
    for (int step = 0; step < 200; step++) exchange_step(&random, STORM_SLOTS);
    sleep_ms((int)random_below(&random, 4));
  }
  return NULL;
}

static void *exchange_some(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  for (int step = 0; step < 2000; step++) exchange_step(&random, STORM_SLOTS);
  return NULL;
}

static void live_as_child(uint64_t *random) {
  alarm(CHILD_TIMEOUT_S);
  if (snug_check != NULL) snug_check();
  for (int step = 0; step < 300; step++) exchange_step(random, STORM_SLOTS);
  ask_for(profile_setting, random_below(random, 2) * 64);
  for (int step = 0; step < 300; step++) exchange_step(random, STORM_SLOTS);
  if (snug_check != NULL) snug_check();
  if (random_below(random, 2)) exit(0);
  _exit(0);
}

static void *fork_and_begin_threads(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on()) {
    pthread_t thread;
    int status = 0;
    STRESS_CHECK(pthread_create(&thread, NULL, exchange_some, (void *)(uintptr_t)random) == 0, "pthread_create");
    pid_t child = fork();
    STRESS_CHECK(child >= 0, "fork: errno %d", errno);
    if (child == 0) live_as_child(&random);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    STRESS_CHECK(status == 0, "child %d ended with wait status 0x%x", (int)child, status);
    pthread_join(thread, NULL);
    if (snug_check != NULL && random_below(&random, 8) == 0) snug_check();
  }
  return NULL;
}

static void *live(void *argument) {
  return (uintptr_t)argument % 2 == 0 ? switch_on_and_off(argument) : fork_and_begin_threads(argument);
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  find_settings();
  run_threads(live, options.threads);
  ask_for(profile_setting, 0);
  exchange_drain();
  return stress_passed("profile_storm");
}
