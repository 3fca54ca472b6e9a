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

/* ---- wishes ---- */

enum { FAR = 1 << 30, OTHER_FAR = FAR - 1, SHORT_LEASE_MS = 20, MODEL_STEPS = 4000 };

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t in_ms(uint64_t ms) { return now_ns() + ms * 1000000; }

/* Writes a wish as another process would; returns its check. */
static uint64_t wish_in(struct snug_counters_wish *row, uint64_t words, uint64_t until_ns) {
  row->request = words;
  row->from = snug_counters.wished = 4711 | ++asked << 32;
  row->until_ns = until_ns;
  return row->check = snug_wish_check(words, row->from, until_ns, snug_counters.pid);
}

static uint64_t wish_for(const char *name, uint64_t value) {
  uint64_t number = option_number(name);
  return wish_in(&snug_counters.wishes[number], words_of(SNUG_REQUEST_SET, number, value), 0);
}

static void lease(uint64_t value, uint64_t until_ns) {
  wish_in(&snug_counters.lease, words_of(SNUG_REQUEST_SET, option_number("profile"), value), until_ns);
}

static uint32_t shown_profile(void) {
  const char *at = strstr(snug_counters.settings, ",profile:");
  return at != NULL ? (uint32_t)strtoul(at + strlen(",profile:"), NULL, 10) : UINT32_MAX;
}

static void take_look(void) { control_look(this_thread.own); }

static void begin_without_samples(void) {
  options.background = 0;
  control_set_profile(OTHER_FAR); /* which ends a lease */
  control_set_profile(0);
}

TEST(wishes_wait_beside_each_other_and_beside_a_purge) {
  begin_without_samples();
  wish_for("purge_cpu_percent", 42);
  uint64_t last = wish_for("purge_cpu_percent", 43);
  uint64_t purge_check = ask(words_of(SNUG_REQUEST_PURGE, 0, 0));
  wish_for("stats_print", 1);
  lease(FAR, in_ms(60000));
  CHECK(control_is_asked());
  take_look();
  CHECK(options.purge_cpu_percent == 43 && options.stats_print == 1 && options.profile == FAR);
  CHECK(snug_counters.answer_to == purge_check && (snug_counters.answer & 0xff) == SNUG_ANSWER_DONE);
  CHECK(snug_counters.wishes[option_number("purge_cpu_percent")].answer_to == last);
  CHECK(!control_is_asked());
  options.purge_cpu_percent = 5; /* each is obeyed once, whatever others write */
  snug_counters.wishes[option_number("purge_cpu_percent")].answer_to = 0;
  snug_counters.wished++;
  take_look();
  CHECK(options.purge_cpu_percent == 5);
  options.stats_print = 0;
}

TEST(wishes_are_refused_as_requests_are) {
  begin_without_samples();
  uint64_t number = option_number("purge_cpu_percent");
  struct snug_counters_wish *row = &snug_counters.wishes[number];
  wish_for("purge_cpu_percent", 101);
  take_look();
  CHECK(row->answer == (SNUG_ANSWER_OUT_OF_RANGE | (uint64_t)100 << 32) && row->answer_to == row->check);
  wish_in(row, words_of(SNUG_REQUEST_SET, number + 1, 1), 0);
  take_look();
  CHECK(row->answer == SNUG_ANSWER_UNKNOWN_KIND);
  wish_in(row, words_of(SNUG_REQUEST_PURGE, number, 1), 0);
  take_look();
  CHECK(row->answer == SNUG_ANSWER_UNKNOWN_KIND);
  wish_for("thp", 1);
  take_look();
  CHECK(snug_counters.wishes[option_number("thp")].answer == SNUG_ANSWER_FIXED && options.thp == THP_GROWTH);
  wish_in(&snug_counters.lease, words_of(SNUG_REQUEST_SET, number, 1), in_ms(60000));
  take_look();
  CHECK(snug_counters.lease.answer == SNUG_ANSWER_FIXED);
  lease((uint64_t)FAR + 1, in_ms(60000));
  take_look();
  CHECK((snug_counters.lease.answer & 0xff) == SNUG_ANSWER_OUT_OF_RANGE && options.profile == 0);
  options.purge_cpu_percent = 3;
  for (int word = 0; word < 4; word++) {
    wish_for("purge_cpu_percent", 50 + (uint64_t)word);
    uint64_t *torn = word == 0 ? &row->request : word == 1 ? &row->from : word == 2 ? &row->until_ns : &row->check;
    *torn ^= 1 << 9;
    take_look();
    CHECK_THAT(options.purge_cpu_percent == 3, "with word %d torn", word);
  }
  uint64_t random = 9;
  for (int i = 0; i < ROUNDS / 10; i++) {
    uint64_t *words = (uint64_t *)&snug_counters.lease;
    words[random_next(&random) % ((sizeof snug_counters.lease + sizeof snug_counters.wishes) / 8)] =
        random_next(&random);
    snug_counters.wished = random_next(&random);
    take_look();
  }
  CHECK(options.purge_cpu_percent == 3 && options.profile == 0 && options.thp == THP_GROWTH);
}

TEST(a_lease_ends_by_itself) {
  begin_without_samples();
  lease(FAR, in_ms(SHORT_LEASE_MS));
  take_look();
  CHECK(options.profile == FAR && shown_profile() == FAR && snug_counters.sampling_until_ns != 0);
  CHECK((uint32_t)snug_counters.sampling_for == 4711 && !control_samples_for_good());
  lease(FAR, in_ms(10 * SHORT_LEASE_MS)); /* put off while it holds, seen when the first would be over */
  sleep_ms(2 * SHORT_LEASE_MS);
  take_look();
  CHECK(options.profile == FAR);
  sleep_ms(11 * SHORT_LEASE_MS);
  for (int i = 0; i < MAINTAIN_PERIOD; i++) free(malloc(100 * KIB));
  CHECK(options.profile == 0 && shown_profile() == 0 && snug_counters.sampling_until_ns == 0);
  lease(FAR, in_ms(SHORT_LEASE_MS)); /* nobody hears of it in time */
  sleep_ms(2 * SHORT_LEASE_MS);
  take_look();
  CHECK(options.profile == 0 && snug_counters.lease.answer_to == snug_counters.lease.check);
}

static void check_lease_in_child(void) {
  CHECK(options.profile == FAR && snug_counters.sampling_until_ns != 0);
  sleep_ms(4 * SHORT_LEASE_MS);
  take_look();
  CHECK(options.profile == 0 && shown_profile() == 0);
}

TEST(a_forked_child_has_the_lease_and_its_end) {
  begin_without_samples();
  lease(FAR, in_ms(3 * SHORT_LEASE_MS));
  take_look();
  wish_for("purge_cpu_percent", 17); /* of the parent alone */
  run_in_child(check_lease_in_child);
  options.purge_cpu_percent = 3;
  take_look();
  CHECK(options.purge_cpu_percent == 17);
}

/* What must hold, by what waits and what was taken: the words in profile_for_good and lease_value are 0 or a mean. */
struct model {
  uint64_t percent, stats_print, profile_for_good, lease_value, lease_until_ns;
  int64_t wished_percent, wished_stats_print, wished_profile; /* -1: nothing waits */
  bool lease_waits;
  uint64_t waiting_value, waiting_until_ns;
};

static void model_looks(struct model *m, uint64_t now) {
  if (m->wished_percent >= 0) m->percent = (uint64_t)m->wished_percent;
  if (m->wished_stats_print >= 0) m->stats_print = (uint64_t)m->wished_stats_print;
  if (m->wished_profile >= 0) m->profile_for_good = (uint64_t)m->wished_profile;
  if (m->wished_profile > 0) m->lease_until_ns = 0;
  if (m->lease_waits && m->profile_for_good == 0) {
    m->lease_value = m->waiting_value;
    m->lease_until_ns = m->waiting_value != 0 ? m->waiting_until_ns : 0;
  }
  if (m->lease_until_ns <= now) m->lease_until_ns = 0;
  m->wished_percent = m->wished_stats_print = m->wished_profile = -1;
  m->lease_waits = false;
}

static void model_step(struct model *m, uint64_t *random) {
  uint64_t value = random_next(random) % 101;
  switch (random_next(random) % 8) {
    case 0: wish_for("purge_cpu_percent", value), m->wished_percent = (int64_t)value; break;
    case 1: wish_for("stats_print", value % 2), m->wished_stats_print = (int64_t)(value % 2); break;
    case 2:
      value = value % 3 == 0 ? OTHER_FAR : 0;
      wish_for("profile", value), m->wished_profile = (int64_t)value;
      break;
    case 3: /* as the program itself does it */
      control_set_profile(value % 2 ? OTHER_FAR : 0), m->profile_for_good = value % 2 ? OTHER_FAR : 0;
      if (value % 2) m->lease_until_ns = 0;
      break;
    case 4:
    case 5:
      m->lease_waits = true;
      m->waiting_value = value % 4 != 0 ? FAR - value % 2 : 0;
      m->waiting_until_ns = value % 4 != 0 ? in_ms(value < 8 ? SHORT_LEASE_MS : 3600000) : 0;
      lease(m->waiting_value, m->waiting_until_ns);
      break;
    default: break;
  }
}

TEST(whatever_the_order_what_was_promised_holds) {
  struct model model = {.percent = 3, .wished_percent = -1, .wished_stats_print = -1, .wished_profile = -1};
  uint64_t random = 11;
  begin_without_samples();
  options.purge_cpu_percent = 3;
  for (int i = 0; i < MODEL_STEPS; i++) {
    model_step(&model, &random);
    if (random_next(&random) % 3 != 0) continue;
    uint64_t end_ns = model.lease_waits ? model.waiting_until_ns : model.lease_until_ns;
    take_look();
    model_looks(&model, now_ns());
    if (end_ns != 0 && end_ns < in_ms(2 * SHORT_LEASE_MS)) { /* too near to say who saw it */
      sleep_ms(3 * SHORT_LEASE_MS);
      take_look();
      model_looks(&model, now_ns());
    }
    uint64_t profile = model.profile_for_good != 0 ? model.profile_for_good
                       : model.lease_until_ns != 0 ? model.lease_value
                                                   : 0;
    CHECK_THAT(options.profile == profile && shown_profile() == profile, "step %d: profile %u, not %u", i,
               options.profile, (uint32_t)profile);
    CHECK_THAT(options.purge_cpu_percent == model.percent && options.stats_print == model.stats_print, "step %d: %s", i,
               snug_counters.settings);
  }
  options.stats_print = 0;
  begin_without_samples();
}
