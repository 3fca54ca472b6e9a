/* interpreter.h: whether an interpreter can be asked for its frames just now.
 *
 * It answers by records that it frees when it ends, and its code may be unmapped with its library. It is asked only:
 *
 *  - by a thread that is in its code, as far as the stack can be told: another one has no frames of its language. So
 *    one that has ended is left alone, by exit handlers as by a program that goes on;
 *  - not from within a function that takes it down, or ends the process after that;
 *  - while its code is still where it was: a library may be closed, and another one lie there.
 */
#ifndef SNUG_INTERPRETER_H
#define SNUG_INTERPRETER_H

#include "base.h"
#include "profile_table.h"
#include "unwind.h"

enum { INTERPRETER_ENDINGS = 2, INTERPRETER_MARK_BYTES = 16 };

struct interpreter {
  struct unwind_range code;
  struct unwind_range endings[INTERPRETER_ENDINGS];
  const void *function;              /* one of its own */
  char mark[INTERPRETER_MARK_BYTES]; /* what lies there */
};

/* By one of its functions, and by the names of those that take it down, or NULL. Takes the loader's lock. False: it
 * can't be found. */
HIDDEN bool interpreter_find(struct interpreter *interpreter, const void *function,
                             const char *const endings[INTERPRETER_ENDINGS]);

/* By the native frames, which are there already. */
HIDDEN bool interpreter_can_be_asked(const struct interpreter *interpreter, const struct profile_frames *frames);

#endif
