/* malloc_conf_test.c: MALLOC_CONF key by key: what has an effect, what is accepted in silence, what is warned about. */
#include "../../src/sys.c"
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/malloc_conf.c"
#include "unit.h"

static const char *setting, *snug_setting, *arena_setting;

static void set_or_unset(const char *name, const char *value) {
  if (value != NULL) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

/* In a child, as start.c does: the effective settings follow the messages on stderr, after a tab. */
static void read_and_describe(void) {
  char description[512];
  struct text text = text_in(description, sizeof description);
  set_or_unset("MALLOC_CONF", setting);
  set_or_unset("SNUG", snug_setting);
  set_or_unset("MALLOC_ARENA_MAX", arena_setting);
  options_read_arena_max();
  malloc_conf_read(true);
  options_read();
  text_char(&text, '\t');
  options_describe(&text);
  const struct malloc_conf_settings *s = &malloc_conf_settings;
  text_string(&text, s->zero ? " zero" : "");
  text_string(&text, s->xmalloc ? " xmalloc" : "");
  text_string(&text, s->stats_as_text ? " text" : "");
  text_string(&text, s->dirty_decay_ms == 0 ? " decay0" : s->dirty_decay_ms == -1 ? " never" : "");
  text_string(&text, s->stats_letters);
  if (s->prof) text_string(&text, s->prof_active ? " prof" : " idle");
  if (s->prof && s->prof_final) text_string(&text, " final");
  if (s->profile != 1) {
    text_string(&text, " every ");
    text_number(&text, s->profile);
  }
  if (strcmp(s->prof_prefix, "jeprof") != 0) {
    text_string(&text, " as ");
    text_string(&text, s->prof_prefix);
  }
  sys_write(2, description, text.length_bytes);
}

static int listen_to(const char *conf, char *messages, size_t capacity, char **description) {
  setting = conf;
  int status = run_and_listen(read_and_describe, messages, capacity);
  *description = strchr(messages, '\t');
  if (*description != NULL) *(*description)++ = '\0';
  return status;
}

static void check_conf(const char *conf, const char *messages, const char *effective) {
  char text[8192], *description;
  int status = listen_to(conf, text, sizeof text, &description);
  CHECK_THAT(status == 0 && description != NULL, "MALLOC_CONF=%s: wait status 0x%x: %s", conf, status, text);
  if (description == NULL) return;
  CHECK_THAT(strcmp(text, messages) == 0, "MALLOC_CONF=%s: says: %s", conf, text);
  CHECK_THAT(strcmp(description, effective) == 0, "MALLOC_CONF=%s: effective: %s, expected: %s", conf, description,
             effective);
}

#define SETTINGS_AND_PROFILE(stats, arenas, background, percent, thp, profile)                                     \
  "verbose:0,stats_print:" #stats ",arenas_max:" #arenas ",background:" #background ",purge_cpu_percent:" #percent \
  ",thp:" #thp ",guard:0,profile:" #profile ",guard_samples:0"
#define SETTINGS(stats, arenas, background, percent, thp) \
  SETTINGS_AND_PROFILE(stats, arenas, background, percent, thp, 0)
#define PROFILED(profile) SETTINGS_AND_PROFILE(0, 0, 1, 1, 2, profile)
#define DEFAULTS SETTINGS(0, 0, 1, 1, 2)
#define WARNING(text) "snug: warning: " text " (ignored)\n"

TEST(keys_with_an_effect) {
  check_conf("narenas:2", "", SETTINGS(0, 2, 1, 1, 2));
  check_conf("narenas:200", "", SETTINGS(0, 64, 1, 1, 2));
  check_conf("background_thread:false", "", SETTINGS(0, 0, 0, 1, 2));
  check_conf("background_thread:true", "", DEFAULTS);
  check_conf("dirty_decay_ms:0", "", SETTINGS(0, 0, 1, 100, 2) " decay0");
  check_conf("dirty_decay_ms:-1", "", SETTINGS(0, 0, 0, 0, 2) " never");
  check_conf("dirty_decay_ms:5000", "", DEFAULTS);
  check_conf("thp:always", "", SETTINGS(0, 0, 1, 1, 1));
  check_conf("thp:always,thp:never", "", SETTINGS(0, 0, 1, 1, 0));
  check_conf("thp:never,thp:default", "", DEFAULTS);
  check_conf("stats_print:true,stats_print_opts:Jg", "", SETTINGS(1, 0, 1, 1, 2) " textJg");
  check_conf("zero:true,xmalloc:true", "", DEFAULTS " zero xmalloc");
  check_conf("zero:true,zero:false", "", DEFAULTS);
}

#define LONG_PATH "/var/tmp/some/quite/long/path/of/a/folder/for/the/profiles/of/this/program"

TEST(keys_of_profiles_are_looked_at_together) {
  check_conf("prof:true", "", PROFILED(1) " prof");
  check_conf("prof_active:true,prof:true,prof_final:true", "", PROFILED(1) " prof final");
  check_conf("prof:true,lg_prof_sample:19", "", PROFILED(524288) " prof every 524288");
  check_conf("lg_prof_sample:19,prof_prefix:" LONG_PATH ",prof:true,thp:always", "",
             SETTINGS_AND_PROFILE(0, 0, 1, 1, 1, 524288) " prof every 524288 as " LONG_PATH);
  check_conf("prof:true,lg_prof_sample:0", "", PROFILED(2) " prof every 2");
  check_conf("prof:true,lg_prof_sample:63", "", PROFILED(1073741824) " prof every 1073741824");
  check_conf("prof:true,prof_active:false,lg_prof_sample:19", "", DEFAULTS " idle every 524288");
  check_conf("prof:true,prof:false,lg_prof_sample:17,prof_final:true", "", DEFAULTS " every 131072");
  check_conf("prof:true,prof_active:false,prof_prefix:", "", DEFAULTS " idle as ");
  snug_setting = "profile:0";
  check_conf("prof:true", "", DEFAULTS " prof");
  snug_setting = NULL;
  check_conf("prof:yes,lg_prof_sample:-1",
             WARNING("bad value \"prof:yes\" in MALLOC_CONF; use true or false")
                 WARNING("bad value \"lg_prof_sample:-1\" in MALLOC_CONF; use a number"),
             DEFAULTS);
  static char list[2 * MALLOC_CONF_PREFIX_BYTES];
  memset(list, 'x', sizeof list - 1);
  memcpy(list, "prof_prefix:", 12);
  char text[2048], *description;
  listen_to(list, text, sizeof text, &description);
  CHECK_THAT(strstr(text, "bad value \"prof_prefix:xxx") != NULL, "%s", text);
}

/* As found in images and guides. */
TEST(what_people_deploy_gives_no_line) {
  check_conf("dirty_decay_ms:1000,narenas:2,background_thread:true", "", SETTINGS(0, 2, 1, 1, 2));
  check_conf("background_thread:true,metadata_thp:auto,dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000", "",
             DEFAULTS);
  check_conf("dirty_decay_ms:0,muzzy_decay_ms:0", "", SETTINGS(0, 0, 1, 100, 2) " decay0");
  check_conf("percpu_arena:percpu,oversize_threshold:1,lg_tcache_max:13,retain:false,tcache:false", "", DEFAULTS);
  check_conf("prof:false,prof_active:false,prof_gdump:true,lg_prof_interval:30,prof_leak:true", "", DEFAULTS);
  check_conf("lg_dirty_mult:-1,junk:false,abort:true,dss:primary,zero_realloc:free", "", DEFAULTS);
  check_conf("", "", DEFAULTS);
  check_conf(" narenas : 2 , thp:never ,, ", "", SETTINGS(0, 2, 1, 1, 0));
}

TEST(wishes_that_are_not_met_are_named) {
  check_conf("prof_gdump:true,prof:true,prof_active:false,lg_prof_interval:-1,narenas:1",
             "snug: warning: \"prof_gdump:true\" in MALLOC_CONF has no effect: with prof:true, profiles are written by "
             "prof.dump, and at the end by prof_final:true\n",
             SETTINGS(0, 1, 1, 1, 2) " idle");
  check_conf("junk:true",
             "snug: warning: \"junk:true\" in MALLOC_CONF has no effect: blocks are not filled; "
             "SNUG=guard:1 fills freed ones and finds who uses them\n",
             DEFAULTS);
}

TEST(mistakes_give_one_line_and_the_rest_counts) {
  check_conf("narenas=2,thp:always",
             WARNING("unknown setting \"narenas=2\" in MALLOC_CONF; did you mean \"narenas:...\"?"),
             SETTINGS(0, 0, 1, 1, 1));
  check_conf("\xe2\x80\x9cnarenas:2,thp:always\xe2\x80\x9d",
             WARNING("unknown setting \"\xe2\x80\x9cnarenas:2\" in MALLOC_CONF; did you mean \"narenas:...\"?")
                 WARNING("bad value \"thp:always\xe2\x80\x9d\" in MALLOC_CONF; use another word"),
             DEFAULTS);
  check_conf("\"narenas:2\"",
             WARNING("unknown setting \"\"narenas:2\"\" in MALLOC_CONF; did you mean \"narenas:...\"?"), DEFAULTS);
  check_conf("dirty_decay:1000,narenas:3",
             WARNING("unknown setting \"dirty_decay:1000\" in MALLOC_CONF; did you mean \"dirty_decay_ms:...\"?"),
             SETTINGS(0, 3, 1, 1, 2));
  check_conf("qqq:1", WARNING("unknown setting \"qqq:1\" in MALLOC_CONF; no key of jemalloc's"), DEFAULTS);
  check_conf("narenas", WARNING("bad value \"narenas\" in MALLOC_CONF; use a number"), DEFAULTS);
  check_conf("narenas:", WARNING("bad value \"narenas:\" in MALLOC_CONF; use a number"), DEFAULTS);
  check_conf("narenas:-1", WARNING("bad value \"narenas:-1\" in MALLOC_CONF; use a number"), DEFAULTS);
  check_conf("narenas:2x", WARNING("bad value \"narenas:2x\" in MALLOC_CONF; use a number"), DEFAULTS);
  check_conf("dirty_decay_ms:-2", WARNING("bad value \"dirty_decay_ms:-2\" in MALLOC_CONF; use a number, or -1"),
             DEFAULTS);
  check_conf("background_thread:1", WARNING("bad value \"background_thread:1\" in MALLOC_CONF; use true or false"),
             DEFAULTS);
  check_conf("dirty_decay_ms:99999999999999999999",
             WARNING("bad value \"dirty_decay_ms:99999999999999999999\" in MALLOC_CONF; use a number, or -1"),
             DEFAULTS);
}

TEST(snug_wins_over_malloc_conf_wins_over_glibc) {
  arena_setting = "7";
  check_conf(NULL, "", SETTINGS(0, 7, 1, 1, 2));
  check_conf("narenas:2", "", SETTINGS(0, 2, 1, 1, 2));
  snug_setting = "arenas_max:3,stats_print:0";
  check_conf("narenas:2,stats_print:true", "", SETTINGS(0, 3, 1, 1, 2) " text");
  snug_setting = "purge_cpu_percent:5";
  check_conf("dirty_decay_ms:0", "", SETTINGS(0, 7, 1, 5, 2) " decay0");
  snug_setting = arena_setting = NULL;
}

TEST(confirm_conf_says_what_each_key_does) {
  char text[8192], *description;
  listen_to("narenas:2,tcache:false,prof:true,prof_bt_max:9,confirm_conf:true", text, sizeof text, &description);
  CHECK_THAT(strstr(text, "snug: MALLOC_CONF: narenas:2 is understood: arenas_max;") != NULL, "%s", text);
  CHECK_THAT(strstr(text, "snug: MALLOC_CONF: tcache:false has no effect: ") != NULL, "%s", text);
  CHECK_THAT(strstr(text, "snug: MALLOC_CONF: prof:true is understood: profile; ") != NULL, "%s", text);
}

static void read_conf(void) {
  set_or_unset("MALLOC_CONF", setting);
  malloc_conf_read(true);
}

TEST(abort_conf_ends_the_process) {
  setting = "abort_conf:true,narenas=2";
  check_dies(read_conf, "bad settings, and MALLOC_CONF has abort_conf:true");
  check_conf("abort_conf:true,narenas:2", "", SETTINGS(0, 2, 1, 1, 2));
}

/* Where who starts the program has fewer rights than it gets. */
static void read_without_trust(void) {
  set_or_unset("MALLOC_CONF", "narenas:2,zero:true,nonsense:3");
  malloc_conf_read(false);
  if (options.arenas_max != 0 || malloc_conf_settings.zero) sys_write(2, "trusted", 7);
}

TEST(the_environment_may_not_be_trusted) {
  char text[256];
  CHECK(run_and_listen(read_without_trust, text, sizeof text) == 0);
  CHECK_THAT(text[0] == '\0', "%s", text);
}

TEST(every_row_is_sound) {
  for (size_t i = 0; i < CONF_KEY_COUNT; i++) {
    const struct conf_key *key = &conf_keys[i];
    CHECK_THAT(strlen(key->name) < OPTION_WORD_BYTES && key->sentence[0] != '\0', "%s", key->name);
    CHECK_THAT((key->class == CONF_MAPPED) == (key->effect != EFFECT_NONE), "%s", key->name);
    for (size_t other = 0; other < i; other++) CHECK_THAT(strcmp(conf_keys[other].name, key->name), "%s", key->name);
  }
}

/* Random lists: no crash, whatever they say. */
static void read_garbage(void) {
  static const char *const parts[] = {"narenas",      ":",  ",",  "2",    "dirty_decay_ms",    "-1",
                                      "\xe2\x80\x9c", "=",  " ",  "true", "confirm_conf:true", "stats_print_opts:",
                                      "\n",           "\"", "::", ",,",   "zzzzzzzzzzzz",      "prof_prefix:"};
  uint64_t random = 5;
  REQUIRE(freopen("/dev/null", "w", stderr) != NULL);
  for (int i = 0; i < 20000; i++) {
    char list[600] = "";
    for (uint64_t part = random_below(&random, 40); part > 0; part--) {
      strcat(list, parts[random_below(&random, COUNT_OF(parts))]);
    }
    if (list[0] != '\0') list[random_below(&random, strlen(list))] = (char)random_next(&random);
    malloc_conf = list;
    malloc_conf_read(false);
    malloc_conf_settings.abort_conf = false;
  }
}

TEST(garbage_does_no_harm) { run_in_child(read_garbage); }
