#include "malloc_conf.h"

#include <stdlib.h>
#include <string.h>

#include "fatal.h"
#include "malloc_conf_keys.h"
#include "options.h"
#include "rights.h"
#include "sys.h"
#include "text.h"

enum { MESSAGE_BYTES_MAX = 512, LINK_BYTES = 4096, ARENAS_MAX_HIGH = 64, DISTANCE_LOW = 1, DISTANCE_HIGH = 30 };

/* jemalloc's own names. A program may define malloc_conf, and then it is the program's that is read; it may point
 * malloc_message at a function of its own. */
EXPORT extern const char *malloc_conf;
EXPORT extern void (*malloc_message)(void *context, const char *text);
__attribute__((weak)) const char *malloc_conf = NULL;
void (*malloc_message)(void *context, const char *text) = NULL;

struct malloc_conf_settings malloc_conf_settings = {
    .dirty_decay_ms = MALLOC_CONF_OWN_DECAY_MS, .prof_active = true, .profile = 1, .prof_prefix = "jeprof"};

/* One pair of a list, and where the list is from. */
struct pair {
  const char *source;
  char name[OPTION_WORD_BYTES];
  char value[OPTION_WORD_BYTES];
  const char *whole; /* the value in its list, however long */
  bool has_value;
};

static bool found_mistakes;

void malloc_conf_write(const char *text) {
  if (malloc_message != NULL) {
    malloc_message(NULL, text);
  } else {
    sys_write(2, text, strlen(text));
  }
}

/* ---- messages ---- */

static void warn_pair(const struct pair *pair, const char *what, const char *rest, const char *ending) {
  char message[MESSAGE_BYTES_MAX];
  struct text text = text_in(message, sizeof message);
  text_string(&text, what);
  text_char(&text, '"');
  text_string(&text, pair->name);
  if (pair->has_value) text_char(&text, ':');
  text_string(&text, pair->value);
  text_string(&text, "\" in ");
  text_string(&text, pair->source);
  text_string(&text, rest);
  text_string(&text, ending);
  warn_line(message);
  found_mistakes = true;
}

/* The key that looks most like the name, and least unlike it in length; NULL if none does. */
static const struct conf_key *nearest_key(const char *name) {
  const struct conf_key *nearest = NULL;
  size_t most = OPTION_ALIKE - 1, least_rest = SIZE_MAX;
  for (size_t i = 0; i < CONF_KEY_COUNT; i++) {
    size_t common = options_likeness(name, conf_keys[i].name), rest = strlen(conf_keys[i].name) - common;
    if (common < most || common < OPTION_ALIKE || (common == most && rest >= least_rest)) continue;
    most = common;
    least_rest = rest;
    nearest = &conf_keys[i];
  }
  return nearest;
}

static void warn_unknown_key(const struct pair *pair) {
  char ending[MESSAGE_BYTES_MAX];
  struct text text = text_in(ending, sizeof ending);
  const struct conf_key *nearest = nearest_key(pair->name);
  if (nearest != NULL) {
    text_string(&text, "did you mean \"");
    text_string(&text, nearest->name);
    text_string(&text, ":...\"? (ignored)");
  } else {
    text_string(&text, "no key of jemalloc's (ignored)");
  }
  warn_pair(pair, "unknown setting ", "; ", ending);
}

static void warn_bad_value(const struct pair *pair, const struct conf_key *key) {
  static const char *const wanted[] = {[CONF_BOOL] = "; use true or false",
                                       [CONF_NUMBER] = "; use a number",
                                       [CONF_SIGNED] = "; use a number, or -1",
                                       [CONF_WORD] = "; use another word"};
  warn_pair(pair, "bad value ", wanted[key->value], " (ignored)");
}

/* confirm_conf: what the key does here. */
static void confirm(const struct pair *pair, const struct conf_key *key) {
  char line[MESSAGE_BYTES_MAX];
  struct text text = text_in(line, sizeof line);
  text_string(&text, "snug: ");
  text_string(&text, pair->source);
  text_string(&text, ": ");
  text_string(&text, pair->name);
  text_char(&text, ':');
  text_string(&text, pair->value);
  text_string(&text, key->class == CONF_MAPPED ? " is understood: " : " has no effect: ");
  text_string(&text, key->sentence);
  text_char(&text, '\n');
  malloc_conf_write(line);
}

/* ---- values ---- */

static bool parse_number(const char *text, bool is_signed, int64_t *result) {
  bool negative = is_signed && text[0] == '-';
  if (negative) text++;
  uint64_t number = 0;
  if (*text == '\0') return false;
  for (; *text != '\0'; text++) {
    if (*text < '0' || *text > '9' || number > INT64_MAX / 10 - 1) return false;
    number = number * 10 + (uint64_t)(*text - '0');
  }
  *result = negative ? -(int64_t)number : (int64_t)number;
  return *result >= -1;
}

static bool parse_bool(const char *text, int64_t *result) {
  *result = strcmp(text, "true") == 0;
  return *result || strcmp(text, "false") == 0;
}

static size_t length_of_prefix(const char *whole) { return strcspn(whole, ","); }

/* The value of a key as a number; words are 0. False: it is none that the key can have. */
static bool parse_pair(const struct pair *pair, const struct conf_key *key, int64_t *value) {
  *value = 0;
  if (!pair->has_value) return false;
  switch (key->value) {
    case CONF_BOOL: return parse_bool(pair->value, value);
    case CONF_NUMBER: return parse_number(pair->value, false, value);
    case CONF_SIGNED: return parse_number(pair->value, true, value);
    default: break;
  }
  if (key->effect == EFFECT_PROFILE_PREFIX) return length_of_prefix(pair->whole) < MALLOC_CONF_PREFIX_BYTES;
  if (key->effect != EFFECT_THP) return true;
  if (strcmp(pair->value, "always") == 0) *value = THP_ALWAYS;
  if (strcmp(pair->value, "default") == 0) *value = THP_GROWTH;
  return *value != THP_NEVER || strcmp(pair->value, "never") == 0;
}

/* Whether what is not there was asked for, rather than forbidden. */
static bool asks(const struct pair *pair) {
  static const char *const nothing[] = {"false", "0", "-1", "free", "none"};
  for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
    if (strcmp(pair->value, nothing[i]) == 0) return false;
  }
  return true;
}

static void set_decay(int64_t decay_ms) {
  malloc_conf_settings.dirty_decay_ms = decay_ms == 0 || decay_ms == -1 ? decay_ms : MALLOC_CONF_OWN_DECAY_MS;
  if (decay_ms == 0) options.purge_cpu_percent = 100;
  if (decay_ms != -1) return;
  options.purge_cpu_percent = 0;
  options.background = 0;
}

/* A setting of 1 would mean another distance, and a longer one than the highest is no use. */
uint32_t malloc_conf_profile(uint64_t lg_bytes) {
  if (lg_bytes < DISTANCE_LOW) lg_bytes = DISTANCE_LOW;
  return UINT32_C(1) << (lg_bytes < DISTANCE_HIGH ? lg_bytes : DISTANCE_HIGH);
}

static void set_prefix(const char *whole) {
  size_t length = length_of_prefix(whole);
  memcpy(malloc_conf_settings.prof_prefix, whole, length);
  malloc_conf_settings.prof_prefix[length] = '\0';
}

static void take_effect(const struct pair *pair, const struct conf_key *key, int64_t value) {
  struct malloc_conf_settings *settings = &malloc_conf_settings;
  switch (key->effect) {
    case EFFECT_ARENAS: options.arenas_max = value < ARENAS_MAX_HIGH ? (uint32_t)value : ARENAS_MAX_HIGH; break;
    case EFFECT_BACKGROUND: options.background = (uint32_t)value; break;
    case EFFECT_DECAY: set_decay(value); break;
    case EFFECT_THP: options.thp = (uint32_t)value; break;
    case EFFECT_STATS: options.stats_print = settings->stats_as_text = value; break;
    case EFFECT_STATS_LETTERS: memcpy(settings->stats_letters, pair->value, sizeof settings->stats_letters); break;
    case EFFECT_ZERO: settings->zero = value; break;
    case EFFECT_XMALLOC: settings->xmalloc = value; break;
    case EFFECT_CONFIRM: settings->confirm = value; break;
    case EFFECT_ABORT_CONF: settings->abort_conf = value; break;
    case EFFECT_PROFILE: settings->prof = value; break;
    case EFFECT_PROFILE_ACTIVE: settings->prof_active = value; break;
    case EFFECT_PROFILE_DISTANCE: settings->profile = malloc_conf_profile((uint64_t)value); break;
    case EFFECT_PROFILE_PREFIX: set_prefix(pair->whole); break;
    case EFFECT_PROFILE_FINAL: settings->prof_final = value; break;
    default: break;
  }
}
_Static_assert((int)MALLOC_CONF_LETTERS_BYTES == (int)OPTION_WORD_BYTES, "the letters are copied whole");

/* ---- lists ---- */

static bool is_called(const struct conf_key *key, const char *name) {
  size_t length = strcspn(key->name, "*");
  return strncmp(key->name, name, length) == 0 && (key->name[length] == '*' || name[length] == '\0');
}

/* What asks for something of profiles asks for nothing while there are none, and whether there are shows at the end. */
static bool is_of_profiles(const struct conf_key *key) {
  return strncmp(key->name, "prof_", 5) == 0 || strncmp(key->name, "lg_prof_", 8) == 0;
}

static void confirm_pair(const struct pair *pair, const struct conf_key *key) {
  bool is_missed = key->class == CONF_ABSENT && is_of_profiles(key) && malloc_conf_settings.prof && asks(pair);
  if (is_missed) warn_pair(pair, "", " has no effect: ", key->sentence);
  if (malloc_conf_settings.confirm) confirm(pair, key);
}

static void set_pair(const struct pair *pair, bool only_confirm) {
  for (size_t i = 0; i < CONF_KEY_COUNT; i++) {
    const struct conf_key *key = &conf_keys[i];
    int64_t value;
    if (!is_called(key, pair->name)) continue;
    bool good = parse_pair(pair, key, &value);
    if (only_confirm) {
      if (good) confirm_pair(pair, key);
    } else if (!good) {
      warn_bad_value(pair, key);
    } else if (key->class == CONF_ABSENT && !is_of_profiles(key) && asks(pair)) {
      warn_pair(pair, "", " has no effect: ", key->sentence);
    } else {
      take_effect(pair, key, value);
    }
    return;
  }
  if (!only_confirm) warn_unknown_key(pair);
}

static void read_list(const char *from, const char *source, bool only_confirm) {
  while (from != NULL && *from != '\0') {
    struct pair pair = {.source = source, .value = "", .whole = ""};
    from = options_next_word(from, ":,", pair.name);
    pair.has_value = *from == ':';
    if (pair.has_value) {
      pair.whole = from + 1;
      from = options_next_word(pair.whole, ",", pair.value);
    }
    if (*from == ',') from++;
    if (pair.name[0] != '\0' || pair.has_value) set_pair(&pair, only_confirm);
  }
}

void malloc_conf_read(bool trusts_environment) {
  char link[LINK_BYTES];
  bool linked = rights_have(RIGHT_OTHERS) && sys_read_link("/etc/malloc.conf", link, sizeof link) != 0;
  const char *variable = trusts_environment ? sys_environment("MALLOC_CONF") : NULL;
  if (malloc_conf == NULL && !linked && variable == NULL) return;
  for (int turn = 0; turn < 2; turn++) { /* what confirm_conf confirms may stand before it */
    bool only_confirm = turn == 1;
    read_list(malloc_conf, "malloc_conf", only_confirm);
    if (linked) read_list(link, "/etc/malloc.conf", only_confirm);
    read_list(variable, "MALLOC_CONF", only_confirm);
  }
  if (malloc_conf_settings.prof && malloc_conf_settings.prof_active) options.profile = malloc_conf_settings.profile;
  if (malloc_conf_settings.abort_conf && found_mistakes) fatal_bad_settings();
}
