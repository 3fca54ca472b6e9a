// A static C++ program: a failed new calls its handler and throws, although nothing can be looked up at run time. And
// names that snug uses inside are the program's to use.
#include <cstdio>
#include <new>

int options = 1, zone = 2, cache_init = 3;

static int calls;

static void give_up_at_the_third() {
  if (++calls == 3) std::set_new_handler(nullptr);
}

int main() {
  volatile std::size_t too_much = std::size_t(1) << 62;
  std::set_new_handler(give_up_at_the_third);
  bool thrown = false;
  try {
    delete[] new char[too_much];
  } catch (const std::bad_alloc &) {
    thrown = true;
  }
  delete new int(options + zone + cache_init);
  if (new (std::nothrow) char[too_much] != nullptr || !thrown || calls != 3) {
    std::printf("thrown: %d, calls of the handler: %d\n", thrown, calls);
    return 1;
  }
  return 0;
}
