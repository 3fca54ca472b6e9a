/* control_test.c: requests in the counters page are obeyed once and answered; what is no request for this process does
 * nothing, whatever the words hold. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

enum { RUN_BLOCKS = 64, ROUNDS = 200000 };

static uint64_t asked; /* counts requests: Q3 */

static uint64_t words_of(uint64_t kind, uint64_t option, uint64_t value) { return kind | option << 8 | value << 32; }

/* Writes a request as another process would; returns its check. */
static uint64_t ask_as(uint64_t words, uint32_t pid) {
  uint64_t from = 4711 | ++asked << 32;
  snug_counters.request = words;
  snug_counters.request_from = from;
  return snug_counters.request_check = snug_request_check(words, from, pid);
}

static uint64_t ask(uint64_t words) { return ask_as(words, snug_counters.pid); }

/* Asks, lets this thread look, and returns the answer. */
static uint64_t answer_to(uint64_t words) {
  uint64_t check = ask(words);
  control_look(this_thread.own);
  CHECK(snug_counters.answer_to == check && control_answered == check);
  return snug_counters.answer;
}

/* The number of a setting, found as the tool finds it: by its place in the page's text. */
static uint64_t option_number(const char *name) {
  const char *at = snug_counters.settings;
  size_t length = strlen(name);
  for (uint64_t number = 0; at != NULL; number++) {
    if (strncmp(at, name, length) == 0 && at[length] == ':') return number;
    at = strchr(at, ',');
    if (at != NULL) at++;
  }
  CHECK_THAT(false, "no setting %s in %s", name, snug_counters.settings);
  return 255;
}

/* Runs that were freed and hold memory, with nobody to purge them. */
static void leave_dirty_pages(void) {
  static void *blocks[RUN_BLOCKS];
  options.background = 0;
  options.purge_cpu_percent = 0;
  for (int i = 0; i < RUN_BLOCKS; i++) blocks[i] = memset(malloc(100 * KIB), 1, 100 * KIB);
  for (int i = 0; i < RUN_BLOCKS; i++) free(blocks[i]);
  CHECK(pages_dirty() * PAGE_BYTES >= RUN_BLOCKS * 100 * KIB / 2);
}

TEST(the_page_says_what_may_be_asked) {
  free(malloc(1));
  uint64_t abilities = snug_counters.abilities;
  CHECK((abilities & 0xffffffff) == (1u << SNUG_REQUEST_PURGE | 1u << SNUG_REQUEST_SET | 1u << SNUG_REQUEST_SWITCH));
  CHECK(abilities >> (32 + option_number("purge_cpu_percent")) & 1);
  CHECK(abilities >> (32 + option_number("background")) & 1);
  CHECK(!(abilities >> (32 + option_number("thp")) & 1));
  CHECK(snug_counters.answer_to == 0 && snug_counters.request_check == 0);
}

TEST(slow_paths_purge_when_asked) {
  leave_dirty_pages();
  size_t dirty_bytes = pages_dirty() * PAGE_BYTES;
  uint64_t check = ask(words_of(SNUG_REQUEST_PURGE, 0, 0));
  for (int i = 0; i < MAINTAIN_PERIOD; i++) free(malloc(100 * KIB));
  CHECK_THAT(snug_counters.answer_to == check, "not answered after %d slow calls", MAINTAIN_PERIOD);
  CHECK((snug_counters.answer & 0xff) == SNUG_ANSWER_DONE);
  CHECK_THAT(snug_counters.answer >> 8 >= dirty_bytes - 256 * KIB, "%zu bytes given back of %zu",
             (size_t)(snug_counters.answer >> 8), dirty_bytes);
  CHECK(pages_dirty() * PAGE_BYTES < dirty_bytes / 4);
  snug_check();
}

TEST(a_request_is_obeyed_once) {
  leave_dirty_pages();
  CHECK((answer_to(words_of(SNUG_REQUEST_PURGE, 0, 0)) & 0xff) == SNUG_ANSWER_DONE);
  uint64_t answer = snug_counters.answer;
  leave_dirty_pages();
  size_t dirty = pages_dirty();
  snug_counters.answer_to = 0; /* whatever others write */
  for (int i = 0; i < 3 * MAINTAIN_PERIOD; i++) control_look(this_thread.own);
  CHECK(pages_dirty() == dirty && snug_counters.answer == answer);
}

TEST(settings_change_when_asked) {
  uint64_t number = option_number("purge_cpu_percent");
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, number, 42)) == SNUG_ANSWER_DONE);
  CHECK(options.purge_cpu_percent == 42 && strstr(snug_counters.settings, "purge_cpu_percent:42,") != NULL);
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, number, 7)) == SNUG_ANSWER_DONE);
  CHECK(options.purge_cpu_percent == 7 && strstr(snug_counters.settings, "purge_cpu_percent:7,thp:") != NULL);
  uint64_t range = SNUG_ANSWER_OUT_OF_RANGE | (uint64_t)100 << 32;
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, number, 101)) == range && options.purge_cpu_percent == 7);
  CHECK(answer_to(words_of(SNUG_REQUEST_SWITCH, number, 1)) == range && options.purge_cpu_percent == 7);
  number = option_number("background");
  CHECK(answer_to(words_of(SNUG_REQUEST_SWITCH, number, 1)) == SNUG_ANSWER_DONE && options.background == 1);
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, number, 0)) == SNUG_ANSWER_DONE && options.background == 0);
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, option_number("thp"), 1)) == SNUG_ANSWER_FIXED &&
        options.thp == THP_GROWTH);
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, ROW_COUNT, 1)) == SNUG_ANSWER_UNKNOWN_SETTING);
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, 0x100, 1)) == SNUG_ANSWER_UNKNOWN_SETTING);
  CHECK(answer_to(words_of(0, 0, 0)) == SNUG_ANSWER_UNKNOWN_KIND);
  CHECK(answer_to(words_of(200, 1, 2)) == SNUG_ANSWER_UNKNOWN_KIND);
}

TEST(a_request_half_written_is_none) {
  uint64_t number = option_number("purge_cpu_percent"), words = words_of(SNUG_REQUEST_SET, number, 55);
  options.purge_cpu_percent = 3;
  for (int missing = 0; missing < 3; missing++) {
    uint64_t old[3] = {snug_counters.request, snug_counters.request_from, snug_counters.request_check};
    uint64_t answered = snug_counters.answer_to;
    ask(words);
    uint64_t *word = missing == 0   ? &snug_counters.request
                     : missing == 1 ? &snug_counters.request_from
                                    : &snug_counters.request_check;
    uint64_t whole = *word;
    *word = old[missing] ^ (missing == 2); /* the last check was answered */
    control_look(this_thread.own);
    CHECK_THAT(options.purge_cpu_percent == 3 && snug_counters.answer_to == answered, "without word %d", missing);
    *word = whole;
    control_look(this_thread.own);
    CHECK_THAT(options.purge_cpu_percent == 55, "with word %d", missing);
    options.purge_cpu_percent = 3;
  }
}

/* Any words, and then any words with a check that fits: settings stay in their ranges, the heap stays whole. */
TEST(garbage_does_no_harm) {
  uint64_t random = 5, answered = control_answered, live_bytes = snug_counters.run_bytes;
  for (int i = 0; i < ROUNDS; i++) {
    snug_counters.request = random_next(&random);
    snug_counters.request_from = random_next(&random);
    snug_counters.request_check = random_next(&random);
    control_look(i % 2 == 0 ? this_thread.own : NULL);
  }
  CHECK(control_answered == answered);
  for (int i = 0; i < ROUNDS / 10; i++) {
    uint64_t words = random_next(&random);
    if (i % 2 == 0) words = words_of(words & 3, words >> 8 & 7, words >> 32 & 127);
    snug_counters.answer = random_next(&random);
    ask(words);
    control_look(this_thread.own);
    CHECK(options.background <= 1 && options.stats_print <= 1 && options.purge_cpu_percent <= 100);
    CHECK(options.thp == THP_GROWTH && options.verbose == 0 && options.arenas_max == 0);
  }
  options.stats_print = 0;
  CHECK(strnlen(snug_counters.settings, sizeof snug_counters.settings) < sizeof snug_counters.settings);
  CHECK(snug_counters.run_bytes == live_bytes);
  snug_check();
}

TEST(a_held_purge_lock_is_not_waited_for) {
  options.purge_cpu_percent = 3;
  lock_take(&purge.lock, RANK_PURGE);
  uint64_t check = ask(words_of(SNUG_REQUEST_SET, option_number("purge_cpu_percent"), 8));
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 3 && snug_counters.answer_to != check);
  lock_give(&purge.lock, RANK_PURGE);
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 8 && snug_counters.answer_to == check);
}

static uint64_t request_before_fork[3];

static void check_in_child(void) {
  CHECK(snug_counters.request_check == 0);
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 3);
  /* And if it were still there: it names another process. */
  snug_counters.request = request_before_fork[0];
  snug_counters.request_from = request_before_fork[1];
  snug_counters.request_check = request_before_fork[2];
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 3);
  uint64_t number = option_number("purge_cpu_percent");
  CHECK(answer_to(words_of(SNUG_REQUEST_SET, number, 11)) == SNUG_ANSWER_DONE && options.purge_cpu_percent == 11);
}

TEST(a_child_leaves_its_parents_request_alone) {
  options.purge_cpu_percent = 3;
  uint64_t check = ask(words_of(SNUG_REQUEST_SET, option_number("purge_cpu_percent"), 9));
  request_before_fork[0] = snug_counters.request;
  request_before_fork[1] = snug_counters.request_from;
  request_before_fork[2] = check;
  run_in_child(check_in_child);
  CHECK(options.purge_cpu_percent == 3 && snug_counters.request_check == check);
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 9 && snug_counters.answer_to == check);
}

/* As a process made by clone(2) alone, without the handlers around fork(3). */
TEST(a_copy_without_handlers_obeys_nobody) {
  options.purge_cpu_percent = 3;
  ask_as(words_of(SNUG_REQUEST_SET, option_number("purge_cpu_percent"), 9), snug_counters.pid + 1);
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 3);
  uint32_t own = snug_counters.pid;
  snug_counters.pid = rights.owner_pid = own + 1;
  control_look(this_thread.own);
  CHECK(options.purge_cpu_percent == 3);
  snug_counters.pid = rights.owner_pid = own;
}

/* While the program sleeps; and the janitor goes when it is switched off. */
TEST(the_janitor_obeys) {
  leave_dirty_pages();
  uint64_t check = ask(words_of(SNUG_REQUEST_PURGE, 0, 0));
  options.background = 1;
  janitor_start();
  for (int i = 0; i < 3000 && __atomic_load_n(&snug_counters.answer_to, __ATOMIC_ACQUIRE) != check; i++) sleep_ms(1);
  CHECK(snug_counters.answer_to == check && (snug_counters.answer & 0xff) == SNUG_ANSWER_DONE);
  CHECK(pages_dirty() * PAGE_BYTES < 1 * MIB);
  for (int i = 0; i < 10000 && janitor_is_running(); i++) sleep_ms(1);
  sleep_ms(10);
  uint64_t idle_purges = snug_counters.idle_purges;
  janitor_start();
  ask(words_of(SNUG_REQUEST_SWITCH, option_number("background"), 0));
  for (int i = 0; i < 3000 && janitor_is_running(); i++) sleep_ms(1);
  CHECK(!janitor_is_running() && options.background == 0 && snug_counters.idle_purges == idle_purges);
}

/* Requests from one side, work on the other: each is answered, none is taken for another. */
static int requester_done;
static void *requester(void *argument) {
  (void)argument;
  for (int i = 0; i < 500; i++) {
    uint64_t kind = i % 3 == 0 ? SNUG_REQUEST_PURGE : SNUG_REQUEST_SET;
    uint64_t words = words_of(kind, 4, (uint64_t)i % 101), from = 4712 | (uint64_t)i << 32;
    uint64_t check = snug_request_check(words, from, snug_counters.pid);
    counter_set(&snug_counters.request, words);
    counter_set(&snug_counters.request_from, from);
    counter_set(&snug_counters.request_check, check);
    int waits = 0;
    while (__atomic_load_n(&snug_counters.answer_to, __ATOMIC_ACQUIRE) != check && waits++ < 10000000) sched_yield();
    CHECK(counter_get(&snug_counters.answer_to) == check);
    CHECK((counter_get(&snug_counters.answer) & 0xff) == SNUG_ANSWER_DONE);
  }
  __atomic_store_n(&requester_done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void *worker(void *argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  while (!__atomic_load_n(&requester_done, __ATOMIC_ACQUIRE)) {
    void *blocks[40];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
      size_t size = 1 + random_below(&random, i % 8 == 0 ? 200 * KIB : 3000);
      blocks[i] = memset(malloc(size), (int)i, size);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
      CHECK(*(char *)blocks[i] == (char)i);
      free(blocks[i]);
    }
  }
  return NULL;
}

TEST(requests_while_threads_work) {
  pthread_t threads[4];
  options.background = 0;
  CHECK(option_number("purge_cpu_percent") == 4);
  for (uintptr_t i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
  REQUIRE(pthread_create(&threads[3], NULL, requester, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  snug_check();
}
