/* report.h: stacks for people, on stderr: what stands before the last line of a program that misused a block.
 *
 *      snug: the block of 24 bytes at 0x7f2a3c09cfe0 was allocated by this thread:
 *      snug:   copy_name+0x1f (/srv/ext/names.so+0x1139)
 *      snug:   load (/srv/app.rb:12)
 *
 * For signal handlers: no lock of ours, no allocation, no loader. Where code is from says /proc/self/maps, read where
 * files may be (RIGHT_FILES); its function, the dynamic symbols of the object, as they lie in memory.
 *
 *  I1  One thread reports at a time; the others wait for it, as what they would do next may end the process.
 */
#ifndef SNUG_REPORT_H
#define SNUG_REPORT_H

#include "base.h"
#include "text.h"

/* I1. False: this thread is within a report already, or the other's takes too long: nothing is to be said. */
HIDDEN bool report_begin(void);
HIDDEN void report_end(void);
HIDDEN void report_after_fork(void); /* in the child: who reported is not there */
HIDDEN bool report_is_own(void);     /* whether this thread is within one */

/* One line, after "snug: ". */
HIDDEN void report_line(struct text *text);

/* The stack at an offset in the table of samples; 0: unknown. */
HIDDEN void report_stack(uint32_t stack);

/* The stack of this thread, of an interrupted one by the registers that its handler got, else NULL. */
HIDDEN void report_here(const void *context);

#endif
