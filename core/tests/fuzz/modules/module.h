/* module.h: what the driver of the module fuzzers and the modules know of each other.
 *
 * An input is a list of steps of four bytes: which operation of the module, and two numbers. A module executes them,
 * with a plain model beside it, and says what is wrong by fuzz_fail. Each input runs in a process of its own, from the
 * same state: with its own clock, and system calls refused where the input says so. So a failing one fails again.
 *
 * The core is compiled into the program, under the names of malloc that objcopy has changed: the driver and the C
 * library use the C library's own malloc, and the heap is the module's alone.
 */
#ifndef SNUG_FUZZ_MODULE_H
#define SNUG_FUZZ_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct step {
  uint8_t operation; /* modulo the module's number of operations + 1; the last one is `refuse` */
  uint8_t a;
  uint16_t b;
};
_Static_assert(sizeof(struct step) == 4, "inputs are arrays of steps");

struct fuzz_module {
  const char *name;
  const char *const *operations; /* their names, up to a NULL */
  void (*begin)(void);
  void (*step)(unsigned operation, unsigned a, unsigned b);
  void (*check)(void); /* of everything: now and then, and at the end */
  void (*end)(void);
  void (*spoil)(void); /* changes what a fault of the core might: the next check must say so */
};

extern const struct fuzz_module *const fuzz_modules[]; /* up to a NULL */

/* Says what is wrong, and where, and aborts. */
__attribute__((format(printf, 1, 2), noreturn)) void fuzz_fail(const char *format, ...);

/* What each process of an input tells the driver, in shared memory. */
struct fuzz_counts {
  uint64_t operations;
  uint64_t refused; /* system calls */
  uint64_t failed;  /* operations that therefore failed, as they may */
};
extern struct fuzz_counts *fuzz_counts;

/* `refuse`, and which calls were refused so far in this input. */
void fuzz_refuse(unsigned a, unsigned b);

/* The interface of an allocator. NULL: it has no such function. */
struct fuzz_allocator {
  const char *name;
  void *(*malloc)(size_t);
  void (*free)(void *);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*reallocarray)(void *, size_t, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*memalign)(size_t, size_t);
  void *(*valloc)(size_t);
  void *(*pvalloc)(size_t);
  size_t (*malloc_usable_size)(void *);
  void (*free_sized)(void *, size_t);
  void (*free_aligned_sized)(void *, size_t, size_t);
  void *(*mallocx)(size_t, int);
  void *(*rallocx)(void *, size_t, int);
  size_t (*xallocx)(void *, size_t, size_t, int);
  size_t (*sallocx)(const void *, int);
  size_t (*nallocx)(size_t, int);
  void (*dallocx)(void *, int);
  void (*sdallocx)(void *, size_t, int);
};

/* Others beside ours, loaded by the driver: the C library's, and jemalloc where it is installed. Up to one without a
 * name. */
extern struct fuzz_allocator fuzz_peers[3];

#endif
