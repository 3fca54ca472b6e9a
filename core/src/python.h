/* python.h: the frames of Python code of the calling thread, at a sample.
 *
 * The interpreter's own records, CPython 3.11 to 3.15, read where they lie: its functions for that make objects. malloc
 * is called by the thread itself, so its frames stand still meanwhile. For another version, a build without the global
 * lock, and one with other headers of objects, there are no frames of Python.
 *
 *  Z1  Only the thread that holds Python's lock walks, its own state, which nobody frees meanwhile.
 *  Z2  What a frame points to is read as a code object only if its type says so and it is referenced: a frame that is
 *      about to end may have let go of it.
 */
#ifndef SNUG_PYTHON_H
#define SNUG_PYTHON_H

#include "base.h"
#include "profile_table.h"

/* Looks Python's functions and types up, if Python is there, and says which it is (snug_profile.h). Takes the loader's
 * lock. */
HIDDEN uint32_t python_prepare(void);

/* Adds the frames of Python code, innermost first, and the tags that say what is missing. The native ones are there. */
HIDDEN void python_add_frames(struct profile_frames *frames);

/* A function of the interpreter's; NULL: none is known. */
HIDDEN const void *python_function(void);

/* Where the interpreter's own code lies; nowhere: none is known. */
HIDDEN struct unwind_range python_code(void);

#endif
