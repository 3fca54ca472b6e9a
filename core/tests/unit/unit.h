/* unit.h: helpers of the unit tests, beside those of support/test.h.
 *
 * A unit test includes the sources of its module and of the layers below it, and then this header: it sees static
 * functions and variables, and proves that nothing above is needed. Tests of modules near the top take all of
 * the core (above_sys.h), and then run on the heap they test.
 *
 * Every program is linked several times: with system pages of 4, 16 and 64 KiB (page_size.c) and with SNUG_DEBUG.
 */
#ifndef SNUG_UNIT_H
#define SNUG_UNIT_H

#undef GIB                             /* map.c has its own */
#define snug_version unit_snug_version /* these two may be declared weak there, but are in the same unit here */
#define malloc_trim unit_malloc_trim
#include "../support/test.h"
#undef snug_version
#undef malloc_trim

#include <sys/mman.h>

#include "../../src/base.h"

int main(int argc, char **argv) { return run_tests(argc, argv); }

/* An emulator has its own idea of limits and of what is resident. */
static inline bool is_emulated(void) { return getenv("TEST_EMULATED") != NULL; }

/* Whether memory backs the 4 KiB page at an address; the address must be mapped. Fails the test where it is not. */
static inline bool is_resident(const void *address) {
  unsigned char state = 0;
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)((uintptr_t)address & ~(page_bytes - 1));
  CHECK_THAT(mincore(page, 1, &state) == 0, "mincore of %p: errno %d", address, errno);
  return state & 1;
}

/* Runs body in a child with its stderr in text (terminated). Returns its wait status. */
static inline int run_and_listen(void (*body)(void), char *text, size_t capacity_bytes) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], 2);
    body();
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  char rest[256];
  while ((got = read(ends[0], length + 1 < capacity_bytes ? text + length : rest,
                     length + 1 < capacity_bytes ? capacity_bytes - 1 - length : sizeof rest)) > 0) {
    if (length + 1 < capacity_bytes) length += (size_t)got;
  }
  text[length] = '\0';
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

/* Checks that body ends the process with SIGABRT and a line that has these words. */
static inline void check_dies(void (*body)(void), const char *words) {
  char text[1024];
  int status = run_and_listen(body, text, sizeof text);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "wait status 0x%x, stderr: %s", status, text);
  CHECK_THAT(strstr(text, words) != NULL, "no \"%s\" in: %s", words, text);
}

/* Checks that reading the byte at this address ends the process with SIGSEGV. */
static const volatile char *address_to_read;
static inline void read_address(void) { (void)*address_to_read; }
static inline void check_unreadable(const void *address) {
  char text[256];
  address_to_read = address;
  int status = run_and_listen(read_address, text, sizeof text);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "wait status 0x%x", status);
}

#endif
