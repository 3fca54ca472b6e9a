/* raw_clone: copies of a process that clone(2) made without libc's knowledge, and so without fork handlers. They are
 * no vfork children: the memory is theirs. */
#include "../support/test.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* Some of the C library's heap before, so that it is not the copy that sets it up. */
static pid_t copy(void) {
  for (size_t size = 16; size < 2 * MIB; size *= 3) free(hidden(malloc(size)));
  return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void check_copy(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_THAT(status == 0, "the copy's wait status is 0x%x", status);
}

/* As vsftpd does for each connection. */
TEST(address_space_limit_in_a_copy) {
  pid_t child = copy();
  REQUIRE(child >= 0);
  if (child == 0) {
    struct rlimit limit = {200 * MIB, 200 * MIB};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    if (mmap(NULL, 12 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) _exit(2);
    for (size_t size = 16; size <= 2 * MIB; size *= 2) {
      unsigned char *block = (unsigned char *)hidden(malloc(size));
      if (block == NULL) _exit(3);
      memset(block, 1, size);
    }
    _exit(0);
  }
  check_copy(child);
}

TEST(heap_of_a_copy_is_its_own) {
  enum { BLOCKS = 500 };
  static unsigned char *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = (unsigned char *)hidden(malloc(100 + i * 40));
    REQUIRE(blocks[i] != NULL);
    fill_pattern(blocks[i], 100 + i * 40, i);
  }
  pid_t child = copy();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (size_t i = 0; i < BLOCKS; i++) {
      if (pattern_mismatch(blocks[i], 100 + i * 40, i) != 100 + i * 40) _exit(1);
      free(blocks[i]);
      blocks[i] = (unsigned char *)hidden(malloc(100 + i * 40));
      if (blocks[i] == NULL) _exit(2);
      memset(blocks[i], 0xff, 100 + i * 40);
    }
    sleep_ms(300);
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
    _exit(0);
  }
  for (size_t round = 0; round < 20; round++) {
    for (size_t i = 0; i < BLOCKS; i++) CHECK(pattern_mismatch(blocks[i], 100 + i * 40, i) == 100 + i * 40);
    free(hidden(malloc(9000)));
  }
  check_copy(child);
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

/* A copy of a copy, each with a limit that its parent does not have. */
TEST(copies_of_copies) {
  pid_t child = copy();
  REQUIRE(child >= 0);
  if (child == 0) {
    pid_t grandchild = copy();
    if (grandchild < 0) _exit(1);
    if (grandchild == 0) {
      struct rlimit limit = {150 * MIB, 150 * MIB};
      _exit(setrlimit(RLIMIT_AS, &limit) != 0 || hidden(malloc(3 * MIB)) == NULL ? 2 : 0);
    }
    int status = 0;
    if (waitpid(grandchild, &status, 0) != grandchild || status != 0) _exit(3);
    _exit(hidden(malloc(3 * MIB)) == NULL ? 4 : 0);
  }
  check_copy(child);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
