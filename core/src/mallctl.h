/* mallctl.h: jemalloc's tree of named values, mallctl(3), as far as snug has an answer that is true.
 *
 * It does not know the heap: values come from account.h, options and malloc_conf. Names that are not in the table do
 * not exist, above all those whose callers would rely on what snug does not do (docs/decisions/0026). Nothing here
 * allocates.
 *
 *  X1  A name's MIB has a number for each of its parts: the first row of the table that agrees in all parts so far; and
 *      for an arena the arena itself. So a MIB of known length stands for one row, and any other for none.
 */
#ifndef SNUG_MALLCTL_H
#define SNUG_MALLCTL_H

#include "base.h"

enum { MALLCTL_PARTS_MAX = 5, MALLCTL_ALL_ARENAS = 4096 };

enum mallctl_type {
  MALLCTL_ACTION, /* neither read nor written */
  MALLCTL_BOOL,
  MALLCTL_UNSIGNED,
  MALLCTL_SIZE,
  MALLCTL_SIGNED, /* ssize_t */
  MALLCTL_U64,
  MALLCTL_TEXT, /* const char * */
};

/* A value of any of these types. */
union mallctl_value {
  uint64_t number;
  const char *text;
};

/* Row `index` of the table, for those who print it. Its name has # for an arena. False: there are no more. */
HIDDEN bool mallctl_row(size_t index, const char **name, enum mallctl_type *type, bool *of_arena);

/* What the row reads as; arena is MALLCTL_ALL_ARENAS or the number of one. */
HIDDEN union mallctl_value mallctl_value_of(size_t index, size_t arena);

/* "5.3.1-" and what it really is. */
HIDDEN extern const char mallctl_version[];

#endif
