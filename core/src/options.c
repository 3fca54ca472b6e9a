#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "counters.h"
#include "fatal.h"
#include "sys.h"

/* The defaults. The table below repeats them for help; core/tests/unit/options_test.c compares. */
struct options options = {.background = !SNUG_PREFIXED, .purge_cpu_percent = 1, .thp = THP_GROWTH};

static const struct option_row {
  const char *name;
  uint32_t *value;
  uint32_t fallback, low, high;
  bool live; /* can change while the program runs */
  const char *sentence;
} rows[] = {
    {"verbose", &options.verbose, 0, 0, 1, 0, "print one line at startup: version, settings, warnings"},
    {"stats_print", &options.stats_print, 0, 0, 1, 1, "print statistics as JSON to stderr at exit"},
    {"arenas_max", &options.arenas_max, 0, 0, 64, 0,
     "maximum number of arenas; 0: as many as CPUs the process may use"},
    {"background", &options.background, 1, 0, 1, 1, "give memory back from a helper thread while the program is idle"},
    {"purge_cpu_percent", &options.purge_cpu_percent, 1, 0, 100, 1,
     "share of CPU time that giving memory back may cost"},
    {"thp", &options.thp, 2, 0, 2, 0,
     "transparent huge pages: 0: none; 1: on the whole heap; 2: where a heap of more than 1 GiB grows"},
    {"guard", &options.guard, 0, 0, 1, 0, "detect heap misuse at once; slower, more memory"},
    {"profile", &options.profile, 0, 0, 1073741824, 1,
     "sample allocations for snug profile; 1: one in 512 KiB; above: one in so many bytes"},
    {"guard_samples", &options.guard_samples, 0, 0, 4096, 1,
     "end sampled blocks at a page that can't be touched; 1: up to 256 at a time; above: up to so many"},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0], MESSAGE_BYTES = 320, HELP_LINE_BYTES = 160 };
_Static_assert(ROW_COUNT <= SNUG_COUNTERS_WISHES, "each setting has words of its own");

/* SNUG=help: the table, on stderr. */
static void print_help(void) {
  char line[HELP_LINE_BYTES];
  for (size_t i = 0; i < ROW_COUNT; i++) {
    struct text text = text_in(line, sizeof line);
    text_string(&text, "snug: option ");
    text_string(&text, rows[i].name);
    text_char(&text, ':');
    text_number(&text, rows[i].fallback);
    text_string(&text, " (");
    text_number(&text, rows[i].low);
    text_string(&text, " to ");
    text_number(&text, rows[i].high);
    text_string(&text, ") ");
    text_string(&text, rows[i].sentence);
    text_char(&text, '\n');
    sys_write(2, text.start, text.length_bytes);
  }
}

/* Length of the longest run of characters that both words have, in either case: a beginning, or all but a slip, is what
 * people remember of a name. */
size_t options_likeness(const char *a, const char *b) {
  size_t longest = 0;
  for (; *a != '\0'; a++) {
    for (const char *start = b; *start != '\0'; start++) {
      size_t length = 0;
      while (a[length] != '\0' && start[length] != '\0' && (a[length] | 0x20) == (start[length] | 0x20)) length++;
      if (length > longest) longest = length;
    }
  }
  return longest;
}

static void warn_unknown(const char *name) {
  const struct option_row *nearest = NULL;
  size_t most = OPTION_ALIKE - 1;
  for (size_t i = 0; i < ROW_COUNT; i++) {
    size_t common = options_likeness(name, rows[i].name);
    if (common <= most) continue;
    most = common;
    nearest = &rows[i];
  }
  char message[MESSAGE_BYTES];
  struct text text = text_in(message, sizeof message);
  text_string(&text, "unknown option \"");
  text_string(&text, name);
  text_string(&text, nearest != NULL ? "\" in SNUG; did you mean \"" : "\" in SNUG; SNUG=help lists all");
  text_string(&text, nearest != NULL ? nearest->name : "");
  text_string(&text, nearest != NULL ? "\"? (ignored)" : " (ignored)");
  warn_line(message);
}

static void warn_value(const struct option_row *row, const char *value) {
  char message[MESSAGE_BYTES];
  struct text text = text_in(message, sizeof message);
  text_string(&text, "bad value \"");
  text_string(&text, value);
  text_string(&text, "\" for option \"");
  text_string(&text, row->name);
  if (row->high == 1) {
    text_string(&text, "\" in SNUG; use 1, on, yes, true or 0, off, no, false");
  } else {
    text_string(&text, "\" in SNUG; use a number from ");
    text_number(&text, row->low);
    text_string(&text, " to ");
    text_number(&text, row->high);
  }
  text_string(&text, " (ignored, stays ");
  text_number(&text, *row->value);
  text_char(&text, ')');
  warn_line(message);
}

/* A number, or one of the words for 0 and 1 where the option is a switch, also one with a third position. */
static bool parse_value(const struct option_row *row, const char *value, uint32_t *result) {
  if (row->high <= 2) {
    bool on = !strcmp(value, "true") || !strcmp(value, "on") || !strcmp(value, "yes");
    bool off = !strcmp(value, "false") || !strcmp(value, "off") || !strcmp(value, "no");
    if (on || off) return *result = on, true;
  }
  uint64_t number = 0;
  if (*value == '\0') return false;
  for (; *value != '\0'; value++) {
    if (*value < '0' || *value > '9' || number > UINT32_MAX) return false;
    number = number * 10 + (uint64_t)(*value - '0');
  }
  if (number < row->low || number > row->high) return false;
  *result = (uint32_t)number;
  return true;
}

static void set_option(const char *name, const char *value) {
  if (strcmp(name, "help") == 0) return print_help();
  for (size_t i = 0; i < ROW_COUNT; i++) {
    if (strcmp(name, rows[i].name) != 0) continue;
    if (!parse_value(&rows[i], value, rows[i].value)) warn_value(&rows[i], value);
    return;
  }
  warn_unknown(name);
}

const char *options_next_word(const char *from, const char *ends, char word[OPTION_WORD_BYTES]) {
  size_t length = 0;
  while (*from == ' ') from++;
  for (; *from != '\0' && strchr(ends, *from) == NULL; from++) {
    if (length + 1 < OPTION_WORD_BYTES) word[length++] = *from;
  }
  bool cut = length + 1 == OPTION_WORD_BYTES;
  while (length > 0 && word[length - 1] == ' ') length--;
  if (cut) {
    length = OPTION_WORD_BYTES - 1;
    memset(word + length - 3, '.', 3);
  }
  word[length] = '\0';
  return from;
}

void options_read_arena_max(void) {
  const char *value = sys_environment("MALLOC_ARENA_MAX");
  uint32_t number;
  if (value == NULL) return;
  const struct option_row *row = &rows[2];
  if (parse_value(row, value, &number)) *row->value = number;
}

void options_read(void) {
  const char *from = sys_environment("SNUG");
  while (from != NULL && *from != '\0') {
    char name[OPTION_WORD_BYTES], value[OPTION_WORD_BYTES] = "";
    from = options_next_word(from, ":,", name);
    bool has_value = *from == ':';
    if (has_value) from = options_next_word(from + 1, ",", value);
    if (*from == ',') from++;
    if (name[0] != '\0' || has_value) set_option(name, value);
  }
}

void options_describe(struct text *text) {
  for (size_t i = 0; i < ROW_COUNT; i++) {
    if (i != 0) text_char(text, ',');
    text_string(text, rows[i].name);
    text_char(text, ':');
    text_number(text, *rows[i].value);
  }
}

const char *options_text(char text[OPTIONS_TEXT_BYTES]) {
  struct text settings = text_in(text, OPTIONS_TEXT_BYTES);
  options_describe(&settings);
  return text;
}

enum option_change options_change(uint32_t number, uint32_t value, bool is_word, uint32_t *low, uint32_t *high) {
  if (number >= ROW_COUNT) return OPTION_UNKNOWN;
  const struct option_row *row = &rows[number];
  *low = row->low;
  *high = row->high;
  if (!row->live) return OPTION_FIXED;
  if (value < row->low || value > row->high || (is_word && row->high > 2)) return OPTION_OUT_OF_RANGE;
  __atomic_store_n(row->value, value, __ATOMIC_RELAXED);
  return OPTION_CHANGED;
}

uint32_t options_number(const uint32_t *value) {
  uint32_t number = 0;
  while (rows[number].value != value) number++;
  return number;
}

uint32_t options_live(void) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < ROW_COUNT; i++) bits |= (uint32_t)rows[i].live << i;
  return bits;
}
