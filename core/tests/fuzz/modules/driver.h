/* driver.h: what main.c and libfuzzer.c have of the driver. */
#ifndef SNUG_FUZZ_DRIVER_H
#define SNUG_FUZZ_DRIVER_H

#include "../../support/test.h"

#include "module.h"

enum { STEPS_MAX = 1 << 20 };

extern const char *driver_output; /* file for a list that fails */
extern struct step list[STEPS_MAX];
extern const struct fuzz_module *module; /* that lists are for */
extern bool driver_spoils;               /* something is changed at the end of a list, and must be found */
extern void (*driver_at_end)(void);      /* in the process of a list that passed */

/* jemalloc's thread-local variables need more room than glibc keeps for libraries that are opened: starts anew. */
void make_room_for_peers(char **arguments);
void start_driver(void);

unsigned operation_count(void); /* of the module, without `refuse` */

/* Runs a list in a forked process. Returns true if it passed. Quiet runs keep their message to themselves. */
bool passes(const struct step *steps, size_t count, bool quiet);

/* The list fails: makes it smaller, writes it to driver_output, and says why. */
void report(size_t count);

#endif
