/* fatal.h: the ways a program can die of misusing the heap. Each prints one line that says what happened, the address
 * and the usual cause, and aborts. They allocate nothing and take no lock. */
#ifndef SNUG_FATAL_H
#define SNUG_FATAL_H

#include "base.h"

_Noreturn COLD void fatal_double_free(const void *block);
_Noreturn COLD void fatal_foreign_pointer(const void *pointer);
_Noreturn COLD void fatal_interior_pointer(const void *pointer, const void *block, size_t size_bytes);
_Noreturn COLD void fatal_wrong_size(const void *block, size_t given_bytes, size_t size_bytes);
_Noreturn COLD void fatal_overflow(const void *block, size_t size_bytes); /* 0: nobody knows how long it was */
_Noreturn COLD void fatal_underflow(const void *block);
_Noreturn COLD void fatal_write_after_free(const void *address, const void *block);
_Noreturn COLD void fatal_corrupted(const char *what, const void *address);
_Noreturn COLD void fatal_bad_alloc(size_t size_bytes); /* operator new in a program without a C++ library */
_Noreturn COLD void fatal_no_memory(void);              /* xmalloc:true */
_Noreturn COLD void fatal_bad_settings(void);           /* abort_conf:true */

/* Faults: they only say so, as the program's handler or the kernel ends the process. `access` is "write" or such. */
COLD void tell_overrun(const char *access, const void *address, const void *block, size_t size_bytes);
COLD void tell_underrun(const char *access, const void *address, const void *block, size_t size_bytes);
COLD void tell_use_after_free(const char *access, const void *address, const void *block, size_t size_bytes);

/* Has this called between the line of the next of the others and the end. NULL: nothing. */
void tell_more_by(void (*explain)(void));

/* Has this called before the end of a child of vfork(2), whose thread-local variables are its parent's. */
void leave_borrowed_by(void (*leave)(void));

/* One line on stderr that starts with "snug: warning: ". */
void warn_line(const char *message);

#endif
