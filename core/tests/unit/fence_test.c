/* fence_test.c: sampled blocks that end at a fence: their shape, their mistakes, what the program's own handler of
 * SIGSEGV sees, kernels that refuse, threads, forks. */
#include "../../src/sys.c"

/* A kernel that splits no mappings any more, on demand. */
static bool refuse_splits;
static bool commit_or_refuse(void *start, size_t bytes) { return !refuse_splits && sys_commit(start, bytes); }
static bool decommit_or_refuse(void *start, size_t bytes) { return !refuse_splits && sys_decommit(start, bytes); }
#define sys_commit commit_or_refuse
#define sys_decommit decommit_or_refuse
#include "above_sys.h"
#include "unit.h"

#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>

enum { SLOTS = 8, TEXT_BYTES = 16384 };

/* Nearly every request is a sample, and ends at a fence while there are slots. */
static void begin(void) {
  __atomic_store_n(&options.guard_samples, SLOTS, __ATOMIC_RELAXED);
  __atomic_store_n(&options.profile, 2, __ATOMIC_RELAXED);
  cache_call_in();
  free(malloc(1));
}

static void end(void) {
  __atomic_store_n(&options.profile, 0, __ATOMIC_RELAXED);
  cache_call_in();
  free(malloc(1));
}

static void *fenced(size_t alignment, size_t size_bytes) {
  for (int i = 0; i < 1000; i++) {
    allowance.used = 0; /* the budget is never used up */
    allowance.mean_bytes = this_thread.mean_bytes = 2;
    this_thread.until_sample = -1;
    void *block = alignment != 0 ? memalign(alignment, size_bytes) : malloc(size_bytes);
    REQUIRE(block != NULL);
    if (fence_holds(block)) return block;
    free(block);
  }
  REQUIRE(!"no block ended at a fence");
  return NULL;
}

static bool ends_at_fence(const char *block, size_t size_bytes) {
  uintptr_t end = round_up((uintptr_t)block + (size_bytes != 0 ? size_bytes : 1), 16);
  return end % zone.page_bytes == 0;
}

/* ---- right programs ---- */

static const size_t sizes[] = {0, 1, 7, 16, 24, 100, 1000, 4096, 5000, 20000, 32 * KIB};

TEST(blocks_end_at_fences) {
  begin();
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    char *block = fenced(0, sizes[i]);
    CHECK((uintptr_t)block % 16 == 0 && ends_at_fence(block, sizes[i]));
    CHECK_THAT(malloc_usable_size(block) == sizes[i], "%zu of %zu", malloc_usable_size(block), sizes[i]);
    fill_pattern(block, sizes[i], i);
    CHECK(pattern_mismatch(block, sizes[i], i) == sizes[i]);
    check_unreadable(block + round_up(sizes[i] != 0 ? sizes[i] : 1, 16));
    free(block);
    CHECK(fence_live() == 0 && fence_bytes() == 0);
    check_unreadable(block);
    if (!is_emulated()) CHECK(!is_resident(block));
  }
  end();
  snug_check();
}

TEST(alignments_are_kept) {
  begin();
  for (size_t alignment = 32; alignment <= 4096; alignment *= 2) {
    for (size_t size = 1; size <= 32 * KIB; size = size * 3 + 1) {
      char *block = fenced(alignment, size);
      CHECK_THAT((uintptr_t)block % alignment == 0, "%p for %zu", (void *)block, alignment);
      CHECK(malloc_usable_size(block) >= size);
      memset(block, 1, malloc_usable_size(block));
      free_aligned_sized(block, alignment, size);
    }
  }
  end();
}

TEST(new_blocks_read_as_zero_for_calloc) {
  begin();
  for (int i = 0; i < 50; i++) {
    size_t size = (size_t)i * 97 + 1;
    memset(fenced(0, size), 0xff, size);
    for (int k = 0; k < 3; k++) {
      allowance.used = 0;
      char *block = calloc(1, size);
      REQUIRE(block != NULL);
      for (size_t at = 0; at < size; at++) CHECK(block[at] == 0);
      memset(block, 0xff, size);
      free(block);
    }
    for (uint32_t k = 0; k < fence.count; k++) {
      if (fence.slots[k].state == SLOT_LIVE) free(fence.slots[k].block);
    }
  }
  CHECK(fence_live() == 0);
  end();
}

TEST(resized_blocks_keep_what_they_hold) {
  begin();
  for (size_t size = 16; size < 100 * KIB; size = size * 2 + 5) {
    char *block = fenced(0, size > 32 * KIB ? 32 * KIB : size);
    size_t kept = malloc_usable_size(block);
    fill_pattern(block, kept, size);
    char *longer = realloc(block, kept + 1);
    REQUIRE(longer != NULL && longer != block);
    CHECK(pattern_mismatch(longer, kept, size) == kept);
    char *shorter = realloc(longer, kept / 2 + 1);
    REQUIRE(shorter != NULL);
    CHECK(pattern_mismatch(shorter, kept / 2 + 1, size) == kept / 2 + 1);
    free(shorter);
  }
  CHECK(fence_live() == 0);
  end();
}

/* jemalloc's programs may use, and say at the free, what nallocx says. */
TEST(jemalloc_sizes_are_whole) {
  begin();
  for (size_t size = 1; size < 5000; size += 37) {
    for (int flags = 0; flags <= 7; flags += 7) { /* no alignment, and one of 128 */
      allowance.used = 0;
      this_thread.until_sample = -1;
      char *block = mallocx(size, flags);
      REQUIRE(block != NULL);
      CHECK(sallocx(block, flags) >= nallocx(size, flags) && (flags == 0 || (uintptr_t)block % 128 == 0));
      memset(block, 1, nallocx(size, flags));
      block = rallocx(block, size + 10, flags);
      REQUIRE(block != NULL);
      memset(block, 1, nallocx(size + 10, flags));
      sdallocx(block, size % 2 == 0 ? size + 10 : nallocx(size + 10, flags), flags);
    }
  }
  CHECK(fence_live() == 0);
  end();
}

TEST(sized_frees_are_checked) {
  begin();
  free_sized(fenced(0, 100), 100);
  end();
  CHECK(fence_live() == 0);
}

TEST(the_slot_freed_first_is_taken_first) {
  begin();
  void *blocks[SLOTS];
  for (size_t i = 0; i < SLOTS; i++) blocks[i] = fenced(0, 64);
  CHECK(fence_live() == SLOTS && fence_bytes() == SLOTS * zone.page_bytes);
  for (int i = 0; i < 20; i++) { /* all slots are in use: ordinary blocks */
    allowance.used = 0;
    void *block = malloc(64);
    CHECK(block != NULL && !fence_holds(block));
    free(block);
  }
  for (size_t i = 0; i < SLOTS; i++) free(blocks[(i * 3) % SLOTS]);
  for (size_t i = 0; i < SLOTS; i++) {
    void *block = fenced(0, 64);
    CHECK(block == blocks[(i * 3) % SLOTS]);
    free(block);
  }
  end();
}

TEST(longer_blocks_and_other_settings_have_no_fence) {
  begin();
  for (int i = 0; i < 20; i++) {
    void *block = malloc(32 * KIB + 1);
    CHECK(!fence_holds(block));
    free(block);
  }
  __atomic_store_n(&options.guard_samples, 0, __ATOMIC_RELAXED);
  for (int i = 0; i < 20; i++) {
    void *block = malloc(100);
    CHECK(!fence_holds(block));
    free(block);
  }
  end();
}

TEST(kernels_that_split_no_mapping_cost_the_fence_only) {
  begin();
  char *before = fenced(0, 100);
  refuse_splits = true;
  for (int i = 0; i < 100; i++) {
    allowance.used = 0;
    char *block = malloc(100);
    REQUIRE(block != NULL);
    memset(block, 1, 100);
    free(block);
  }
  free(before); /* stays accessible, and holds no memory */
  CHECK(fence_live() == 0);
  if (!is_emulated()) CHECK(!is_resident(before));
  refuse_splits = false;
  end();
}

/* ---- mistakes ---- */

static size_t mistake_size;
static char *volatile mistaken;
static void write_beyond(void) { mistaken[round_up(mistake_size, 16)] = 1; }
static void read_before(void) { (void)*(volatile char *)(mistaken - zone.page_bytes); }
static void free_with_slack_written(void) {
  mistaken[mistake_size] = 1;
  free(mistaken);
}
static void write_after_free(void) {
  free(mistaken);
  mistaken[mistake_size / 2] = 1;
}
static void free_twice(void) {
  free(mistaken);
  free(mistaken);
}
static void ask_for_size_of_freed(void) {
  free(mistaken);
  mistake_size = malloc_usable_size(mistaken);
}
static void resize_freed(void) {
  free(mistaken);
  mistaken = realloc(mistaken, 10);
}
static void free_inside(void) { free(mistaken + 16); }
static void free_before(void) { free((void *)(fence_range.start + 64)); }
static void free_with_wrong_size(void) { free_sized(mistaken, mistake_size / 2); }

static void check_mistake(void (*make)(void), int signal, const char *const *words) {
  static char text[TEXT_BYTES];
  int status = run_and_listen(make, text, sizeof text);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == signal, "wait status 0x%x, stderr: %s", status, text);
  for (; *words != NULL; words++) CHECK_THAT(strstr(text, *words) != NULL, "no \"%s\" in: %s", *words, text);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(mistakes_name_both_stacks) {
  begin();
  static const size_t lengths[] = {40, 1000, 10001};
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    const char *taken = " was allocated by this thread:", *given = " was freed by this thread:";
    mistake_size = lengths[i];
    mistaken = fenced(0, mistake_size);
    check_mistake(write_beyond, SIGSEGV, WORDS(" beyond the end of a block: ", taken, "and this is the access:"));
    if (fence.slot_bytes > zone.page_bytes) /* else it may as well be a mistake with the block before */
      check_mistake(read_before, SIGSEGV, WORDS(" before the start of a block: ", taken));
    check_mistake(write_after_free, SIGSEGV, WORDS(" after free: ", taken, given, "and this is the access:"));
    check_mistake(free_twice, SIGABRT, WORDS("double free: ", taken, given, "and this is the call that shows it:"));
    check_mistake(ask_for_size_of_freed, SIGABRT, WORDS("double free: ", taken, given));
    check_mistake(resize_freed, SIGABRT, WORDS("double free: ", taken, given));
    check_mistake(free_with_slack_written, SIGABRT, WORDS("write beyond the end of a block: ", taken));
    check_mistake(free_inside, SIGABRT, WORDS("free of a pointer inside a block: ", taken));
    check_mistake(free_before, SIGABRT, WORDS("free of a pointer that snug did not allocate: "));
    check_mistake(free_with_wrong_size, SIGABRT, WORDS("sized free with the wrong size: "));
    free(mistaken);
  }
  end();
}

static void *free_it(void *block) {
  free(block);
  return NULL;
}
static void write_after_free_elsewhere(void) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, free_it, mistaken) == 0);
  pthread_join(thread, NULL);
  mistaken[0] = 1;
}

TEST(other_threads_are_told_apart) {
  begin();
  mistaken = fenced(0, mistake_size = 100);
  check_mistake(write_after_free_elsewhere, SIGSEGV,
                WORDS(" after free: ", " was allocated by this thread:", " was freed by another thread:"));
  free(mistaken);
  end();
}

/* ---- the program's own handlers ---- */

static volatile int calls_of[2];
static sigjmp_buf back;
static void handle_0(int signal) {
  calls_of[0] += signal == SIGSEGV;
  siglongjmp(back, 1);
}
static void handle_1(int signal, siginfo_t *info, void *context) {
  calls_of[1] += signal == SIGSEGV && info->si_addr == (void *)16 && context != NULL;
  siglongjmp(back, 1);
}

static void set_handler(int which, struct sigaction *before) {
  struct sigaction action = {.sa_flags = which == 1 ? SA_SIGINFO | SA_NODEFER : 0};
  if (which == 1) action.sa_sigaction = handle_1;
  if (which == 0) action.sa_handler = handle_0;
  REQUIRE(sigaction(SIGSEGV, &action, before) == 0);
}

static void fault_elsewhere(void) {
  volatile uintptr_t nowhere = 16;
  if (sigsetjmp(back, 1) == 0) *(volatile char *)nowhere = 1;
}

static void look_again(void) { free(fenced(0, 100)); }

static void live_with_handlers(void) {
  struct sigaction before, older;
  look_again(); /* ours comes first, with nothing to follow */
  set_handler(0, &before);
  fault_elsewhere();
  look_again(); /* ours comes first again, and the program's follows */
  fault_elsewhere();
  CHECK(calls_of[0] == 2);
  set_handler(1, &older); /* for a while */
  look_again();
  fault_elsewhere();
  fault_elsewhere();
  CHECK(calls_of[0] == 2 && calls_of[1] == 2);
  REQUIRE(sigaction(SIGSEGV, &older, NULL) == 0);
  fault_elsewhere();
  look_again();
  fault_elsewhere();
  CHECK_THAT(calls_of[0] == 4 && calls_of[1] == 2, "%d, %d", calls_of[0], calls_of[1]);
  mistaken =
      fenced(0, mistake_size = 100); /* a handler that returns elsewhere gets faults of blocks, too, afterwards */
  if (sigsetjmp(back, 1) == 0) write_beyond();
  CHECK(calls_of[0] == 5);
  free(mistaken);
  REQUIRE(entries.count == 3);
  REQUIRE(sigaction(SIGSEGV, &before, NULL) == 0); /* as it was in the beginning: nothing follows */
  if (test_failed == 0) test_print(2, "lived ");
  volatile uintptr_t nowhere = 16;
  *(volatile char *)nowhere = 1;
}

TEST(handlers_of_the_program_stay_what_they_are) {
  begin();
  check_mistake(live_with_handlers, SIGSEGV, WORDS("lived ", " beyond the end of a block: "));
  end();
}

/* As Ruby does: the handler before is called with the signal alone. */
static void (*handler_before)(int);
static void call_handler_before(int signal) {
  handler_before(signal);
  test_print(2, "came back ");
  _exit(7);
}

static void chain_with_less(void) {
  struct sigaction before;
  look_again();
  struct sigaction action = {.sa_handler = call_handler_before};
  REQUIRE(sigaction(SIGSEGV, &action, &before) == 0);
  handler_before = before.sa_handler;
  REQUIRE(handler_before != SIG_DFL);
  look_again();
  mistaken = fenced(0, mistake_size = 100);
  write_beyond();
}

TEST(handlers_may_call_ours_with_less) {
  static char text[TEXT_BYTES];
  begin();
  int status = run_and_listen(chain_with_less, text, sizeof text);
  CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "wait status 0x%x: %s", status, text);
  CHECK(strstr(text, "beyond the end of a block") != NULL && strstr(text, "came back") != NULL);
  end();
}

/* As programs do that pass a fault on to the handler before theirs: it must end the process, not come again forever. */
static struct sigaction action_before;
static void pass_to_before(int signal, siginfo_t *info, void *context) {
  action_before.sa_sigaction(signal, info, context);
}
static void pass_back(int signal) {
  sigaction(SIGSEGV, &action_before, NULL);
  raise(signal);
}
static void fault_at_16(void) {
  volatile uintptr_t nowhere = 16;
  *(volatile char *)nowhere = 1;
}

static void chain_to_nobody(void) {
  alarm(60);
  look_again();
  struct sigaction action = {.sa_sigaction = pass_to_before, .sa_flags = SA_SIGINFO};
  REQUIRE(sigaction(SIGSEGV, &action, &action_before) == 0 && action_before.sa_handler != SIG_DFL);
  fault_at_16();
}

static void set_back_by_libc(void) {
  alarm(60);
  look_again();
  signal(SIGSEGV, signal(SIGSEGV, pass_back));
  fault_at_16();
}

static void set_back_before_a_mistake(void) {
  alarm(60);
  look_again();
  signal(SIGSEGV, signal(SIGSEGV, pass_back));
  look_again();
  mistaken = fenced(0, mistake_size = 100);
  write_beyond();
}

static void pass_back_what_was_sent(void) {
  alarm(60);
  look_again();
  struct sigaction action = {.sa_handler = pass_back, .sa_flags = SA_NODEFER};
  REQUIRE(sigaction(SIGSEGV, &action, &action_before) == 0);
  kill(getpid(), SIGSEGV);
  test_print(2, "too long ");
}

TEST(faults_that_are_passed_on_to_nobody_end_the_process) {
  begin();
  check_mistake(chain_to_nobody, SIGSEGV, WORDS(""));
  check_mistake(set_back_by_libc, SIGSEGV, WORDS(""));
  check_mistake(set_back_before_a_mistake, SIGSEGV, WORDS(" beyond the end of a block: ", " was allocated by"));
  if (!is_emulated())
    check_mistake(pass_back_what_was_sent, SIGSEGV, WORDS("")); /* the emulator's libc has no restorer */
  end();
}

/* As garbage collectors do: a page of the program's own is made read-only, and a handler notes who writes. */
static char *barrier;
static size_t barrier_bytes;
static void let_write(int signal) {
  calls_of[0] += signal == SIGSEGV;
  REQUIRE(mprotect(barrier, barrier_bytes, PROT_READ | PROT_WRITE) == 0);
}

static void write_through_a_barrier(void) {
  alarm(60);
  barrier_bytes = (size_t)getpagesize();
  struct sigaction action = {.sa_handler = let_write};
  REQUIRE(sigaction(SIGSEGV, &action, NULL) == 0);
  barrier = fenced(barrier_bytes, barrier_bytes);
  REQUIRE(mprotect(barrier, barrier_bytes, PROT_READ) == 0);
  *(volatile char *)barrier = 1;
  CHECK(calls_of[0] == 1);
  free(barrier);
  if (test_failed == 0) test_print(2, "lived ");
}

TEST(a_block_whose_protection_the_program_changes_is_the_programs) {
  static char text[TEXT_BYTES];
  begin();
  run_and_listen(write_through_a_barrier, text, sizeof text);
  CHECK_THAT(strcmp(text, "lived ") == 0, "%s", text);
  end();
}

static void ignore_sent(void) {
  signal(SIGSEGV, SIG_IGN);
  look_again();
  raise(SIGSEGV);
  signal(SIGSEGV, SIG_DFL);
  look_again();
  test_print(2, "lived ");
  raise(SIGSEGV);
  test_print(2, "too long ");
}

TEST(sent_signals_do_what_the_program_set) {
  static char text[TEXT_BYTES];
  begin();
  int status = run_and_listen(ignore_sent, text, sizeof text);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "0x%x: %s", status, text);
  CHECK_THAT(strstr(text, "lived ") == text && strstr(text, "too long") == NULL && strstr(text, "snug") == NULL, "%s",
             text);
  end();
}

static void set_many_handlers(void) {
  static char more[2 * ENTRIES_MAX][16]; /* as good as handlers: none is called */
  for (size_t i = 0; i < COUNT_OF(more); i++) {
    struct sigaction action = {.sa_handler = (void (*)(int))(void *)more[i]}, now;
    REQUIRE(sigaction(SIGSEGV, &action, NULL) == 0);
    fault_watch(look_at_fault);
    REQUIRE(sigaction(SIGSEGV, NULL, &now) == 0);
    if ((now.sa_handler == action.sa_handler) != (entries.count == ENTRIES_MAX && i + 1 >= ENTRIES_MAX)) continue;
    if (now.sa_handler == action.sa_handler) break;
  }
  CHECK(entries.count == ENTRIES_MAX);
  signal(SIGSEGV, SIG_DFL);
  if (test_failed == 0) test_print(2, "lived ");
}

TEST(a_program_with_many_handlers_keeps_them) {
  static char text[TEXT_BYTES];
  begin();
  run_and_listen(set_many_handlers, text, sizeof text);
  CHECK_THAT(strcmp(text, "lived ") == 0, "%s", text);
  end();
}

TEST(sandboxes_have_no_fences) {
  begin();
  uint32_t had = rights_end();
  CHECK(!fault_watch(look_at_fault));
  for (int i = 0; i < 20; i++) {
    void *block = malloc(100);
    CHECK(!fence_holds(block));
    free(block);
  }
  rights_resume(had);
  end();
}

/* ---- threads and forks ---- */

static void *churn(void *argument) {
  uint64_t random = (uintptr_t)argument;
  for (int i = 0; i < 3000; i++) {
    char *blocks[4];
    for (size_t k = 0; k < COUNT_OF(blocks); k++) {
      size_t size = (size_t)(i * 37 % 900) * (k + 1);
      allowance.used = 0;
      REQUIRE((blocks[k] = malloc(size)) != NULL);
      fill_pattern(blocks[k], size, random + k);
    }
    for (size_t k = 0; k < COUNT_OF(blocks); k++) {
      size_t size = (size_t)(i * 37 % 900) * (k + 1);
      CHECK(pattern_mismatch(blocks[k], size, random + k) == size);
      free(blocks[k]);
    }
  }
  return NULL;
}

static void fork_and_check(char *block) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    bool same = block[5] == 5;
    free(block);
    free(fenced(0, 100));
    churn((void *)77);
    _exit(same && test_failed == 0 ? 0 : 1);
  }
  int status;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  CHECK_THAT(status == 0, "wait status 0x%x", status);
}

TEST(threads_and_children_share_the_slots) {
  pthread_t threads[4];
  begin();
  char *block = fenced(0, 200);
  block[5] = 5;
  for (size_t i = 0; i < COUNT_OF(threads); i++)
    REQUIRE(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
  for (int i = 0; i < 10; i++) fork_and_check(block);
  for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
  CHECK(block[5] == 5);
  free(block);
  uint32_t live = 0; /* libc keeps what it allocated for threads */
  for (uint32_t i = 0; i < fence.count; i++) live += fence.slots[i].state == SLOT_LIVE;
  CHECK_THAT(fence_live() == live && fence_bytes() == live * zone.page_bytes, "%u, %u", fence.live, live);
  end();
  profile_table_check();
  snug_check();
}
