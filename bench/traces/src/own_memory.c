/* own_memory.c: see own_memory.h. */
#define _GNU_SOURCE
#include "own_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"

static void *map(size_t size_bytes, int extra_flags) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra_flags;
  void *memory = mmap(NULL, size_bytes ? size_bytes : 1, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) {
    dprintf(STDERR_FILENO, "snug-replay: no memory for %zu bytes of its own tables: %s\n", size_bytes,
            strerrordesc_np(errno));
    _exit(1);
  }
  return memory;
}

void *own_memory_reserve(size_t size_bytes) { return map(size_bytes, 0); }

void *own_memory_resident(size_t size_bytes) { return map(size_bytes, MAP_POPULATE); }

void own_memory_release(void *memory, size_t size_bytes) { munmap(memory, size_bytes ? size_bytes : 1); }

bool own_memory_map_file(const char *path, const void **contents, size_t *size_bytes, char *message) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return refuse(message, "cannot open %s: %s", path, strerrordesc_np(errno));
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    return refuse(message, "%s is not a regular file", path);
  }
  *contents = NULL;
  *size_bytes = (size_t)status.st_size;
  if (*size_bytes > 0) *contents = mmap(NULL, *size_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (*contents == MAP_FAILED) return refuse(message, "cannot read %s: %s", path, strerrordesc_np(errno));
  return true;
}
