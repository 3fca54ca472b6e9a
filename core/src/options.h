/* options.h: the settings. One table in options.c makes parser, help and messages. */
#ifndef SNUG_OPTIONS_H
#define SNUG_OPTIONS_H

#include "base.h"
#include "text.h"

/* thp: where the heap may have transparent huge pages. */
enum {
  THP_NEVER = 0,
  THP_ALWAYS = 1, /* everywhere */
  THP_GROWTH = 2, /* where a large heap grows (huge.h) */
};

struct options {
  uint32_t verbose;           /* 0 or 1 */
  uint32_t stats_print;       /* 0 or 1; atomic, as it can change */
  uint32_t arenas_max;        /* 0: as many as CPUs */
  uint32_t background;        /* 0 or 1; atomic, as it can change */
  uint32_t purge_cpu_percent; /* 0 .. 100; under the purge lock once the program runs */
  uint32_t thp;               /* THP_NEVER and so on */
  uint32_t guard;             /* 0 or 1; once the program runs guard_is_on() says whether it is */
  uint32_t profile;           /* 0: off; 1: on; above: so many bytes between samples; atomic, as it can change */
  uint32_t guard_samples;     /* 0: off; 1: on; above: at most so many at a time; atomic, as it can change */
};

HIDDEN extern struct options options;

/* Reads MALLOC_ARENA_MAX, glibc's own variable: what it can't mean is not ours to judge. */
HIDDEN void options_read_arena_max(void);

/* Reads SNUG. Warns on stderr about what it does not understand, and goes on. */
HIDDEN void options_read(void);

enum { OPTION_WORD_BYTES = 48 }; /* of names and values, as lists of settings have them */

/* Copies up to one of the end characters or the end of the text; long words are cut and end in dots, and then match
 * nothing. Returns where it stopped. */
HIDDEN const char *options_next_word(const char *from, const char *ends, char word[OPTION_WORD_BYTES]);

/* Similarity of an unknown name to an option's: characters in a row. Below OPTION_ALIKE there is none. */
enum { OPTION_ALIKE = 3 };
HIDDEN size_t options_likeness(const char *unknown, const char *known);

/* The effective settings in the syntax of SNUG. */
HIDDEN void options_describe(struct text *text);

/* The same as a string. The page of counters has it for other processes, who may write there. */
enum { OPTIONS_TEXT_BYTES = 256 };
HIDDEN const char *options_text(char text[OPTIONS_TEXT_BYTES]);

enum option_change { OPTION_CHANGED, OPTION_UNKNOWN, OPTION_FIXED, OPTION_OUT_OF_RANGE };

/* Changes the option of that number, as options_describe counts them from 0, while the program runs. is_word: the value
 * was a word for on or off. Fills in the range in any case but OPTION_UNKNOWN. */
HIDDEN enum option_change options_change(uint32_t number, uint32_t value, bool is_word, uint32_t *low, uint32_t *high);

/* The number of the option that is kept there. */
HIDDEN uint32_t options_number(const uint32_t *value);

/* Bit n: the option of number n can change while the program runs. */
HIDDEN uint32_t options_live(void);

#endif
