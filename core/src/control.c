#include "control.h"

#include "options.h"
#include "purge.h"
#include "rights.h"
#include "sys.h"
#include "text.h"

#define ABILITY_SETTINGS_SHIFT 32
#define ANSWER_VALUE_SHIFT 8
#define ANSWER_HIGH_SHIFT 32
#define SWITCH_NAP_NS UINT64_C(100000)

enum { SWITCH_NAPS = 50000 };

uint64_t control_answered, control_heard, control_lease_until_ns;

/* Their checks, out of others' reach; under the purge lock. */
static uint64_t answered_wishes[SNUG_COUNTERS_WISHES + 1];

struct request {
  uint64_t words, from, check;
};

static struct request read_request(void) {
  const struct snug_counters *c = &snug_counters;
  return (struct request){counter_get(&c->request), counter_get(&c->request_from), counter_get(&c->request_check)};
}

/* Q1 */
static bool is_whole(const struct request *request) {
  return request->check == snug_request_check(request->words, request->from, snug_counters.pid);
}

/* The page's settings are overwritten by a text made elsewhere: readers never see an empty one. */
static void describe_settings(void) {
  char settings[sizeof snug_counters.settings];
  struct text text = text_in(settings, sizeof settings);
  options_describe(&text);
  for (size_t i = 0; i <= text.length_bytes; i++)
    __atomic_store_n(&snug_counters.settings[i], settings[i], __ATOMIC_RELAXED);
}

/* What SNUG or a request says of samples, without the lease. */
static uint32_t profile_for_good(void) {
  if (__atomic_load_n(&control_lease_until_ns, __ATOMIC_RELAXED) != 0) return 0;
  return __atomic_load_n(&options.profile, __ATOMIC_RELAXED);
}

bool control_samples_for_good(void) { return profile_for_good() != 0; }

static void settings_changed(void) {
  describe_settings();
  cache_call_in();
}

static void note_lease(uint64_t until_ns, uint64_t from) {
  __atomic_store_n(&control_lease_until_ns, until_ns, __ATOMIC_RELAXED);
  counter_set(&snug_counters.sampling_for, from);
  counter_set(&snug_counters.sampling_until_ns, until_ns);
}

static uint64_t answer_to_change(enum option_change change, uint32_t low, uint32_t high) {
  if (change == OPTION_CHANGED) return SNUG_ANSWER_DONE;
  if (change == OPTION_FIXED) return SNUG_ANSWER_FIXED;
  if (change == OPTION_UNKNOWN) return SNUG_ANSWER_UNKNOWN_SETTING;
  return SNUG_ANSWER_OUT_OF_RANGE | (uint64_t)low << ANSWER_VALUE_SHIFT | (uint64_t)high << ANSWER_HIGH_SHIFT;
}

static uint64_t change_setting(uint64_t words) {
  uint32_t number = (uint32_t)(words >> 8 & 0xffffff), value = (uint32_t)(words >> 32), low = 0, high = 0;
  bool is_profile = number == options_number(&options.profile), is_word = (words & 0xff) == SNUG_REQUEST_SWITCH;
  if (is_profile && !is_word && value == 0 && !control_samples_for_good())
    return SNUG_ANSWER_DONE; /* but for a lease */
  enum option_change change = options_change(number, value, is_word, &low, &high);
  if (change == OPTION_CHANGED) {
    if (is_profile) note_lease(0, 0);
    settings_changed();
  }
  return answer_to_change(change, low, high);
}

static void end_lease(void) {
  note_lease(0, 0);
  __atomic_store_n(&options.profile, 0, __ATOMIC_RELAXED);
  settings_changed();
}

/* A lease that is over before it begins ends the one that holds. */
static uint64_t lease_profile(const struct snug_counters_wish *wish) {
  uint32_t number = (uint32_t)(wish->request >> 8 & 0xffffff), value = (uint32_t)(wish->request >> 32), low, high;
  if (number != options_number(&options.profile)) return SNUG_ANSWER_FIXED;
  if (control_samples_for_good()) return SNUG_ANSWER_DONE;
  if (value == 0 || wish->until_ns <= sys_coarse_time_ns()) {
    if (control_lease_until_ns != 0) end_lease();
    return SNUG_ANSWER_DONE;
  }
  bool is_same = value == options.profile;
  enum option_change change = options_change(number, value, false, &low, &high);
  if (change == OPTION_CHANGED) {
    note_lease(wish->until_ns, wish->from);
    if (!is_same) settings_changed();
  }
  return answer_to_change(change, low, high);
}

static bool is_setting(uint64_t words) {
  return (words & 0xff) == SNUG_REQUEST_SET || (words & 0xff) == SNUG_REQUEST_SWITCH;
}

/* Q6. The purge lock is held. */
static void answer_wish(struct snug_counters_wish *row, size_t number) {
  struct snug_counters_wish wish = {.request = counter_get(&row->request),
                                    .from = counter_get(&row->from),
                                    .until_ns = counter_get(&row->until_ns),
                                    .check = counter_get(&row->check)};
  bool is_lease = row == &snug_counters.lease;
  if (wish.check == answered_wishes[number] ||
      wish.check != snug_wish_check(wish.request, wish.from, wish.until_ns, snug_counters.pid))
    return;
  uint64_t answer = SNUG_ANSWER_UNKNOWN_KIND;
  if (is_setting(wish.request) && (is_lease || (wish.request >> 8 & 0xffffff) == number))
    answer = is_lease ? lease_profile(&wish) : change_setting(wish.request);
  answered_wishes[number] = wish.check;
  counter_set(&row->answer, answer);
  __atomic_store_n(&row->answer_to, wish.check, __ATOMIC_RELEASE);
}

/* Those that wait, and then the lease, whose end may just have been put off. */
static void look_at_wishes(void) {
  uint64_t wished = __atomic_load_n(&snug_counters.wished, __ATOMIC_ACQUIRE), until_ns;
  if (wished != control_heard) {
    for (size_t i = 0; i < SNUG_COUNTERS_WISHES; i++) answer_wish(&snug_counters.wishes[i], i);
    answer_wish(&snug_counters.lease, SNUG_COUNTERS_WISHES);
    __atomic_store_n(&control_heard, wished, __ATOMIC_RELAXED);
  }
  until_ns = control_lease_until_ns;
  if (until_ns != 0 && until_ns <= sys_coarse_time_ns()) end_lease();
}

/* 0: a fork stopped it, and it waits for the next look. The purge lock is held. */
static uint64_t answer_to_purge(uint64_t check, const struct cache *own) {
  static uint64_t gone_for; /* the check of the request for which */
  static size_t gone_bytes; /* so much went until now */
  size_t bytes;
  bool is_all = purge_all_locked(own, &bytes);
  gone_bytes = gone_for == check ? gone_bytes + bytes : bytes;
  gone_for = check;
  return is_all ? SNUG_ANSWER_DONE | (uint64_t)gone_bytes << ANSWER_VALUE_SHIFT : 0;
}

static uint64_t answer_of(const struct request *request, const struct cache *own) {
  switch (request->words & 0xff) {
    case SNUG_REQUEST_PURGE: return answer_to_purge(request->check, own);
    case SNUG_REQUEST_SET:
    case SNUG_REQUEST_SWITCH: return change_setting(request->words);
    default: return SNUG_ANSWER_UNKNOWN_KIND;
  }
}

void control_obey(const struct cache *own) {
  struct request request = read_request();
  bool is_asked = is_whole(&request) && request.check != __atomic_load_n(&control_answered, __ATOMIC_RELAXED);
  bool is_purge = is_asked && (request.words & 0xff) == SNUG_REQUEST_PURGE;
  if (is_purge && is_purging_stopped()) is_asked = is_purge = false;
  if (is_purge && own != NULL) cache_empty_own();
  if ((!is_asked && !control_has_wishes()) || !purge_try_lock()) return;
  bool is_for_us = rights_identity() == IDENTITY_OWN; /* clone(2) copies pages without any handler of ours */
  if (is_for_us) look_at_wishes();
  bool is_new = request.check != __atomic_load_n(&control_answered, __ATOMIC_RELAXED); /* nobody was faster */
  uint64_t answer = is_for_us && is_asked && is_new ? answer_of(&request, own) : 0;
  if (answer != 0) {
    counter_set(&snug_counters.answer, answer);
    __atomic_store_n(&control_answered, request.check, __ATOMIC_RELAXED);
    __atomic_store_n(&snug_counters.answer_to, request.check, __ATOMIC_RELEASE);
  }
  purge_unlock();
}

bool control_is_asked(void) {
  struct request request = read_request();
  if (counter_get(&snug_counters.wished) != __atomic_load_n(&control_heard, __ATOMIC_RELAXED)) return true;
  return request.check != __atomic_load_n(&control_answered, __ATOMIC_RELAXED) && is_whole(&request);
}

bool control_take_lock(void) {
  for (int naps = 0; !purge_try_lock(); naps++) {
    if (naps == SWITCH_NAPS) return false;
    sys_sleep(SWITCH_NAP_NS);
  }
  return true;
}

bool control_set_profile(uint32_t setting) {
  if (!control_take_lock()) return false;
  if (setting != 0 || control_samples_for_good()) {
    __atomic_store_n(&options.profile, setting, __ATOMIC_RELAXED);
    note_lease(0, 0);
    settings_changed();
  }
  purge_unlock();
  return true;
}

bool control_switch_background(bool on) {
  if (!control_take_lock()) return false;
  __atomic_store_n(&options.background, on, __ATOMIC_RELAXED);
  describe_settings();
  purge_unlock();
  return true;
}

void control_announce(void) {
  uint64_t kinds = 1u << SNUG_REQUEST_PURGE | 1u << SNUG_REQUEST_SET | 1u << SNUG_REQUEST_SWITCH;
  snug_counters.abilities = kinds | (uint64_t)options_live() << ABILITY_SETTINGS_SHIFT;
}

void control_after_fork(void) { counter_set(&snug_counters.request_check, 0); }
