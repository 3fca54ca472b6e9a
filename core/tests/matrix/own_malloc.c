/* A program with a malloc of its own, as those are that have jemalloc, tcmalloc or PartitionAlloc linked in, which
 * calls functions that its malloc lacks where somebody brings them: sdallocx as Abseil does, free_sized, dallocx,
 * sallocx. They get blocks of the program's. Preloaded into, it must run as without; "ok own_malloc" if all its blocks
 * came back. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER_BYTES = 16, MARK = 0x0b10c };

/* A mapping for each block; before it a header. */
static size_t live; /* atomic */

static void *take(size_t alignment, size_t size_bytes) {
  size_t room = alignment > HEADER_BYTES ? alignment : HEADER_BYTES;
  char *start = mmap(NULL, size_bytes + 2 * room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return errno = ENOMEM, NULL;
  char *block = (char *)(((uintptr_t)start + room + room - 1) / room * room);
  if (alignment <= HEADER_BYTES) block = start + HEADER_BYTES;
  ((size_t *)block)[-1] = size_bytes;
  ((size_t *)block)[-2] = MARK;
  __atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
  return block;
}

static size_t size_of(void *block) {
  if (((size_t *)block)[-2] != MARK) abort(); /* another's block */
  return ((size_t *)block)[-1];
}

void *malloc(size_t size_bytes) { return take(1, size_bytes); }
void *calloc(size_t count, size_t size_bytes) { return take(1, count * size_bytes); }
void *memalign(size_t alignment, size_t size_bytes) { return take(alignment, size_bytes); }
void *aligned_alloc(size_t alignment, size_t size_bytes) { return take(alignment, size_bytes); }
int posix_memalign(void **result, size_t alignment, size_t size_bytes) {
  return (*result = take(alignment, size_bytes)) == NULL ? ENOMEM : 0;
}
size_t malloc_usable_size(void *block) { return block != NULL ? size_of(block) : 0; }
void free(void *block) {
  if (block == NULL) return;
  size_of(block);
  ((size_t *)block)[-2] = 0; /* and it stays: nothing else may come here */
  __atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
}
void *realloc(void *block, size_t size_bytes) {
  void *result = malloc(size_bytes);
  if (block == NULL || result == NULL) return result;
  size_t old_bytes = size_of(block);
  memcpy(result, block, old_bytes < size_bytes ? old_bytes : size_bytes);
  free(block);
  return result;
}

#pragma weak sdallocx
#pragma weak dallocx
#pragma weak sallocx
#pragma weak free_sized
#pragma weak free_aligned_sized
#pragma weak reallocarray
#pragma weak _ZdlPvm
extern void sdallocx(void *block, size_t size_bytes, int flags);
extern void dallocx(void *block, int flags);
extern size_t sallocx(const void *block, int flags);
extern void free_sized(void *block, size_t size_bytes);
extern void free_aligned_sized(void *block, size_t alignment, size_t size_bytes);
extern void *reallocarray(void *block, size_t count, size_t size_bytes);
extern void _ZdlPvm(void *block, size_t size_bytes);

static void *hidden(void *pointer) {
  __asm__ volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

static void *work(void *expect_all) {
  for (size_t size_bytes = 1; size_bytes < 3000000; size_bytes = size_bytes * 3 + 1) {
    void *block = hidden(malloc(size_bytes));
    if (sallocx != NULL && sallocx(block, 0) != size_bytes) abort();
    if (sdallocx != NULL) sdallocx(block, size_bytes, 0), block = hidden(malloc(size_bytes));
    if (dallocx != NULL) dallocx(block, 0), block = hidden(malloc(size_bytes));
    if (free_sized != NULL) free_sized(block, size_bytes), block = hidden(malloc(size_bytes));
    if (_ZdlPvm != NULL) _ZdlPvm(block, size_bytes), block = hidden(malloc(size_bytes));
    if (reallocarray != NULL) block = hidden(reallocarray(block, 2, size_bytes));
    free(block);
    block = aligned_alloc(64, size_bytes);
    if (free_aligned_sized != NULL) {
      free_aligned_sized(block, 64, size_bytes);
    } else {
      free(block);
    }
  }
  if (expect_all != NULL && (sdallocx == NULL || free_sized == NULL)) abort(); /* nobody was preloaded */
  return NULL;
}

int main(int argc, char **argv) {
  void *preloaded = argc > 1 && strcmp(argv[1], "--preloaded") == 0 ? argv : NULL;
  size_t before = live;
  work(preloaded);
  if (live != before) return fprintf(stderr, "%zu blocks did not come back\n", live - before), 1;
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, preloaded);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  char *copy = strdup("a text"), *printed = NULL;
  if (asprintf(&printed, "%s %d", copy, 7) < 0 || strcmp(printed, "a text 7") != 0) return 1;
  free(copy);
  free(printed);
  puts("ok own_malloc");
  return 0;
}
