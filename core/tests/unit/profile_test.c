/* profile_test.c: which requests become samples and what is kept of them, on the heap of the program itself. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

#include <pthread.h>

/* Sampling with a mean that stays, and the same random numbers each time. */
static void sample_every(uint32_t mean_bytes) {
  __atomic_store_n(&options.profile, 0, __ATOMIC_RELAXED);
  cache_call_in();
  free(malloc(1));
  __atomic_store_n(&options.profile, mean_bytes, __ATOMIC_RELAXED);
  cache_call_in();
  profile.random = mean_bytes;
  free(malloc(1));
}

static void stop(void) {
  __atomic_store_n(&options.profile, 0, __ATOMIC_RELAXED);
  cache_call_in();
  free(malloc(1));
}

static void *take_kept(size_t size_bytes) {
  allowance.used = 0; /* the budget is never used up */
  return malloc(size_bytes);
}

static const struct snug_profile_sample *sample_at(const void *address) {
  const struct snug_profile_sample *samples = (const void *)(uintptr_t)profile_head->samples_address;
  for (size_t i = 0; i < profile_head->sample_count; i++) {
    if (samples[i].address == (uintptr_t)address) return &samples[i];
  }
  return NULL;
}

static const struct snug_profile_stack *stack_of(const struct snug_profile_sample *sample) {
  return (const void *)(uintptr_t)(profile_head->stacks_address + sample->stack * 8);
}

TEST(nothing_is_kept_while_it_is_off) {
  for (int i = 0; i < 1000; i++) free(malloc(100000));
  CHECK(profile_head == NULL && profile_table_live() == 0);
  CHECK(this_thread.until_sample > INT64_MAX / 2);
}

/* With a mean of one byte nearly every request is a sample. */
TEST(every_size_is_sampled_and_forgotten) {
  sample_every(2);
  for (size_t size = 16; size < 8 * MIB; size += size / 3 + 1) {
    uint64_t live = profile_table_live();
    char *block = NULL;
    for (int i = 0; i < 100 && (block == NULL || sample_at(block) == NULL); i++) {
      free(block);
      block = take_kept(size);
    }
    const struct snug_profile_sample *sample = sample_at(block);
    REQUIRE(sample != NULL);
    CHECK(sample->size_bytes == size && sample->weight_bytes >= size && sample->weight_bytes <= size + 2);
    CHECK(sample->blocks >= 1024 && sample->stack != 0 && malloc_usable_size(block) >= size);
    CHECK(profile_table_live() == live + 1);
    memset(block, 1, malloc_usable_size(block));
    free(block);
    CHECK(profile_table_live() == live && sample_at(block) == NULL);
  }
  stop();
  profile_table_check();
  snug_check();
}

TEST(every_call_is_sampled) {
  sample_every(2);
  uint64_t taken = profile_head->taken, live = profile_table_live();
  void *blocks[] = {take_kept(5000),           calloc(10, 10),
                    calloc(10, 1000),          calloc(1, 100000),
                    aligned_alloc(64, 640),    memalign(8192, 10000),
                    aligned_alloc(4096, 8192), realloc(NULL, 300),
                    calloc(1, 3 * MIB),        valloc(100)};
  CHECK_THAT(profile_head->taken - taken >= COUNT_OF(blocks) - 1, "%d samples", (int)(profile_head->taken - taken));
  for (size_t i = 0; i < COUNT_OF(blocks); i++) {
    REQUIRE(blocks[i] != NULL);
    if (i >= 1 && i <= 3) CHECK(*(char *)blocks[i] == 0);
    free(blocks[i]);
  }
  CHECK(profile_table_live() == live);
  stop();
}

TEST(a_sample_moves_with_its_block) {
  sample_every(2);
  uint64_t live = profile_table_live();
  for (size_t size = 100; size < 32 * MIB; size *= 3) {
    char *block = take_kept(size), *moved;
    for (size_t next = size; next > size / 50; next = next * 2 / 3) {
      moved = realloc(block, next);
      REQUIRE(moved != NULL);
      if (moved != block) CHECK(sample_at(block) == NULL);
      block = moved;
    }
    block = realloc(block, size * 4);
    REQUIRE(block != NULL);
    const struct snug_profile_sample *sample = sample_at(block);
    CHECK(sample == NULL || sample->size_bytes >= size * 3);
    free(block);
    CHECK(profile_table_live() == live);
  }
  stop();
  profile_table_check();
}

/* The seed is fixed, so this passes always or never. */
TEST(estimates_are_unbiased) {
  enum { RUNS = 300, BLOCKS = 400, MEAN = 4096 };
  static void *blocks[BLOCKS];
  sample_every(MEAN);
  double bytes = 0, estimate = 0, live_estimate = 0;
  const struct snug_profile_sample *samples = (const void *)(uintptr_t)profile_head->samples_address;
  uint64_t random = 1, dropped = profile_head->dropped;
  for (int run = 0; run < RUNS; run++) {
    for (size_t i = 0; i < BLOCKS; i++) {
      size_t size = poisson_mix(random += POISSON_GAMMA) % (i % 10 == 0 ? 20000 : 1000) + 1;
      blocks[i] = take_kept(size);
      const struct snug_profile_sample *sample = NULL;
      bytes += (double)size;
      if (page_kind(page_index(blocks[i])) >> ARENA_SHIFT == profile_arena) sample = sample_at(blocks[i]);
      if (sample != NULL) estimate += (double)sample->weight_bytes;
    }
    for (size_t i = 0; i < profile_head->sample_count; i++) live_estimate += (double)samples[i].weight_bytes;
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  }
  CHECK(profile_head->mean_bytes == MEAN && profile_head->dropped == dropped);
  CHECK_THAT(estimate / bytes > 0.99 && estimate / bytes < 1.01, "estimate over truth: %g", estimate / bytes);
  CHECK(live_estimate >= estimate && live_estimate < estimate * 1.001);
  stop();
}

TEST(the_budget_raises_the_mean) {
  sample_every(64);
  uint64_t taken = profile_head->taken;
  for (int i = 0; i < 200000; i++) free(malloc(512));
  CHECK_THAT(profile_head->mean_bytes >= 64 << 8, "mean %llu", (unsigned long long)profile_head->mean_bytes);
  CHECK_THAT(profile_head->taken - taken < 4000, "%llu samples", (unsigned long long)(profile_head->taken - taken));
  uint64_t mean = profile_head->mean_bytes;
  allowance.window_ns -= 2 * WINDOW_NS; /* as if little had happened since, and nobody asked for CPU time */
  allowance.free_until_ns = UINT64_MAX;
  allowance.used = 0;
  profile_budget_count(sys_coarse_time_ns());
  CHECK(profile_head->mean_bytes == mean / 4);
  stop();
}

/* Else a thread that was drawn a gigabyte would be seen again after as much. */
TEST(a_distance_of_long_ago_is_drawn_again) {
  sample_every(64 * KIB);
  free(malloc(4000));
  this_thread.mean_bytes = this_thread.until_sample = 1 << 30;
  uint64_t taken = profile_head->taken;
  for (int i = 0; i < 100; i++) free(malloc(100000));
  CHECK(this_thread.mean_bytes == profile_head->mean_bytes && profile_head->taken > taken);
  stop();
}

static NEVER_INLINE void *take_here(void) { return take_kept(3000); }

TEST(samples_of_one_place_share_a_stack) {
  sample_every(2);
  void *blocks[2];
  for (int i = 0; i < 2; i++) {
    for (blocks[i] = take_here(); sample_at(blocks[i]) == NULL; blocks[i] = take_here()) free(blocks[i]);
  }
  const struct snug_profile_sample *samples[2] = {sample_at(blocks[0]), sample_at(blocks[1])};
  CHECK(samples[0]->time_ns <= samples[1]->time_ns && samples[0]->thread == samples[1]->thread);
  CHECK(stack_of(samples[0])->live_bytes >= samples[0]->weight_bytes);
  bool can_unwind = unwind_tables((uintptr_t)take_here) != NULL; /* programs linked by musl-gcc have no tables */
  CHECK(stack_of(samples[0])->native_frames != 0 || !can_unwind);
  free(blocks[0]);
  free(blocks[1]);
  stop();
}

static void *churn(void *argument) {
  for (int i = 0; i < 2000; i++) {
    char *blocks[8];
    for (size_t k = 0; k < COUNT_OF(blocks); k++) {
      REQUIRE((blocks[k] = malloc((size_t)(i * 37 % 900) * (k + 1))) != NULL);
    }
    for (size_t k = 0; k < COUNT_OF(blocks); k++) free(blocks[k]);
  }
  return argument;
}

TEST(threads_come_by_when_it_is_switched) {
  pthread_t threads[4];
  for (int round = 0; round < 6; round++) {
    for (size_t i = 0; i < COUNT_OF(threads); i++) REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    for (int i = 0; i < 20; i++) {
      __atomic_store_n(&options.profile, i % 2 == 0 ? 100 : 0, __ATOMIC_RELAXED);
      cache_call_in();
      free(malloc(100));
      sleep_ms(1);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
  }
  stop();
  profile_table_check();
  snug_check();
}

TEST(children_inherit) {
  sample_every(2);
  void *block = take_kept(4000);
  while (sample_at(block) == NULL) block = take_kept(4000);
  uint32_t generation = profile_head->generation;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    void *own = take_kept(4000);
    while (sample_at(own) == NULL) own = take_kept(4000);
    bool right = sample_at(block)->generation == generation && sample_at(own)->generation == generation + 1;
    free(block);
    free(own);
    profile_table_check();
    _exit(right && sample_at(block) == NULL ? 0 : 1);
  }
  int status;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_THAT(status == 0, "wait status 0x%x", status);
  CHECK(sample_at(block) != NULL);
  stop();
}

TEST(a_reset_forgets_what_was_counted) {
  sample_every(2);
  void *blocks[50];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = take_kept(3000 + 900 * i);
  CHECK(profile_table_live() != 0);
  profile_table_reset();
  size_t used_bytes, mapped_bytes;
  char *stacks = profile_table_copy_stacks(&used_bytes, &mapped_bytes);
  REQUIRE(stacks != NULL && used_bytes > 8 && used_bytes <= mapped_bytes);
  for (size_t at = 8; at < used_bytes; at += profile_stack_bytes((const void *)(stacks + at))) {
    const struct snug_profile_stack *stack = (const void *)(stacks + at);
    CHECK(stack->live_bytes == 0 && stack->live_blocks == 0);
    CHECK(stack->allocated_bytes == 0 && stack->allocated_blocks == 0);
  }
  sys_unmap(stacks, mapped_bytes);
  CHECK(profile_table_live() == 0);
  profile_table_check();
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]); /* they were samples, and are none */
  stop();
  profile_table_check();
}

/* The name, or NULL, and what is expected of the file. */
static void check_dump(const char *path, bool expected) {
  char text[64] = "";
  CHECK_THAT(profile_dump(path) == expected, "%s", path);
  if (!expected) return;
  sys_read_file(path, text, sizeof text);
  CHECK_THAT(strncmp(text, "heap_v2/1\n  t*: ", 16) == 0, "%s", text);
}

TEST(files_need_the_right_to_write_them) {
  sample_every(100);
  void *block = take_kept(100000);
  char path[] = "/tmp/snug-profile-test-XXXXXX";
  int fd = mkstemp(path);
  REQUIRE(fd >= 0);
  check_dump(path, true);
  check_dump("/nowhere/file", false);
  check_dump("/dev/full", false);
  uint32_t rights_before = rights_end();
  check_dump(path, false);
  rights_resume(rights_before);
  check_dump(path, true);
  close(fd);
  unlink(path);
  free(block);
  stop();
}

/* As after a fork from a signal handler that interrupted a change of it. */
static void use_abandoned_table(void) {
  uint64_t changes = profile_head->changes;
  profile_after_fork(true);
  profile_table_reset();
  check_dump("/dev/null", false);
  CHECK(profile_head->changes == changes);
}

TEST(an_abandoned_table_is_left_alone) { run_in_child(use_abandoned_table); }

TEST(a_full_table_says_so) {
  struct snug_profile_sample sample = {.size_bytes = 100, .weight_bytes = 1000, .blocks = 1024};
  static struct profile_frames frames;
  uint64_t live = profile_table_live(), dropped = profile_head->dropped;
  uint64_t room = profile_head->sample_capacity - live;
  for (uint64_t i = 0; i < room + 5; i++) {
    sample.address = (i + 1) << 40;
    frames.native_count = i % PROFILE_NATIVE_MAX;
    for (size_t k = 0; k < frames.native_count; k++) frames.native[k] = i * 64 + k;
    CHECK(profile_table_add(&sample, &frames) == (i < room));
  }
  CHECK(profile_head->dropped == dropped + 5 && profile_table_live() == profile_head->sample_capacity);
  CHECK(profile_head->stacks_missed != 0 && profile_head->stacks_bytes <= profile_head->stacks_capacity_bytes);
  profile_table_check();
  for (uint64_t i = 0; i < room; i++) profile_table_remove((void *)(uintptr_t)((i + 1) << 40));
  CHECK(profile_table_live() == live);
  profile_table_check();
  char label[200];
  uint32_t first = profile_table_name("f", 1, "a.rb", 4);
  CHECK(first != 0 && profile_table_name("f", 1, "a.rb", 4) == first && profile_table_name("fa", 2, ".rb", 3) != first);
  for (int i = 0; profile_head->names_missed == 0; i++) {
    memset(label, 'a' + i % 26, sizeof label);
    profile_table_name(label, sizeof label, label, (size_t)(i / 26));
    REQUIRE(i < 100000);
  }
  CHECK(profile_table_name("f", 1, "a.rb", 4) == first);
}

/* Of a child whose fork interrupted its thread: what is on the table may be half written. */
static void abandon_and_check(void) {
  profile_after_fork(true);
  profile_table_check();
  snug_check();
  test_print(2, "checked ");
}

TEST(abandoned_tables_are_not_checked) {
  char text[1024];
  sample_every(2);
  void *block = take_kept(4000);
  while (sample_at(block) == NULL) block = take_kept(4000);
  int status = run_and_listen(abandon_and_check, text, sizeof text);
  CHECK_THAT(status == 0 && strcmp(text, "checked ") == 0, "wait status 0x%x: %s", status, text);
  stop();
}
