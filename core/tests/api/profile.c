/* Sampling as another process sees it: switched on and off by the page of counters, samples read from the table that
 * core/include/snug_profile.h describes. The process asks itself here. */
#include "../support/test.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include "../../include/snug_counters.h"
#include "../../include/snug_profile.h"

enum { BLOCKS = 3000 };

static struct snug_counters *page;
static void *blocks[BLOCKS];

/* Number of the setting among those that the page lists. */
static uint64_t number_of_setting(void) {
  uint64_t number = 0;
  for (const char *at = page->settings; strncmp(at, "profile:", 8) != 0; number++) {
    REQUIRE((at = strchr(at, ',')) != NULL);
    at++;
  }
  return number;
}

/* Asks for a value of the setting, and makes calls until it is answered. */
static void ask_for(uint64_t value) {
  static uint64_t count;
  uint64_t request = SNUG_REQUEST_SET | number_of_setting() << 8 | value << 32;
  uint64_t from = (uint64_t)getpid() | ++count << 32;
  page->request = request;
  page->request_from = from;
  uint64_t check = snug_request_check(request, from, page->pid);
  __atomic_store_n(&page->request_check, check, __ATOMIC_RELEASE);
  for (int i = 0; i < 100000 && __atomic_load_n(&page->answer_to, __ATOMIC_ACQUIRE) != check; i++) {
    free(hidden(malloc(50 * KIB)));
  }
  REQUIRE(page->answer_to == check && page->answer == SNUG_ANSWER_DONE);
  free(hidden(malloc(50 * KIB))); /* the first call after the answer follows it */
}

static bool has_profile(void) {
  page = dlsym(RTLD_DEFAULT, "snug_counters");
  return page != NULL && strstr(page->settings, "profile:") != NULL;
}

static const struct snug_profile *table(void) { return (const void *)(uintptr_t)page->profile_address; }

static const struct snug_profile_sample *sample_at(const void *address) {
  const struct snug_profile_sample *samples = (const void *)(uintptr_t)table()->samples_address;
  for (uint64_t i = 0; i < table()->sample_count; i++) {
    if (samples[i].address == (uintptr_t)address) return &samples[i];
  }
  return NULL;
}

/* Samples among the blocks of this test. */
static uint64_t samples_among(void) {
  uint64_t count = 0;
  for (size_t i = 0; i < BLOCKS; i++) count += blocks[i] != NULL && sample_at(blocks[i]) != NULL;
  return count;
}

static void *take(size_t i) {
  switch (i % 8) {
    case 0: return malloc(i % 1500);
    case 1: return calloc(i % 50 + 1, 20);
    case 2: return memalign(64, i + 1);
    case 3: return malloc(i * 30);
    case 4: return realloc(hidden(malloc(i)), 3 * i + 1);
    case 5: return aligned_alloc(4096, 4096 * (i % 4 + 1));
    case 6: return calloc(1, i * 40);
    default: return realloc(hidden(malloc(i * 100)), i * 150);
  }
}

TEST(samples_come_and_go_with_their_blocks) {
  if (!snug_is_active() || !has_profile()) SKIP("no snug that samples");
  ask_for(512);
  REQUIRE(table() != NULL && memcmp(table()->magic, SNUG_PROFILE_MAGIC, 16) == 0);
  CHECK(table()->version == SNUG_PROFILE_VERSION && table()->size_bytes == sizeof *table());
  CHECK(table()->sample_size_bytes == sizeof(struct snug_profile_sample));
  CHECK(strstr(page->settings, "profile:512") != NULL);
  for (size_t i = 0; i < BLOCKS; i++) {
    REQUIRE((blocks[i] = hidden(take(i))) != NULL);
    memset(blocks[i], (int)i, malloc_usable_size(blocks[i]));
  }
  uint64_t samples = samples_among();
  CHECK_THAT(samples > 20, "%llu samples", (unsigned long long)samples);
  CHECK(table()->changes % 2 == 0);
  ask_for(0);
  uint64_t taken = table()->taken;
  for (size_t i = 0; i < BLOCKS; i++) free(hidden(malloc(i * 100)));
  CHECK(table()->taken == taken);
  CHECK(samples_among() == samples);
  for (size_t i = 0; i < BLOCKS; i++) {
    void *block = blocks[i];
    bool is_sample = sample_at(block) != NULL;
    if (i % 3 == 0) {
      block = realloc(block, malloc_usable_size(block) * 2 + 100);
      REQUIRE(block != NULL);
      CHECK(!is_sample || block == blocks[i] || sample_at(blocks[i]) == NULL);
    }
    free(block);
    CHECK(sample_at(blocks[i]) == NULL && sample_at(block) == NULL);
    blocks[i] = NULL;
  }
}

static void *churn(void *argument) {
  for (size_t i = 0; i < 20000; i++) free(hidden(malloc(i % 700)));
  return argument;
}

TEST(every_thread_is_sampled) {
  if (!snug_is_active() || !has_profile()) SKIP("no snug that samples");
  enum { THREADS = 3 };
  pthread_t threads[THREADS];
  ask_for(200);
  uint64_t before = table()->taken;
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, churn, NULL) == 0);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK_THAT(table()->taken > before + 100, "%llu samples", (unsigned long long)(table()->taken - before));
  ask_for(0);
}

TEST(a_child_tells_its_samples_from_inherited_ones) {
  if (!snug_is_active() || !has_profile()) SKIP("no snug that samples");
  ask_for(300);
  for (size_t i = 0; i < BLOCKS; i++) REQUIRE((blocks[i] = hidden(malloc(i))) != NULL);
  uint32_t generation = table()->generation;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    uint64_t own = 0, inherited = 0;
    ask_for(0);
    ask_for(300);
    for (size_t i = 0; i < BLOCKS; i++) {
      const struct snug_profile_sample *sample = sample_at(blocks[i]);
      inherited += sample != NULL && sample->generation == generation;
      free(blocks[i]);
      blocks[i] = hidden(malloc(i));
      sample = sample_at(blocks[i]);
      own += sample != NULL && sample->generation == generation + 1;
    }
    _exit(table()->generation == generation + 1 && own != 0 && inherited != 0 ? 0 : 1);
  }
  int status;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_THAT(status == 0, "wait status 0x%x", status);
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  ask_for(0);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
