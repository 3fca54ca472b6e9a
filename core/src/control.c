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

uint64_t control_answered;

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

static uint64_t change_setting(uint64_t words, bool is_word) {
  uint32_t low = 0, high = 0;
  switch (options_change((uint32_t)(words >> 8 & 0xffffff), (uint32_t)(words >> 32), is_word, &low, &high)) {
    case OPTION_CHANGED: return describe_settings(), cache_call_in(), SNUG_ANSWER_DONE;
    case OPTION_FIXED: return SNUG_ANSWER_FIXED;
    case OPTION_OUT_OF_RANGE:
      return SNUG_ANSWER_OUT_OF_RANGE | (uint64_t)low << ANSWER_VALUE_SHIFT | (uint64_t)high << ANSWER_HIGH_SHIFT;
    case OPTION_UNKNOWN: break;
  }
  return SNUG_ANSWER_UNKNOWN_SETTING;
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
    case SNUG_REQUEST_SET: return change_setting(request->words, false);
    case SNUG_REQUEST_SWITCH: return change_setting(request->words, true);
    default: return SNUG_ANSWER_UNKNOWN_KIND;
  }
}

void control_obey(const struct cache *own) {
  struct request request = read_request();
  if (!is_whole(&request)) return;
  bool is_purge = (request.words & 0xff) == SNUG_REQUEST_PURGE;
  if (is_purge && is_purging_stopped()) return;
  if (is_purge && own != NULL) cache_empty_own();
  if (!purge_try_lock()) return;
  bool is_for_us = rights_identity() == IDENTITY_OWN; /* clone(2) copies pages without any handler of ours */
  bool is_new = request.check != __atomic_load_n(&control_answered, __ATOMIC_RELAXED); /* nobody was faster */
  uint64_t answer = is_for_us && is_new ? answer_of(&request, own) : 0;
  if (answer != 0) {
    counter_set(&snug_counters.answer, answer);
    __atomic_store_n(&control_answered, request.check, __ATOMIC_RELAXED);
    __atomic_store_n(&snug_counters.answer_to, request.check, __ATOMIC_RELEASE);
  }
  purge_unlock();
}

bool control_is_asked(void) {
  struct request request = read_request();
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
  __atomic_store_n(&options.profile, setting, __ATOMIC_RELAXED);
  describe_settings();
  cache_call_in();
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
