/* misuse.h: what the misuse programs share. Each says on stdout, with expect(), the exact line that snug must write to
 * stderr before it aborts, and then makes one mistake. run_misuse.sh compares. A program that lives on exits with 0,
 * which is the failure.
 *
 * A mistake with a small block of a busy class may be noticed later than it is made, when the bin gives its blocks
 * back: flush_cache() makes that happen. Between the two malloc may hand it out again, and the mistake go unnoticed.
 */
#ifndef SNUG_MISUSE_H
#define SNUG_MISUSE_H

#include "../support/test.h"

#include <malloc.h>
#include <pthread.h>

__attribute__((format(printf, 1, 2))) static inline void expect(const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  test_print(1, "snug: fatal: %s\n", line);
}

static inline void expect_double_free(const void *block) {
  expect("double free: %p; usual cause: the block was freed before, and its pointer kept and freed again", block);
}

static inline void expect_foreign_pointer(const void *pointer) {
  expect(
      "free of a pointer that snug did not allocate: %p; usual cause: a pointer to the stack, to static data, or from "
      "another allocator; or a large block freed twice",
      pointer);
}

static inline void expect_interior_pointer(const void *pointer, const void *block) {
  expect(
      "free of a pointer inside a block: %p in the block of %zu bytes at %p; usual cause: the pointer was advanced "
      "after malloc, or is a member of a larger object",
      pointer, malloc_usable_size((void *)block), block);
}

static inline void expect_wrong_size(const void *block, size_t given_bytes) {
  expect(
      "sized free with the wrong size: %p freed as %zu bytes, but its block has %zu; usual cause: delete through a "
      "base "
      "class without a virtual destructor, or free_sized with another size",
      block, given_bytes, malloc_usable_size((void *)block));
}

static inline void expect_overflow(const void *block, size_t size_bytes) {
  char length[40] = "";
  if (size_bytes != 0) snprintf(length, sizeof length, " of %zu bytes", size_bytes);
  expect(
      "write beyond the end of a block: %p%s; usual cause: an index or a length that is too large by one, or a string "
      "without room for its NUL",
      block, length);
}

static inline void expect_underflow(const void *block) {
  expect(
      "write before the start of a block: %p; usual cause: a negative index, or a write far beyond the end of the "
      "block before it",
      block);
}

static inline void expect_write_after_free(const void *address, const void *block) {
  expect(
      "write to a freed block: %p in the block at %p; usual cause: a pointer that was kept after free, or a write "
      "beyond another block's end",
      address, block);
}

/* Of a fault, by a program whose name begins with fault_; the kernel then ends it. */
static inline void expect_overrun(const void *address, size_t offset, const void *block, size_t size_bytes) {
  expect(
      "write beyond the end of a block: %p, at offset %zu of the block of %zu bytes at %p; usual cause: an index or a "
      "length that is too large, or a string without room for its NUL",
      address, offset, size_bytes, block);
}

static inline void expect_underrun(const void *address, size_t before_bytes, const void *block, size_t size_bytes) {
  expect(
      "write before the start of a block: %p, %zu bytes before the block of %zu bytes at %p; usual cause: a negative "
      "index",
      address, before_bytes, size_bytes, block);
}

static inline void expect_use_after_free(const void *address, const void *block, size_t size_bytes) {
  expect("write after free: %p in the block of %zu bytes at %p; usual cause: a pointer that was kept after free",
         address, size_bytes, block);
}

/* Starts the program again with SNUG=guard:1, unless it has it. */
static inline void run_guarded(char **argv) {
  const char *settings = getenv("SNUG");
  if (settings != NULL && strstr(settings, "guard:1") != NULL) return;
  setenv("SNUG", "guard:1", 1);
  execv("/proc/self/exe", argv);
  REQUIRE(!"execv");
}

/* A block whose pointer the compiler knows nothing about. */
static inline char *block_of(size_t size_bytes) {
  char *block = (char *)hidden(malloc(size_bytes));
  REQUIRE(block != NULL);
  memset(block, 1, size_bytes);
  return block;
}

/* Frees so many blocks of the size that the thread's cache has to give back all it held. */
static inline void flush_cache(size_t size_bytes) {
  enum { COUNT = 2000 };
  static void *others[COUNT];
  for (size_t i = 0; i < COUNT; i++) others[i] = block_of(size_bytes);
  for (size_t i = 0; i < COUNT; i++) free(others[i]);
}

/* Neighbours that keep the slab of what is allocated between them from becoming empty. */
static inline void keep_neighbours(size_t size_bytes) {
  for (int i = 0; i < 3; i++) *(void *volatile *)block_of(size_bytes) = NULL;
}

#endif
