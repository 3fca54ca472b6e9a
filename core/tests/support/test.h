/* test.h: the harness of the black-box tests. One program per file, several TESTs per program.
 *
 * A program prints one line per test on stdout, which run_tests.sh counts:
 *   ok NAME            not ok NAME            skip NAME: REASON
 * and says on stderr where a check failed and with which values. Arguments select tests by name.
 *
 * The harness knows nothing of snug beyond the symbol snug_version: the same programs run against glibc, musl and
 * any other allocator, which is how the tests themselves are tested. It allocates nothing, so that a test sees the
 * heap as its own calls left it.
 */
#ifndef SNUG_TEST_H
#define SNUG_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#define TEST_C_LINKAGE extern "C"
#else
#define TEST_C_LINKAGE extern
#endif

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Weak: absent when the program runs on another allocator. */
TEST_C_LINKAGE const char *snug_version(void) __attribute__((weak));

/* True if snug serves this program; decides only whether promises beyond the standards are tested. */
static inline int snug_is_active(void) { return snug_version != NULL; }

/* Under SNUG=guard:1 freed blocks wait for a while before they are used again, and count as live meanwhile. */
static inline int freed_blocks_wait(void) {
  const char *settings = getenv("SNUG");
  return snug_is_active() && settings != NULL && strstr(settings, "guard:1") != NULL;
}

/* ---- registration and reporting ---- */

#define TEST_LIMIT 128

struct test_case {
  const char *name;
  void (*body)(void);
};

static struct test_case test_cases[TEST_LIMIT];
static size_t test_case_count;
static int test_failed;              /* failed checks of the running test */
static const char *test_skip_reason; /* set if it cannot run here */

static inline void test_register(const char *name, void (*body)(void)) {
  if (test_case_count == TEST_LIMIT) abort();
  test_cases[test_case_count].name = name;
  test_cases[test_case_count++].body = body;
}

#define TEST(name)                                                                                           \
  static void test_##name(void);                                                                             \
  __attribute__((constructor)) static void test_register_##name(void) { test_register(#name, test_##name); } \
  static void test_##name(void)

/* Formats into the stack and writes at once: usable in children, and without stdio's own buffers. */
__attribute__((format(printf, 2, 3))) static inline void test_print(int descriptor, const char *format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > (int)sizeof line - 1) length = (int)sizeof line - 1;
  if (length > 0 && write(descriptor, line, (size_t)length) < 0) return; /* closed: some tests run that way */
}

/* Counts a failed check; true while there are few enough to print. */
static inline int test_note_failure(void) {
  int earlier = __atomic_fetch_add(&test_failed, 1, __ATOMIC_RELAXED);
  if (earlier == 10) test_print(2, "... further failed checks of this test are not shown\n");
  return earlier < 10;
}

/* Fails the running test and goes on, so that one run shows all that is wrong. */
#define CHECK(condition)                                                          \
  do {                                                                            \
    if (!(condition) && test_note_failure())                                      \
      test_print(2, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
  } while (0)

/* The same with values: CHECK_THAT(n == 3, "n is %d", n). */
#define CHECK_THAT(condition, ...)                                                \
  do {                                                                            \
    if (!(condition) && test_note_failure()) {                                    \
      test_print(2, "%s:%d: check failed: %s: ", __FILE__, __LINE__, #condition); \
      test_print(2, __VA_ARGS__);                                                 \
      test_print(2, "\n");                                                        \
    }                                                                             \
  } while (0)

/* Ends the program: what follows would make no sense. */
#define REQUIRE(condition)                                                                      \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      test_print(2, "%s:%d: required: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
      _exit(1);                                                                                 \
    }                                                                                           \
  } while (0)

#define SKIP(reason)             \
  do {                           \
    test_skip_reason = (reason); \
    return;                      \
  } while (0)

static inline int test_selected(const char *name, int argc, char **argv) {
  if (argc < 2) return 1;
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], name) == 0) return 1;
  return 0;
}

/* Runs the chosen tests; the exit status is 0 if none failed. */
static inline int run_tests(int argc, char **argv) {
  int any_failed = 0;
  for (size_t i = 0; i < test_case_count; i++) {
    if (!test_selected(test_cases[i].name, argc, argv)) continue;
    test_failed = 0;
    test_skip_reason = NULL;
    test_cases[i].body();
    if (test_failed)
      test_print(1, "not ok %s\n", test_cases[i].name);
    else if (test_skip_reason)
      test_print(1, "skip %s: %s\n", test_cases[i].name, test_skip_reason);
    else
      test_print(1, "ok %s\n", test_cases[i].name);
    any_failed |= test_failed != 0;
  }
  return any_failed;
}

/* ---- helpers ---- */

/* Hides from the compiler where a pointer comes from: no call is merged, removed or warned about. */
static inline void *hidden(void *pointer) {
  __asm__ volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

static inline size_t hidden_size(size_t size) {
  __asm__ volatile("" : "+r"(size));
  return size;
}

/* glibc has it since 2.26, its header too. */
#if defined(__GLIBC__) && __GLIBC__ == 2 && __GLIBC_MINOR__ < 26
TEST_C_LINKAGE void *reallocarray(void *block, size_t count, size_t size_bytes);
#endif

/* malloc_trim(0), also where the C library's header does not declare it but the allocator has it. */
#ifdef __GLIBC__
#include <malloc.h>
static inline int trim_heap(void) { return malloc_trim(0); }
static inline int can_trim_heap(void) { return 1; }
#else
TEST_C_LINKAGE int malloc_trim(size_t pad) __attribute__((weak));
static inline int trim_heap(void) { return malloc_trim != NULL ? malloc_trim(0) : 0; }
static inline int can_trim_heap(void) { return malloc_trim != NULL; }
#endif

/* Steele & Vigna's splitmix64 step: good enough, one word of state. */
static inline uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline uint64_t random_below(uint64_t *state, uint64_t limit) { return random_next(state) % limit; }

/* The pattern of byte i under a seed: neighbours and equal offsets of other seeds differ. */
static inline unsigned char pattern_byte(uint64_t seed, size_t i) {
  return (unsigned char)((seed * 0x9e3779b1u + i * 0x85ebca6bu) >> 13);
}

static inline void fill_pattern(void *block, size_t size_bytes, uint64_t seed) {
  unsigned char *bytes = (unsigned char *)block;
  for (size_t i = 0; i < size_bytes; i++) bytes[i] = pattern_byte(seed, i);
}

/* The first offset whose byte differs, or size_bytes if none does. */
static inline size_t pattern_mismatch(const void *block, size_t size_bytes, uint64_t seed) {
  const unsigned char *bytes = (const unsigned char *)block;
  for (size_t i = 0; i < size_bytes; i++)
    if (bytes[i] != pattern_byte(seed, i)) return i;
  return size_bytes;
}

/* The first offset that is not zero, or size_bytes if all are. */
static inline size_t nonzero_offset(const void *block, size_t size_bytes) {
  const unsigned char *bytes = (const unsigned char *)block;
  if (size_bytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size_bytes - 1) == 0)) return size_bytes;
  size_t i = 0;
  while (bytes[i] == 0) i++;
  return i;
}

static inline void sleep_ms(long milliseconds) {
  struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&pause, &pause) != 0 && errno == EINTR) continue;
}

static inline double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The start of a file, as a string, without stdio. */
static inline void read_start(const char *path, char *text, size_t capacity) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  ssize_t length = read(descriptor, text, capacity - 1);
  close(descriptor);
  REQUIRE(length > 0);
  text[length] = 0;
}

/* Field number `field` of /proc/self/statm in bytes (0: address space, 1: resident). */
static inline size_t statm_bytes(int field) {
  char text[128];
  read_start("/proc/self/statm", text, sizeof text);
  char *cursor = text;
  size_t pages = strtoull(cursor, &cursor, 10);
  while (field-- > 0) pages = strtoull(cursor, &cursor, 10);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t resident_bytes(void) { return statm_bytes(1); }
static inline size_t address_space_bytes(void) { return statm_bytes(0); }

/* The number that the kernel states of this process under a name such as "Threads:", or of kilobytes "VmLck:". */
static inline size_t status_number(const char *name) {
  char text[4096];
  read_start("/proc/self/status", text, sizeof text);
  const char *line = text;
  while (line != NULL && strncmp(line, name, strlen(name)) != 0) {
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  REQUIRE(line != NULL);
  return strtoul(line + strlen(name), NULL, 10);
}

/* Runs body in a forked child; its failed checks, exit status or death fail the running test too. */
static inline void run_in_child(void (*body)(void)) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    test_failed = 0;
    body();
    _exit(test_failed != 0);
  }
  int status = 0;
  pid_t waited;
  do waited = waitpid(child, &status, 0);
  while (waited < 0 && errno == EINTR);
  CHECK_THAT(waited == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child's wait status is 0x%x", status);
}

/* Sizes around every boundary an allocator may have: 2^k and 2^k + 16, halves between them, one less, one more. */
static inline size_t boundary_sizes(size_t *sizes, size_t capacity, size_t largest_bytes) {
  size_t count = 0;
  for (size_t size = 0; size <= 33 && count < capacity; size++) sizes[count++] = size;
  for (size_t power = 64; power <= largest_bytes; power *= 2) {
    const size_t around[] = {
        power - 1, power, power + 1, power + 16, power + 17, power + power / 2, power + power / 8 * 7};
    for (size_t i = 0; i < COUNT_OF(around) && count < capacity; i++)
      if (around[i] <= largest_bytes) sizes[count++] = around[i];
  }
  return count;
}

#endif
