// All C++ operators new and delete, their handler and their exceptions. Called as functions, so that none is elided.
#include "../support/test.h"

#include <malloc.h>
#include <new>
#include <sys/resource.h>

namespace {

constexpr size_t impossible = SIZE_MAX / 2;
const size_t sizes[] = {0, 1, 16, 17, 100, 1000, 1025, 5000, 33000, 200000, 1048576, 5000000};

void check_block(void *block, size_t size, size_t alignment) {
  CHECK_THAT(block != nullptr && reinterpret_cast<uintptr_t>(block) % alignment == 0, "size %zu, alignment %zu: %p",
             size, alignment, block);
  CHECK(malloc_usable_size(block) >= size);
  memset(block, 0x5a, size);
}

template <typename New, typename Delete>
void check_pair(New make, Delete destroy) {
  for (size_t size : sizes) {
    void *block = hidden(make(size));
    check_block(block, size, 16);
    destroy(block, size);
  }
}

template <typename New, typename Delete>
void check_aligned_pair(New make, Delete destroy) {
  for (size_t alignment = 1; alignment <= 1 << 21; alignment *= 2) {
    for (size_t size : sizes) {
      void *block = hidden(make(size, std::align_val_t(alignment)));
      check_block(block, size, alignment);
      destroy(block, size, std::align_val_t(alignment));
    }
  }
}

int handler_calls;

struct handler_guard {  // whatever a test does, the next one starts without a handler
  std::new_handler saved = std::set_new_handler(nullptr);
  handler_guard() { handler_calls = 0; }
  ~handler_guard() { std::set_new_handler(saved); }
};

struct own_exception {};

void third_call_throws_bad_alloc() {
  if (++handler_calls == 3) throw std::bad_alloc();
}

void third_call_throws_own() {
  if (++handler_calls == 3) throw own_exception();
}

void third_call_removes_handler() {
  if (++handler_calls == 3) std::set_new_handler(nullptr);
}

template <typename Call>
bool throws_bad_alloc(Call call) {
  try {
    hidden(call());
  } catch (const std::bad_alloc &error) {
    return error.what() != nullptr;
  }
  return false;
}

}  // namespace

TEST(scalar_new_and_delete) {
  check_pair([](size_t n) { return ::operator new(n); }, [](void *p, size_t) { ::operator delete(p); });
  check_pair([](size_t n) { return ::operator new(n); }, [](void *p, size_t n) { ::operator delete(p, n); });
}

TEST(array_new_and_delete) {
  check_pair([](size_t n) { return ::operator new[](n); }, [](void *p, size_t) { ::operator delete[](p); });
  check_pair([](size_t n) { return ::operator new[](n); }, [](void *p, size_t n) { ::operator delete[](p, n); });
}

TEST(nothrow_new_and_delete) {
  check_pair([](size_t n) { return ::operator new(n, std::nothrow); },
             [](void *p, size_t) { ::operator delete(p, std::nothrow); });
  check_pair([](size_t n) { return ::operator new[](n, std::nothrow); },
             [](void *p, size_t) { ::operator delete[](p, std::nothrow); });
}

TEST(aligned_new_and_delete) {
  check_aligned_pair([](size_t n, std::align_val_t a) { return ::operator new(n, a); },
                     [](void *p, size_t, std::align_val_t a) { ::operator delete(p, a); });
  check_aligned_pair([](size_t n, std::align_val_t a) { return ::operator new(n, a); },
                     [](void *p, size_t n, std::align_val_t a) { ::operator delete(p, n, a); });
  check_aligned_pair([](size_t n, std::align_val_t a) { return ::operator new[](n, a); },
                     [](void *p, size_t, std::align_val_t a) { ::operator delete[](p, a); });
  check_aligned_pair([](size_t n, std::align_val_t a) { return ::operator new[](n, a); },
                     [](void *p, size_t n, std::align_val_t a) { ::operator delete[](p, n, a); });
}

TEST(aligned_nothrow_new_and_delete) {
  check_aligned_pair([](size_t n, std::align_val_t a) { return ::operator new(n, a, std::nothrow); },
                     [](void *p, size_t, std::align_val_t a) { ::operator delete(p, a, std::nothrow); });
  check_aligned_pair([](size_t n, std::align_val_t a) { return ::operator new[](n, a, std::nothrow); },
                     [](void *p, size_t, std::align_val_t a) { ::operator delete[](p, a, std::nothrow); });
}

TEST(delete_of_null_does_nothing) {
  ::operator delete(hidden(nullptr));
  ::operator delete[](hidden(nullptr));
  ::operator delete(hidden(nullptr), size_t(8));
  ::operator delete[](hidden(nullptr), size_t(8));
  ::operator delete(hidden(nullptr), std::nothrow);
  ::operator delete[](hidden(nullptr), std::nothrow);
  ::operator delete(hidden(nullptr), std::align_val_t(64));
  ::operator delete[](hidden(nullptr), std::align_val_t(64));
  ::operator delete(hidden(nullptr), size_t(8), std::align_val_t(64));
  ::operator delete[](hidden(nullptr), size_t(8), std::align_val_t(64));
  ::operator delete(hidden(nullptr), std::align_val_t(64), std::nothrow);
  ::operator delete[](hidden(nullptr), std::align_val_t(64), std::nothrow);
}

TEST(zero_sizes_are_distinct) {
  void *first = hidden(::operator new(0)), *second = hidden(::operator new[](0));
  CHECK(first != nullptr && second != nullptr && first != second);
  ::operator delete(first);
  ::operator delete[](second);
}

TEST(failure_without_handler_throws_bad_alloc) {
  handler_guard guard;
  size_t n = hidden_size(impossible);
  CHECK(throws_bad_alloc([n] { return ::operator new(n); }));
  CHECK(throws_bad_alloc([n] { return ::operator new[](n); }));
  CHECK(throws_bad_alloc([n] { return ::operator new(n, std::align_val_t(64)); }));
  CHECK(throws_bad_alloc([n] { return ::operator new[](n, std::align_val_t(64)); }));
}

TEST(failure_without_handler_gives_null_from_nothrow) {
  handler_guard guard;
  size_t n = hidden_size(impossible);
  CHECK(hidden(::operator new(n, std::nothrow)) == nullptr);
  CHECK(hidden(::operator new[](n, std::nothrow)) == nullptr);
  CHECK(hidden(::operator new(n, std::align_val_t(64), std::nothrow)) == nullptr);
  CHECK(hidden(::operator new[](n, std::align_val_t(64), std::nothrow)) == nullptr);
}

TEST(handler_is_called_until_it_throws) {
  handler_guard guard;
  size_t n = hidden_size(impossible);
  std::set_new_handler(third_call_throws_bad_alloc);
  CHECK(throws_bad_alloc([n] { return ::operator new(n); }));
  CHECK_THAT(handler_calls == 3, "%d calls", handler_calls);
  handler_calls = 0;
  CHECK(throws_bad_alloc([n] { return ::operator new[](n, std::align_val_t(128)); }));
  CHECK_THAT(handler_calls == 3, "%d calls", handler_calls);
}

TEST(exceptions_of_the_handler_pass_through) {
  handler_guard guard;
  std::set_new_handler(third_call_throws_own);
  bool caught = false;
  try {
    hidden(::operator new(hidden_size(impossible)));
  } catch (const own_exception &) {
    caught = true;
  }
  CHECK(caught);
  CHECK_THAT(handler_calls == 3, "%d calls", handler_calls);
}

TEST(handler_that_removes_itself_ends_in_bad_alloc) {
  handler_guard guard;
  size_t n = hidden_size(impossible);
  std::set_new_handler(third_call_removes_handler);
  CHECK(throws_bad_alloc([n] { return ::operator new(n); }));
  CHECK_THAT(handler_calls == 3, "%d calls", handler_calls);
}

TEST(nothrow_calls_the_handler_and_swallows_its_bad_alloc) {
  handler_guard guard;
  size_t n = hidden_size(impossible);
  for (int form = 0; form < 4; form++) {
    handler_calls = 0;
    std::set_new_handler(third_call_throws_bad_alloc);
    void *block = form == 0   ? ::operator new(n, std::nothrow)
                  : form == 1 ? ::operator new[](n, std::nothrow)
                  : form == 2 ? ::operator new(n, std::align_val_t(64), std::nothrow)
                              : ::operator new[](n, std::align_val_t(64), std::nothrow);
    CHECK_THAT(hidden(block) == nullptr && handler_calls == 3, "form %d: %p after %d calls", form, block,
               handler_calls);
  }
}

static void raise_limit() {
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  handler_calls++;
}

static void allocate_under_raisable_limit() {
  handler_guard guard;
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(1) << 46; /* reserved address space is given up when a limit is set */
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = address_space_bytes() + 32 * MIB;
  REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  std::set_new_handler(raise_limit);
  void *block = hidden(::operator new(512 * MIB));
  CHECK(block != nullptr);
  CHECK_THAT(handler_calls == 1, "%d calls", handler_calls);
  ::operator delete(block);
}

TEST(handler_that_finds_memory_lets_new_succeed) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator knows no such limit");
  run_in_child(allocate_under_raisable_limit);
}

TEST(new_expressions_work) {
  struct alignas(256) wide {
    unsigned char bytes[1000];
  };
  for (int i = 0; i < 1000; i++) {
    wide *one = new wide;
    wide *many = new wide[3];
    int *numbers = new int[100]();
    CHECK(reinterpret_cast<uintptr_t>(hidden(one)) % 256 == 0 && reinterpret_cast<uintptr_t>(hidden(many)) % 256 == 0);
    CHECK(nonzero_offset(hidden(numbers), 400) == 400);
    delete one;
    delete[] many;
    delete[] numbers;
  }
  bool caught = false;
  try {
    hidden(new char[hidden_size(impossible)]);
  } catch (const std::bad_alloc &) {
    caught = true;
  }
  CHECK(caught);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
