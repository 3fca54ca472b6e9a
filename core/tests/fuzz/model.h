/* model.h: executes instructions against malloc and keeps beside it the plain truth: which slots hold blocks, how big,
 * and what is in them. After each step it asserts:
 *
 *  F1  A block is aligned as asked (16 at least), has at least the requested usable size, and overlaps no other.
 *  F2  Contents of all blocks are what was written last; realloc kept the common part; calloc gave zeros.
 *  F3  Impossible requests return NULL with ENOMEM and change nothing.
 *  F4  snug_check() finds the metadata sound (where the allocator has it).
 *  F5  snug_stats counts the live bytes: at least what the slots hold, at most their usable sizes and a little for
 *      what the C library allocates itself.
 *
 * F2 for untouched blocks, F4 and F5 cost time, so they run every check_interval steps and at the end.
 * A violation ends the process with a message and abort().
 */
#ifndef SNUG_FUZZ_MODEL_H
#define SNUG_FUZZ_MODEL_H

#include "instruction.h"

/* Runs the list from an empty model, then frees all and ends the threads it started. */
void model_run(const struct instruction *list, size_t count, size_t check_interval);

#endif
