/* cxx_test.c: operator new in a program without a C++ library, which could throw nothing. (C++ programs: tests/api)
 */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

/* As a C++ compiler would call them. */
void *_Znwm(size_t size_bytes);
void *_Znam(size_t size_bytes);
void *_ZnwmSt11align_val_t(size_t size_bytes, size_t alignment);
void _ZdlPv(void *block);
void _ZdaPvm(void *block, size_t size_bytes);

static void ask_for_too_much(void) { _Znwm(PTRDIFF_MAX); }
static void ask_for_too_much_aligned(void) { _ZnwmSt11align_val_t(PTRDIFF_MAX, 64); }

TEST(operators_give_blocks_of_this_heap) {
  char *block = _Znwm(100), *array = _Znam(100);
  CHECK(malloc_usable_size(block) >= 100 && malloc_usable_size(array) >= 100);
  _ZdlPv(block);
  _ZdaPvm(array, 100);
  CHECK(_Znwm(0) != NULL);
}

TEST(without_a_cxx_library_failure_ends_the_process) {
  check_dies(ask_for_too_much, "operator new failed: 9223372036854775807 bytes; usual cause: ");
  check_dies(ask_for_too_much_aligned, "operator new failed: 9223372036854775807 bytes");
}
