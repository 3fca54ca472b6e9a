/* recording_path.h: where the recording of a process goes. Knows nothing of its contents.
 *
 * SNUG_RECORD names the file; without it, ./snug-trace.PID. An existing file is never overwritten: the second
 * process of a family (a forked child, a program that another one executed) writes NAME.PID, and the next program
 * that the same process executes NAME.PID.2, and so on.
 */
#ifndef SNUG_TRACES_RECORDING_PATH_H
#define SNUG_TRACES_RECORDING_PATH_H

#include <stddef.h>

enum { RECORDING_PATH_BYTES_MAX = 1024 };

/* Creates the file and leaves its absolute name in `path`. Returns a descriptor, or -1 with errno set. */
int recording_path_create(char *path, size_t path_bytes);

#endif
