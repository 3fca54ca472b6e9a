/* malloc_conf.h: the settings that jemalloc would read, so that a deployment made for it keeps its meaning.
 *
 * Read, each later one wins: the variable `malloc_conf` that a program may define, the text of the symbolic link
 * /etc/malloc.conf, the environment's MALLOC_CONF. All of them give way to SNUG. The keys are in malloc_conf_keys.h. */
#ifndef SNUG_MALLOC_CONF_H
#define SNUG_MALLOC_CONF_H

#include "base.h"

enum { MALLOC_CONF_LETTERS_BYTES = 48, MALLOC_CONF_PREFIX_BYTES = 512 };

struct malloc_conf_settings {
  bool zero;
  bool xmalloc;
  bool abort_conf;
  bool confirm;
  bool stats_as_text;     /* stats_print prints jemalloc's form at exit rather than JSON */
  bool prof;              /* samples were asked for, here or by SNUG */
  bool prof_active;       /* and are taken from the start */
  bool prof_final;        /* and written at exit */
  uint32_t first_profile; /* what the option is to be when they are switched on, as it was at start */
  uint32_t profile;       /* and as it is since */
  int64_t dirty_decay_ms; /* 0, -1, or what stands for snug's own rule */
  char stats_letters[MALLOC_CONF_LETTERS_BYTES];
  char prof_prefix[MALLOC_CONF_PREFIX_BYTES];
};

/* Free pages beyond the cap that were dirty at the last tick already go back at the next. */
#define MALLOC_CONF_OWN_DECAY_MS 200

HIDDEN extern struct malloc_conf_settings malloc_conf_settings; /* written at start only; `profile`: atomic */

/* Where messages for people go: malloc_message if the program has set it, else stderr. */
HIDDEN void malloc_conf_write(const char *text);

/* What the option profile is to be for samples every 2^lg_bytes bytes, or as near to that as it can be. */
HIDDEN uint32_t malloc_conf_profile(uint64_t lg_bytes);

/* Reads all of them into `options` and the settings above; trusts_environment: else the variable is not looked at.
 * One warning for each pair that can't be, with the nearest key. */
HIDDEN void malloc_conf_read(bool trusts_environment);

#endif
