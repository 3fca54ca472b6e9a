/* ruby.h: the frames of Ruby code of the calling thread, at a sample.
 *
 * By rb_profile_frames, which reads the frames of the own thread and allocates nothing. malloc is called by the thread
 * itself, so its frames stand still meanwhile. Strings are read in their memory, as Ruby's headers of 3.0 to 4.1 lay
 * them out; for another version there are no frames of Ruby.
 *
 *  Y1  Only a thread that holds Ruby's lock walks, and has an execution context; while the collector runs, which may
 *      be moving strings, nothing is read.
 *  Y2  Where both can be seen, until 3.2, there is a machine, and it has a first thread: it gives this up before it is
 *      taken down, and a thread's records stay where they were.
 */
#ifndef SNUG_RUBY_H
#define SNUG_RUBY_H

#include "base.h"
#include "profile_table.h"

/* Looks Ruby's functions up, if Ruby is there, and says which it is (snug_profile.h). Takes the loader's lock. */
HIDDEN uint32_t ruby_prepare(void);

/* Adds the frames of Ruby code, innermost first, and the tags that say what is missing. The native ones are there. */
HIDDEN void ruby_add_frames(struct profile_frames *frames);

/* A function of the interpreter's; NULL: none is known. */
HIDDEN const void *ruby_function(void);

/* Where the interpreter's own code lies; nowhere: none is known. */
HIDDEN struct unwind_range ruby_code(void);

#endif
