/* unwind_test.c: the frames of known functions, against libc's own unwinder where there is one. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

#include <pthread.h>

__attribute__((weak)) int backtrace(void **frames, int most);

enum { MOST = 40 };

static uint64_t frames[MOST];
static void *expected[MOST];
static size_t frame_count;
static int expected_count;
static enum unwind_end end;

/* Whether tables, or on aarch64 frame pointers, lead through functions of this program. */
static bool can_unwind(void) {
  unwind_prepare();
  return unwind_tables((uintptr_t)can_unwind) != NULL;
}

NEVER_INLINE static int innermost(volatile int *result) {
  if (backtrace != NULL) expected_count = backtrace(expected, MOST);
  frame_count = unwind_here(frames, MOST, NULL, &end);
  return *result = 1;
}

/* Both have innermost's frame first; the place in it differs. */
static void check_as_expected(void) {
  CHECK(end == UNWIND_OUTMOST || frame_count == MOST);
  CHECK_THAT(frame_count >= 3, "%zu frames", frame_count);
  if (backtrace == NULL || is_emulated()) return;
  CHECK_THAT(frame_count == (size_t)expected_count || expected_count == MOST, "%zu frames, libc has %d", frame_count,
             expected_count);
  for (size_t i = 1; i < frame_count && i < (size_t)expected_count; i++) {
    CHECK_THAT(frames[i] + 1 == (uintptr_t)expected[i] || frames[i] == (uintptr_t)expected[i] ||
                   frames[i] + 2 == (uintptr_t)expected[i],
               "frame %zu: %#llx, libc has %p", i, (unsigned long long)frames[i], expected[i]);
  }
}

NEVER_INLINE static int recursive(int depth) {
  volatile int result = 0;
  if (depth == 0) return innermost(&result);
  return recursive(depth - 1) + result + 1;
}

/* Its frame is found by a register other than the stack's, or by an expression. */
NEVER_INLINE static int aligned_and_variable(size_t bytes) {
  volatile char variable[bytes];
  _Alignas(256) volatile int result = 0;
  variable[bytes - 1] = 1;
  return innermost(&result) + variable[bytes - 1];
}

TEST(ordinary_functions_are_unwound) {
  if (!can_unwind()) SKIP("no tables here");
  CHECK(recursive(5) > 0);
  check_as_expected();
  CHECK(frame_count > 7);
}

TEST(frames_of_any_size_are_unwound) {
  if (!can_unwind()) SKIP("no tables here");
  CHECK(aligned_and_variable(100) > 0);
  check_as_expected();
  CHECK(aligned_and_variable(20000) > 0);
  check_as_expected();
}

TEST(no_more_than_asked_for) {
  if (!can_unwind()) SKIP("no tables here");
  uint64_t few[3] = {0, 0, 77};
  CHECK(unwind_here(few, 2, NULL, &end) == 2 && end == UNWIND_ENOUGH);
  CHECK(few[0] != 0 && few[1] != 0 && few[2] == 77);
}

/* As the native frames of an interpreter are left out where its language's frames stand for them. */
NEVER_INLINE static size_t deep(int depth, const struct unwind_range *last) {
  volatile size_t below = depth == 0 ? unwind_here(frames, MOST, last, &end) : deep(depth - 1, last);
  return below;
}

TEST(a_few_frames_of_the_last_code_are_enough) {
  if (!can_unwind()) SKIP("no tables here");
  extern char __executable_start[], etext[];
  struct unwind_range own = {(uintptr_t)__executable_start, (uintptr_t)etext}, none = {0, 0};
  struct unwind_range second[] = {none, own}, nowhere[] = {none, none};
  CHECK(deep(20, second) == LAST_FRAMES && end == UNWIND_ENOUGH);
  CHECK(deep(20, NULL) > 20 && end == UNWIND_OUTMOST);
  CHECK(deep(20, nowhere) > 20 && end == UNWIND_OUTMOST);
}

static void *in_thread(void *argument) {
  recursive(3);
  return argument;
}

TEST(threads_are_unwound_to_their_start) {
  if (!can_unwind()) SKIP("no tables here");
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, in_thread, NULL) == 0);
  pthread_join(thread, NULL);
  check_as_expected();
}

static void on_signal(int number) {
  (void)number;
  recursive(2);
}

TEST(signal_handlers_are_unwound) {
  if (!can_unwind() || is_emulated()) SKIP("no tables here");
  signal(SIGUSR1, on_signal);
  raise(SIGUSR1);
  check_as_expected();
}

/* As a stack made by hand, at whose end lies nothing. */
TEST(unreadable_memory_is_not_touched) {
  size_t page_bytes = sys_page_size_bytes();
  char *pages = sys_map(2 * page_bytes);
  REQUIRE(pages != NULL && sys_decommit(pages + page_bytes, page_bytes));
  CHECK(sys_can_read(pages) && !sys_can_read(pages + page_bytes) && !sys_can_read(NULL));
  *(uint32_t *)(void *)pages = 0x51f15eed; /* the one value that the call waits for */
  CHECK(sys_can_read(pages));
  struct stack_memory memory = {0, 0, 0};
  uint64_t word, pc = 0, sp = (uintptr_t)pages, fp = (uintptr_t)pages + page_bytes - 8;
  CHECK(read_word(&memory, (uintptr_t)pages, &word));
  CHECK(!read_word(&memory, (uintptr_t)pages + 1, &word));
  CHECK(!read_word(&memory, (uintptr_t)pages + page_bytes, &word));
  CHECK(!step_by_frame_pointer(&pc, &sp, &fp, &memory));
  CHECK(!read_word(&memory, UINT64_C(0xffff800000000000), &word));
  sys_unmap(pages, 2 * page_bytes);
}

/* As systems with the whole address space have them, emulators seldom. */
TEST(code_may_be_wherever_a_program_can_be) {
#if defined(__aarch64__)
  const uint64_t code[] = {0x400000, 0xaaaac8d40714, 0xffff9e1f73f8, 0xffffffffffff, 0x5500000714, 0x7fb7e873f8};
  const uint64_t no_code[] = {0, 4095, UINT64_C(1) << 48, 0xffff800080010000, UINT64_MAX};
#else
  const uint64_t code[] = {0x400000, 0x401136, 0x55d0c8d40714, 0x7f519e1f73f8, 0x7ffd3c5f2b10, 0x7fffffffefff};
  const uint64_t no_code[] = {0, 4095, UINT64_C(1) << 47, 0xaaaac8d40714, 0xffffffff81000000, UINT64_MAX};
#endif
  for (size_t i = 0; i < COUNT_OF(code); i++) CHECK_THAT(may_be_code(code[i]), "%#llx", (unsigned long long)code[i]);
  for (size_t i = 0; i < COUNT_OF(no_code); i++)
    CHECK_THAT(!may_be_code(no_code[i]), "%#llx", (unsigned long long)no_code[i]);
}
