/* profile_dump.h: samples in the format of jemalloc's heap profiles, for jeprof and those who read what it reads.
 *
 * It does not know how samples are taken. Weights are unbiased already, so the profile says that every byte was sampled
 * and readers do not scale it again; a stack counts at least as many bytes for a block as the smallest block has, as
 * jemalloc counts by size class, too. Native frames only: the format has nothing but addresses.
 *
 * Files are opened, written and closed under the purge lock, and need RIGHT_FILES (S1 in rights.h). Nothing is
 * allocated on the heap. */
#ifndef SNUG_PROFILE_DUMP_H
#define SNUG_PROFILE_DUMP_H

#include "base.h"

/* Writes what the table has into the file, which is made or overwritten; path NULL: prof_prefix, PID and a number make
 * its name. False: it can't be written as a whole; a file that was begun stays. The table is there. */
HIDDEN bool profile_dump(const char *path);

/* The same at the end of the program, under a name of its own. Says on stderr that it can't be done. */
HIDDEN void profile_dump_at_exit(void);

/* Whether the address lies in the library's own code. Not there where nobody knows where that lies: it is defined by
 * what links the library as a whole, in core/shared and core/archive. */
HIDDEN bool profile_dump_is_own_code(uintptr_t address) __attribute__((weak));

#endif
