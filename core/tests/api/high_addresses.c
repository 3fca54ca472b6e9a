/* Addresses above what programs get unless they ask: 5-level page tables of x86-64, 52 bits of 64-bit Arm. The heap
 * stays below; what others map up there is nothing of its own, and threads may have their stacks there. */
#include "../support/test.h"

#include <pthread.h>
#include <sys/mman.h>

enum { MAPPED_BYTES = 1 << 20, BLOCKS = 2000 };

#define ORDINARY_BITS (sizeof(void *) == 8 ? 48 : 31)

static bool is_ordinary(const void *address) { return ((uint64_t)(uintptr_t)address >> ORDINARY_BITS) == 0; }

/* NULL: this machine has none. */
static unsigned char *map_high(void) {
  void *hint = (void *)(uintptr_t)(UINT64_C(3) << 50);
  void *mapped = mmap(hint, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return NULL; /* an emulator */
  if (!is_ordinary(mapped)) return (unsigned char *)mapped;
  munmap(mapped, MAPPED_BYTES);
  return NULL;
}

static void use_heap(uint64_t seed) {
  static __thread unsigned char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    size_t size_bytes = (size_t)1 << random_below(&seed, i % 50 == 0 ? 22 : 13);
    blocks[i] = (unsigned char *)hidden(malloc(size_bytes));
    REQUIRE(blocks[i] != NULL);
    blocks[i][0] = (unsigned char)i;
    CHECK_THAT(is_ordinary(blocks[i]), "%p", (void *)blocks[i]);
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    CHECK(blocks[i][0] == (unsigned char)i);
    free(blocks[i]);
  }
}

static void *use_heap_in_thread(void *stack) {
  unsigned char local = 0;
  if (stack != NULL) CHECK(!is_ordinary(&local));
  use_heap(3);
  return hidden(malloc(1000));
}

static void use_heap_once(void) { use_heap(4); }

TEST(the_heap_is_where_programs_expect_it) {
  unsigned char *mapped = map_high();
  use_heap(1);
  if (mapped == NULL) SKIP("this machine has no addresses above 48 bits");
  munmap(mapped, MAPPED_BYTES);
  use_heap(2);
}

TEST(threads_have_their_stacks_up_there) {
  unsigned char *stack = map_high();
  if (stack == NULL) SKIP("this machine has no addresses above 48 bits");
  pthread_attr_t attributes;
  pthread_t thread;
  void *block = NULL;
  pthread_attr_init(&attributes);
  REQUIRE(pthread_attr_setstack(&attributes, stack, MAPPED_BYTES) == 0);
  for (int i = 0; i < 3; i++) {
    REQUIRE(pthread_create(&thread, &attributes, use_heap_in_thread, stack) == 0);
    REQUIRE(pthread_join(thread, &block) == 0);
    free(block);
    run_in_child(use_heap_once);
  }
  munmap(stack, MAPPED_BYTES);
}

/* How a child ends that frees a pointer. */
static int status_of_free(void *pointer) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    close(2); /* what it says is for misuse */
    free(hidden(pointer));
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status;
}

TEST(what_is_up_there_is_no_block) {
  if (!snug_is_active()) SKIP("other allocators may not see it");
  unsigned char *mapped = map_high();
  if (mapped == NULL) SKIP("this machine has no addresses above 48 bits");
  int status = status_of_free(mapped + 4096);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "wait status 0x%x", status);
  munmap(mapped, MAPPED_BYTES);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
