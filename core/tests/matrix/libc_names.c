/* glibc's inner names of malloc called by a malloc that stands before the allocator: it must not lead back. Built as a
 * program, with -DLIBRARY as a library that is preloaded before the allocator's, with -DPLAIN as a program for that.
 * Each entry point is passed on by its inner name; from there no call may come back. Says "ok libc_names". */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);
extern int __posix_memalign(void **, size_t, size_t) __attribute__((weak)); /* in no glibc since 2.26 */
extern void *memalign(size_t, size_t), *pvalloc(size_t);

#ifndef PLAIN
static __thread int depth;

#define PASSES_ON(call, type)                                    \
  if (depth++ != 0) {                                            \
    static const char words[] = "a call came back: " #call "\n"; \
    _exit(write(2, words, sizeof words - 1) != 0);               \
  }                                                              \
  type result = call;                                            \
  depth--;                                                       \
  return result

void *malloc(size_t bytes) { PASSES_ON(__libc_malloc(bytes), void *); }
void *calloc(size_t count, size_t bytes) { PASSES_ON(__libc_calloc(count, bytes), void *); }
void *realloc(void *block, size_t bytes) { PASSES_ON(__libc_realloc(block, bytes), void *); }
void *memalign(size_t alignment, size_t bytes) { PASSES_ON(__libc_memalign(alignment, bytes), void *); }
void *aligned_alloc(size_t alignment, size_t bytes) { PASSES_ON(__libc_memalign(alignment, bytes), void *); }
void *valloc(size_t bytes) { PASSES_ON(__libc_valloc(bytes), void *); }
void *pvalloc(size_t bytes) { PASSES_ON(__libc_pvalloc(bytes), void *); }
static int release(void *block) { return __libc_free(block), 0; }
static int give(void *block) { PASSES_ON(release(block), int); }
void free(void *block) { give(block); }
int posix_memalign(void **block, size_t alignment, size_t bytes) {
  if (__posix_memalign != NULL) {
    PASSES_ON(__posix_memalign(block, alignment, bytes), int);
  }
  return (*block = memalign(alignment, bytes)) == NULL;
}
#endif

#ifndef LIBRARY
int main(void) {
  static const size_t sizes[] = {0, 1, 100, 5000, 100000, 3000000};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    void *blocks[8] = {malloc(sizes[i]),
                       calloc(1, sizes[i]),
                       realloc(NULL, sizes[i]),
                       memalign(64, sizes[i]),
                       aligned_alloc(64, sizes[i] / 64 * 64),
                       valloc(sizes[i]),
                       pvalloc(sizes[i])};
    if (posix_memalign(&blocks[7], 256, sizes[i]) != 0) return 1;
    for (int k = 0; k < 8; k++) {
      if (blocks[k] == NULL) return 2;
      memset(blocks[k], k, sizes[i] / 64 * 64);
    }
    for (int k = 0; k < 8; k++) blocks[k] = realloc(blocks[k], sizes[i] + 5000);
    for (int k = 0; k < 8; k++) {
      for (size_t at = 0; at < sizes[i] / 64 * 64; at++) {
        if (((char *)blocks[k])[at] != k) return 3;
      }
      free(blocks[k]);
    }
    if (realloc(malloc(10), 0) != NULL) return 4;
  }
  puts("ok libc_names");
  return 0;
}
#endif
