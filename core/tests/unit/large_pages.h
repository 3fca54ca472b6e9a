/* large_pages.h: included after sys.c, makes mappings begin where a kernel with the pages of page_size.c would put
 * them. */
#ifndef SNUG_UNIT_LARGE_PAGES_H
#define SNUG_UNIT_LARGE_PAGES_H

#include "../../src/sys.h"

static inline void *sys_map_on_large_pages(size_t length_bytes) {
  size_t page_bytes = sys_page_size_bytes();
  if (page_bytes == 4096 || length_bytes + page_bytes < length_bytes) return sys_map(length_bytes);
  char *start = sys_map(length_bytes + page_bytes);
  if (start == NULL) return NULL;
  size_t before = -(uintptr_t)start % page_bytes;
  if (before != 0) sys_unmap(start, before);
  if (before != page_bytes) sys_unmap(start + before + length_bytes, page_bytes - before);
  return start + before;
}

#define sys_map sys_map_on_large_pages

#endif
