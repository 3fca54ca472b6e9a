/* Another process of the same user may write to the page of counters. Here a thread fills it with random words while
 * others allocate, fork and give back: what is counted may then be wrong, blocks may not, nor what the process does. */
#include "stress.h"

#include <sys/resource.h>

#include "../../include/snug.h"
#include "../../include/snug_counters.h"

#pragma weak snug_stats_json
extern struct snug_counters snug_counters __attribute__((weak));

enum { SCRIBBLED_SLOTS = 2048, CHILD_STEPS = 2000 };

static void scribble(uint64_t *random) {
  uint64_t *words = (uint64_t *)&snug_counters;
  for (size_t i = 0; i < sizeof snug_counters / sizeof *words; i++)
    __atomic_store_n(&words[i], random_next(random), __ATOMIC_RELAXED);
}

static void *scribble_on(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument + THREADS_MAX);
  while (stress_goes_on()) scribble(&random);
  return NULL;
}

static size_t length, strange;
static char begin[64];

static void look_at_json(void *context, const char *text, size_t text_length) {
  (void)context;
  for (size_t i = 0; i < text_length; i++) {
    if (length < sizeof begin - 1) begin[length] = text[i];
    length++;
    strange += (text[i] < ' ' && text[i] != '\n') || (unsigned char)text[i] > '~';
  }
}

/* What it says of itself, and that it knows itself when it limits its own address space. */
static void check_process(uint64_t *random) {
  char expected[32];
  scribble(random);
  length = strange = 0;
  STRESS_CHECK(snug_stats_json(look_at_json, NULL) == 0, "no statistics");
  snprintf(expected, sizeof expected, "\"pid\":%d,", (int)getpid());
  STRESS_CHECK(strstr(begin, expected) != NULL, "process %d says: %s", (int)getpid(), begin);
  STRESS_CHECK(strange == 0, "%zu of %zu characters of the statistics are none of a text", strange, length);
  struct rlimit limit = {(rlim_t)1 << 45, RLIM_INFINITY};
  STRESS_CHECK(prlimit(getpid(), RLIMIT_AS, &limit, NULL) == 0, "prlimit: errno %d", errno);
  size_t reserved = address_space_bytes();
  STRESS_CHECK(reserved < (size_t)64 << 30, "%zu bytes are reserved under a limit", reserved);
}

static void fork_one(uint64_t *random) {
  pid_t child = fork();
  STRESS_CHECK(child >= 0, "fork: errno %d", errno);
  if (child == 0) {
    for (int step = 0; step < CHILD_STEPS; step++) {
      if (step % 50 == 0) scribble(random);
      exchange_step(random, SCRIBBLED_SLOTS);
    }
    check_process(random);
    exchange_drain();
    snug_check();
    _exit(0);
  }
  int status;
  STRESS_CHECK(waitpid(child, &status, 0) == child && status == 0, "child ended with wait status 0x%x", status);
}

static void *exchange(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on()) {
    for (int step = 0; step < 100; step++) exchange_step(&random, SCRIBBLED_SLOTS);
    switch (random_below(&random, 200)) {
      case 0: malloc_trim(0); break;
      case 1: fork_one(&random); break;
      case 2: snug_check(); break;
    }
  }
  return NULL;
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  if (&snug_counters == NULL || !snug_is_active()) {
    test_print(1, "ok scribbled_counters: a question to snug\n");
    return 0;
  }
  pthread_t writer;
  STRESS_CHECK(pthread_create(&writer, NULL, scribble_on, NULL) == 0, "no thread");
  run_threads(exchange, options.threads);
  pthread_join(writer, NULL);
  uint64_t random = stream_seed(0);
  check_process(&random);
  exchange_drain();
  return stress_passed("scribbled_counters");
}
