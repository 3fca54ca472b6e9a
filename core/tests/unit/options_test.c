/* options_test.c: every spelling of the SNUG variable that is understood, and a warning for all others. */
#include "../../src/sys.c"
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "unit.h"

static const char *setting, *arena_setting;

static void set_or_unset(const char *name, const char *value) {
  if (value != NULL) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

/* In a child: reads the settings; the effective ones follow the warnings on stderr, after a tab. */
static void read_and_describe(void) {
  char description[256];
  struct text text = text_in(description, sizeof description);
  set_or_unset("SNUG", setting);
  set_or_unset("MALLOC_ARENA_MAX", arena_setting);
  options_read_arena_max();
  options_read();
  text_char(&text, '\t');
  options_describe(&text);
  sys_write(2, description, text.length_bytes);
}

/* Checks warnings and effective settings for a value of SNUG and one of MALLOC_ARENA_MAX (NULL: not set). */
static void check_setting(const char *value, const char *arenas, const char *warnings, const char *effective) {
  char text[4096];
  setting = value;
  arena_setting = arenas;
  int status = run_and_listen(read_and_describe, text, sizeof text);
  char *description = strchr(text, '\t');
  CHECK_THAT(status == 0 && description != NULL, "SNUG=%s: wait status 0x%x: %s", value, status, text);
  if (description == NULL) return;
  *description++ = '\0';
  CHECK_THAT(strcmp(text, warnings) == 0, "SNUG=%s: warns: %s", value, text);
  CHECK_THAT(strcmp(description, effective) == 0, "SNUG=%s: effective: %s, expected: %s", value, description,
             effective);
}

#define DEFAULTS \
  "verbose:0,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_samples:0"
#define BAD_SWITCH(value, name, stays)                        \
  "snug: warning: bad value \"" value "\" for option \"" name \
  "\" in SNUG; use 1, on, yes, true or 0, off, no, false (ignored, stays " stays ")\n"
#define UNKNOWN(name, nearest) \
  "snug: warning: unknown option \"" name "\" in SNUG; did you mean \"" nearest "\"? (ignored)\n"

/* What the warning about an unknown option suggests; empty: nothing. */
static void suggested(const char *name, char nearest[64]) {
  char text[4096], value[128];
  snprintf(value, sizeof value, "%s:0", name);
  setting = value;
  arena_setting = NULL;
  run_and_listen(read_and_describe, text, sizeof text);
  const char *from = strstr(text, "did you mean \"");
  nearest[0] = '\0';
  if (from != NULL) sscanf(from, "did you mean \"%63[^\"]", nearest);
}

TEST(beginnings_and_slips_suggest_their_option) {
  char name[64], nearest[64];
  for (size_t i = 0; i < ROW_COUNT; i++) {
    size_t length = strlen(rows[i].name);
    for (size_t cut = 3; cut < length; cut++) {
      snprintf(name, sizeof name, "%.*s", (int)cut, rows[i].name);
      if (strcmp(name, "guard") == 0) continue; /* an option itself */
      suggested(name, nearest);
      CHECK_THAT(strncmp(nearest, name, cut) == 0, "%s: suggests %s", name, nearest);
    }
    for (size_t left_out = 0; length > 5 && left_out < length; left_out++) {
      snprintf(name, sizeof name, "%.*s%s", (int)left_out, rows[i].name, rows[i].name + left_out + 1);
      suggested(name, nearest);
      CHECK_THAT(strcmp(nearest, rows[i].name) == 0, "%s: suggests %s", name, nearest);
    }
  }
}

TEST(what_resembles_nothing_suggests_nothing) {
  check_setting("quux:1", NULL, "snug: warning: unknown option \"quux\" in SNUG; SNUG=help lists all (ignored)\n",
                DEFAULTS);
}

TEST(the_table_repeats_the_defaults) {
  size_t count = 0;
  for (; count < ROW_COUNT; count++) {
    const char *name = rows[count].name, *sentence = rows[count].sentence;
    uint32_t low = rows[count].low, high = rows[count].high, fallback = rows[count].fallback;
    CHECK_THAT(*rows[count].value == fallback, "%s is %u at start, %u in the table", name, *rows[count].value,
               fallback);
    CHECK_THAT(low <= fallback && fallback <= high, "%s", name);
    CHECK_THAT(strlen(name) < OPTION_WORD_BYTES && sentence[0] != '\0', "%s", name);
    CHECK_THAT(rows[count].value >= (uint32_t *)&options && rows[count].value < (uint32_t *)(&options + 1), "%s", name);
    for (size_t other = 0; other < count; other++) CHECK_THAT(rows[other].value != rows[count].value, "%s twice", name);
  }
  CHECK_THAT(count == sizeof options / sizeof(uint32_t), "%zu rows for %zu settings", count,
             sizeof options / sizeof(uint32_t));
}

TEST(nothing_set_is_the_defaults) {
  check_setting(NULL, NULL, "", DEFAULTS);
  check_setting("", NULL, "", DEFAULTS);
  check_setting(",", NULL, "", DEFAULTS);
  check_setting(" , ,, ", NULL, "", DEFAULTS);
}

TEST(every_option_takes_every_value_of_its_range) {
  for (size_t i = 0; i < ROW_COUNT; i++) {
    for (uint32_t number = rows[i].low; number <= rows[i].high; number += rows[i].high < 6 ? 1 : rows[i].high / 6) {
      char value[128], expected[256];
      struct text text = text_in(expected, sizeof expected);
      snprintf(value, sizeof value, "%s:%u", rows[i].name, number);
      uint32_t saved = *rows[i].value;
      *rows[i].value = number;
      options_describe(&text);
      *rows[i].value = saved;
      check_setting(value, NULL, "", expected);
    }
  }
}

TEST(switches_take_words) {
  check_setting("thp:off", NULL, "",
                "verbose:0,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:1,thp:0,guard:0,profile:0,guard_"
                "samples:0");
  check_setting("thp:on", NULL, "",
                "verbose:0,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:1,thp:1,guard:0,profile:0,guard_"
                "samples:0");
  static const char *const on[] = {"1", "true", "on", "yes"}, *const off[] = {"0", "false", "off", "no"};
  for (size_t i = 0; i < COUNT_OF(on); i++) {
    char value[64];
    snprintf(value, sizeof value, "verbose:%s", on[i]);
    check_setting(value, NULL, "",
                  "verbose:1,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_"
                  "samples:0");
    snprintf(value, sizeof value, "background:%s", off[i]);
    check_setting(value, NULL, "",
                  "verbose:0,stats_print:0,arenas_max:0,background:0,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_"
                  "samples:0");
  }
  check_setting("arenas_max:on", NULL,
                "snug: warning: bad value \"on\" for option \"arenas_max\" in SNUG; use a number from 0 to 64 "
                "(ignored, stays 0)\n",
                DEFAULTS);
}

TEST(several_in_one_with_spaces_and_the_last_wins) {
  check_setting(
      "verbose:1,arenas_max:4", NULL, "",
      "verbose:1,stats_print:0,arenas_max:4,background:1,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_samples:0");
  check_setting(
      " verbose : 1 , arenas_max : 4 , ", NULL, "",
      "verbose:1,stats_print:0,arenas_max:4,background:1,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_samples:0");
  check_setting("thp:1,thp:0,purge_cpu_percent:100", NULL, "",
                "verbose:0,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:100,thp:0,guard:0,profile:0,guard_"
                "samples:0");
}

TEST(unknown_options_name_the_nearest) {
  check_setting("verbos:1", NULL, UNKNOWN("verbos", "verbose"), DEFAULTS);
  check_setting("VERBOSE:1", NULL, UNKNOWN("VERBOSE", "verbose"), DEFAULTS);
  check_setting("arena_max:1", NULL, UNKNOWN("arena_max", "arenas_max"), DEFAULTS);
  check_setting("narenas:1", NULL, UNKNOWN("narenas", "arenas_max"), DEFAULTS);
  check_setting("background_thread:true", NULL, UNKNOWN("background_thread", "background"), DEFAULTS);
  check_setting("purge_cpu:5", NULL, UNKNOWN("purge_cpu", "purge_cpu_percent"), DEFAULTS);
  check_setting("purge_percent:5", NULL, UNKNOWN("purge_percent", "purge_cpu_percent"), DEFAULTS);
  check_setting(
      "statsprint:1,thp:1", NULL, UNKNOWN("statsprint", "stats_print"),
      "verbose:0,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:1,thp:1,guard:0,profile:0,guard_samples:0");
}

TEST(bad_values_leave_the_setting) {
  static const char *const bad[] = {"2",   "-1",   "+1",   "0x1",        "1.0",
                                    "1e0", "yess", "TRUE", "4294967296", "18446744073709551617"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    char value[64], warning[256];
    snprintf(value, sizeof value, "background:%s", bad[i]);
    snprintf(warning, sizeof warning, BAD_SWITCH("%s", "background", "1"), bad[i]);
    check_setting(value, NULL, warning, DEFAULTS);
  }
  check_setting("verbose", NULL, BAD_SWITCH("", "verbose", "0"), DEFAULTS);
  check_setting("verbose:", NULL, BAD_SWITCH("", "verbose", "0"), DEFAULTS);
  check_setting("verbose:1:1", NULL, BAD_SWITCH("1:1", "verbose", "0"), DEFAULTS);
  check_setting("purge_cpu_percent:101", NULL,
                "snug: warning: bad value \"101\" for option \"purge_cpu_percent\" in SNUG; use a number from 0 to 100 "
                "(ignored, stays 1)\n",
                DEFAULTS);
  check_setting(
      "arenas_max:65,thp:1", NULL,
      "snug: warning: bad value \"65\" for option \"arenas_max\" in SNUG; use a number from 0 to 64 "
      "(ignored, stays 0)\n",
      "verbose:0,stats_print:0,arenas_max:0,background:1,purge_cpu_percent:1,thp:1,guard:0,profile:0,guard_samples:0");
}

/* A word that is cut must not come to mean something. */
TEST(long_words_mean_nothing) {
  char value[256] = "arenas_max:";
  memset(value + strlen(value), '0', 60);
  strcat(value, "7");
  char text[4096];
  setting = value;
  arena_setting = NULL;
  run_and_listen(read_and_describe, text, sizeof text);
  CHECK_THAT(strstr(text, "bad value \"000") != NULL || strstr(text, "arenas_max:7,") != NULL, "%s: %s", value, text);
  memset(value, 'v', 200);
  value[200] = '\0';
  run_and_listen(read_and_describe, text, sizeof text);
  CHECK_THAT(strstr(text, "unknown option \"vvv") != NULL && strstr(text, DEFAULTS) != NULL, "%s", text);
}

TEST(the_variable_of_glibc_is_understood) {
  check_setting(
      NULL, "2", "",
      "verbose:0,stats_print:0,arenas_max:2,background:1,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_samples:0");
  check_setting(
      "arenas_max:5", "2", "",
      "verbose:0,stats_print:0,arenas_max:5,background:1,purge_cpu_percent:1,thp:2,guard:0,profile:0,guard_samples:0");
  check_setting(
      "thp:1", "2", "",
      "verbose:0,stats_print:0,arenas_max:2,background:1,purge_cpu_percent:1,thp:1,guard:0,profile:0,guard_samples:0");
  check_setting(NULL, "-3", "", DEFAULTS);
  check_setting(NULL, "many", "", DEFAULTS);
  check_setting(NULL, "", "", DEFAULTS);
}

/* Every part of one word, looked for in the other. */
static size_t common_model(const char *a, const char *b) {
  size_t longest = 0;
  for (size_t from = 0; from < strlen(a); from++) {
    for (size_t length = 1; from + length <= strlen(a); length++) {
      char part[8] = "";
      memcpy(part, a + from, length);
      if (strstr(b, part) != NULL && length > longest) longest = length;
    }
  }
  return longest;
}

static void random_word(char *word, uint64_t *random) {
  size_t length = random_below(random, 7);
  for (size_t i = 0; i < length; i++) word[i] = (char)('a' + random_below(random, 3));
  word[length] = '\0';
}

TEST(common_parts_agree_with_a_plain_search) {
  uint64_t random = 3;
  for (int i = 0; i < 3000; i++) {
    char a[8], b[8];
    random_word(a, &random);
    random_word(b, &random);
    CHECK_THAT(options_likeness(a, b) == common_model(a, b), "\"%s\" and \"%s\"", a, b);
  }
}
