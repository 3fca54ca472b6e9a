/* What libsnug-prefixed.a promises (core/archive/prefixed.c): two allocators in one program, each with its own blocks,
 * settings and statistics. Run linked dynamically and statically, and with libsnug.so, a second copy, preloaded. */
#include "../support/test.h"

#include "../../include/snug.h"
#include "../../include/snug_malloc.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#if __has_include(<linux/seccomp.h>) /* musl-gcc has none of the kernel's */
#include <linux/filter.h>
#include <linux/seccomp.h>
#endif

enum { BLOCKS = 2000, THREADS = 4, BLOCK_BYTES = 4000 };

static uint64_t live_bytes(void) {
  struct snug_stats stats;
  REQUIRE(snug_stats(&stats, sizeof stats) == 0);
  return stats.live_allocated_bytes;
}

TEST(the_programs_own_malloc_is_another_one) {
  uint64_t before = live_bytes();
  void *theirs[BLOCKS], *ours[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) theirs[i] = hidden(malloc(BLOCK_BYTES));
  CHECK_THAT(live_bytes() < before + BLOCK_BYTES, "snug counts %llu bytes of malloc's",
             (unsigned long long)(live_bytes() - before));
  for (size_t i = 0; i < BLOCKS; i++) ours[i] = snug_malloc(BLOCK_BYTES);
  uint64_t grown = live_bytes() - before;
  CHECK_THAT(grown >= BLOCKS * BLOCK_BYTES, "snug counts %llu bytes of its own", (unsigned long long)grown);
  for (size_t i = 0; i < BLOCKS; i++) {
    free(theirs[i]);
    snug_free(ours[i]);
  }
}

TEST(every_function_serves) {
  char *block = (char *)snug_calloc(10, 10);
  REQUIRE(block != NULL && nonzero_offset(block, 100) == 100);
  block = (char *)snug_realloc(block, 50000);
  REQUIRE(block != NULL && nonzero_offset(block, 100) == 100 && snug_malloc_usable_size(block) >= 50000);
  snug_free_sized(block, 50000);
  block = (char *)snug_reallocarray(NULL, 3, 1000);
  CHECK(block != NULL);
  errno = 0;
  CHECK(snug_reallocarray(block, SIZE_MAX / 2, 4) == NULL && errno == ENOMEM);
  snug_free(block);
  void *aligned[4] = {snug_aligned_alloc(4096, 100), snug_memalign(64, 100), snug_valloc(100)};
  CHECK(snug_posix_memalign(&aligned[3], 256, 1000) == 0);
  const size_t alignments[] = {4096, 64, 4096, 256};
  for (size_t i = 0; i < COUNT_OF(aligned); i++) {
    CHECK((uintptr_t)aligned[i] % alignments[i] == 0);
    snug_free(aligned[i]);
  }
  void *zeroed = snug_mallocx(100000, SNUG_ALIGN(8192) | SNUG_ZERO);
  REQUIRE(zeroed != NULL && (uintptr_t)zeroed % 8192 == 0 && nonzero_offset(zeroed, 100000) == 100000);
  zeroed = snug_rallocx(zeroed, 300000, SNUG_ALIGN(8192) | SNUG_ZERO);
  REQUIRE(zeroed != NULL && (uintptr_t)zeroed % 8192 == 0 && nonzero_offset(zeroed, 300000) == 300000);
  CHECK(snug_sallocx(zeroed, 0) >= 300000 && snug_nallocx(300000, SNUG_ALIGN(8192)) >= 300000);
  snug_sdallocx(zeroed, 300000, SNUG_ALIGN(8192));
}

static void *use_both(void *argument) {
  uint64_t state = (uintptr_t)argument;
  void *blocks[64][2] = {{NULL, NULL}};
  for (size_t i = 0; i < 50000; i++) {
    void **pair = blocks[random_below(&state, COUNT_OF(blocks))];
    size_t size = random_below(&state, 3000);
    free(pair[0]);
    snug_free(pair[1]);
    pair[0] = hidden(malloc(size));
    pair[1] = snug_malloc(size);
    REQUIRE(pair[0] != NULL && pair[1] != NULL);
    memset(pair[0], 1, size);
    memset(pair[1], 2, size);
  }
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    free(blocks[i][0]);
    snug_free(blocks[i][1]);
  }
  return argument;
}

static void use_both_in_threads(void) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, use_both, (void *)(i + 1)) == 0);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK(snug_check() > 0);
}

TEST(both_serve_threads) { use_both_in_threads(); }

TEST(both_serve_children_of_a_program_with_threads) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator starts no thread in a child of a process with threads");
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, use_both, (void *)(i + 9)) == 0);
  for (int i = 0; i < 20; i++) run_in_child(use_both_in_threads);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* Runs one test of this program in a new process. Returns its wait status. */
static int run_again(const char *name, uid_t user) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    REQUIRE(user == getuid() || (setgid(user) == 0 && setuid(user) == 0));
    execl("/proc/self/exe", "beside", name, (char *)NULL);
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

/* Of root's processes libsnug.so has threads only where it sees how they drop privileges: so not as root. The preloaded
 * copy may start its own. */
static void allocate_without_a_thread(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) memset(blocks[i] = snug_malloc(20000), 1, 20000);
  for (size_t i = 0; i < BLOCKS; i++) snug_free(blocks[i]);
  sleep_ms(100);
  CHECK_THAT(status_number("Threads:") == 1, "%zu threads", status_number("Threads:"));
  size_t before = resident_bytes();
  CHECK(snug_purge() > 0);
  CHECK_THAT(resident_bytes() < before / 2, "%zu KiB resident, before %zu", resident_bytes() / KIB, before / KIB);
}

TEST(no_thread_is_started) {
  if (getenv("LD_PRELOAD") != NULL) SKIP("another copy is preloaded");
  if (getenv("TEST_EMULATED")) SKIP("the emulator has threads of its own");
  if (getuid() == 0)
    CHECK(run_again("no_thread_is_started", 65534) == 0);
  else
    allocate_without_a_thread();
}

#ifdef SECCOMP_RET_KILL_PROCESS
/* Those that libsnug.so makes beside any malloc's, by whatever way: all would end the process. */
static void allocate_in_a_sandbox(void) {
  enum { CALLS = 10 };
  static const unsigned calls[CALLS] = {SYS_membarrier, SYS_getpid,  SYS_gettid, SYS_tgkill, SYS_openat,
                                        SYS_readlinkat, SYS_sysinfo, SYS_clone,  SYS_read,   SYS_prctl};
  struct sock_filter code[CALLS + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (unsigned i = 0; i < CALLS; i++)
    code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], (unsigned char)(CALLS - i), 0);
  code[CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  code[CALLS + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  struct sock_fprog program = {COUNT_OF(code), code};
  snug_enter_sandbox();
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
          syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
  void *blocks[200];
  for (int round = 0; round < 100; round++) {
    for (size_t i = 0; i < COUNT_OF(blocks); i++) memset(blocks[i] = snug_malloc(i * 400), 1, i * 400);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) snug_free(blocks[i]);
    if (round % 25 == 0) sleep_ms(120); /* ticks */
  }
  snug_purge();
}

TEST(a_sandbox_that_was_told_is_kept) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator has no sandboxes");
  run_in_child(allocate_in_a_sandbox);
}
#endif

TEST(settings_of_the_other_allocator_are_not_read) {
  if (getenv("LD_PRELOAD") != NULL) SKIP("the preloaded copy reads them");
  if (getenv("TEST_EMULATED")) SKIP("a program that is started again is not emulated");
  if (getenv("MALLOC_CONF") == NULL) { /* else it was started again, which did not end this process */
    setenv("MALLOC_CONF", "abort_conf:true,nonsense:1", 1);
    CHECK(run_again("settings_of_the_other_allocator_are_not_read", getuid()) == 0);
    unsetenv("MALLOC_CONF");
  }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
