/* own_memory.h: memory of the tools' own, straight from the kernel, because malloc is what is being measured. */
#ifndef SNUG_TRACES_OWN_MEMORY_H
#define SNUG_TRACES_OWN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory that becomes resident when it is first touched; reserve as much as may be needed. Ends the program
 * with a message if there is no address space. */
void *own_memory_reserve(size_t size_bytes);

/* The same, resident from the start, so that it does not count as growth or as faults later. */
void *own_memory_resident(size_t size_bytes);

void own_memory_release(void *memory, size_t size_bytes);

/* A whole file, read-only. On failure returns false and explains in `message`. Empty files map to NULL. */
bool own_memory_map_file(const char *path, const void **contents, size_t *size_bytes, char *message);

#endif
