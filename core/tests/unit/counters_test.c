/* counters_test.c: the counters add up. Threads allocate and free at random and stop; then the equations E1-E5 of
 * snug_counters.h must hold, exactly where they say so, against what the threads know to be live; and in a forked
 * child. */
#include "../../src/sys.c"
#include "above_sys.h"
#include "unit.h"

enum { THREADS = 4, LIVE = 600, STEPS = 20000, ROUNDS = 4 };

struct block {
  char *start; /* NULL: free place */
  size_t requested_bytes;
};

static struct block live[THREADS][LIVE];
static pthread_t threads[THREADS];
static pthread_barrier_t barrier;

/* ---- the workload ---- */

static size_t random_size(uint64_t *random) {
  size_t kind = random_below(random, 1000);
  if (kind < 700) return random_below(random, 600);
  if (kind < 940) return random_below(random, CLASS_MAX_BYTES + 1);
  if (kind < 990) return 1 + random_below(random, LARGE_MIN_BYTES - 1);
  return 1 + random_below(random, 3 * LARGE_MIN_BYTES);
}

static void random_step(struct block *place, uint64_t *random) {
  size_t choice = random_below(random, 10), size = random_size(random);
  if (place->start != NULL && choice < 7) {
    free(place->start);
    *place = (struct block){NULL, 0};
  } else if (place->start != NULL) {
    if (size == 0) size = 1;
    char *start = realloc(place->start, size);
    REQUIRE(start != NULL);
    *place = (struct block){start, size};
  } else {
    size_t alignment = (size_t)16 << random_below(random, 6);
    *place = (struct block){choice == 0   ? calloc(1, size)
                            : choice == 1 ? memalign(alignment, size)
                                          : malloc(size),
                            size};
    REQUIRE(place->start != NULL);
  }
}

/* Between two barriers each thread works; between the next two it rests, for the others to look. */
static void *work(void *argument) {
  size_t self = (size_t)(uintptr_t)argument;
  uint64_t random = self + 1;
  free(malloc(1)); /* have a cache */
  pthread_barrier_wait(&barrier);
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&barrier);
    for (int step = 0; step < STEPS; step++) {
      size_t other = random_below(&random, 4) == 0 ? (self + 1) % THREADS : self; /* some frees by another thread */
      struct block *place = &live[self][random_below(&random, LIVE)];
      if (other != self && step % 2 == 0) { /* handed over: taken out of the neighbour's list in one exchange */
        place = &live[other][random_below(&random, LIVE / 8)];
        char *start = __atomic_exchange_n(&place->start, NULL, __ATOMIC_ACQ_REL);
        free(start);
      } else {
        place = &live[self][LIVE / 8 + random_below(&random, LIVE - LIVE / 8)];
        random_step(place, &random);
        struct block *shared = &live[self][random_below(&random, LIVE / 8)];
        if (__atomic_load_n(&shared->start, __ATOMIC_ACQUIRE) == NULL) {
          shared->requested_bytes = 100;
          __atomic_store_n(&shared->start, malloc(100), __ATOMIC_RELEASE);
        }
      }
    }
    pthread_barrier_wait(&barrier);
  }
  pthread_barrier_wait(&barrier);
  return NULL;
}

/* ---- what the counters must say ---- */

struct totals {
  uint64_t allocated_bytes, requested_bytes, run_bytes, run_requested_bytes, large_bytes, large_requested_bytes;
  uint64_t run_blocks, large_blocks;
  uint64_t class_rounding_bytes; /* by which a sampled size may be wrong */
  uint64_t blocks[CLASS_COUNT];
};

static struct totals sum_live(void) {
  struct totals totals;
  memset(&totals, 0, sizeof totals);
  for (size_t i = 0; i < THREADS * LIVE; i++) {
    const struct block *block = &live[i / LIVE][i % LIVE];
    if (block->start == NULL) continue;
    size_t usable = malloc_usable_size(block->start), page = page_index(block->start);
    CHECK(usable >= block->requested_bytes);
    totals.allocated_bytes += usable;
    totals.requested_bytes += block->requested_bytes;
    if (page >= zone_pages()) {
      totals.large_blocks++;
      totals.large_bytes += usable;
      totals.large_requested_bytes += block->requested_bytes;
    } else if (page_kind(page) == KIND_RUN) {
      totals.run_blocks++;
      totals.run_bytes += usable;
      totals.run_requested_bytes += block->requested_bytes;
    } else {
      totals.blocks[page_kind(page) & 255]++;
      totals.class_rounding_bytes += usable;
    }
  }
  return totals;
}

static uint64_t outstanding(unsigned class_index) {
  uint64_t sum = 0;
  for (unsigned arena = 0; arena < snug_counters.arena_count; arena++) {
    sum += snug_counters.classes[arena][class_index].outstanding_blocks;
  }
  return sum;
}

static uint64_t cached_blocks(unsigned class_index) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < caches.count; i++) {
    const struct cache *cache = cache_number(i);
    if (!cache->in_use) continue;
    count += bin_count(cache, &cache->bin[class_index]);
    for (uint32_t j = 0; j < cache->remote_count; j++) {
      const void *block = ((void **)((char *)cache + REMOTE_OFFSET))[j];
      count += (page_kind(page_index(block)) & 255) == class_index;
    }
  }
  return count;
}

/* Blocks that libc and this program hold beside the workload: noted before it starts. */
static struct snug_stats stats_before;
static uint64_t blocks_before[CLASS_COUNT];

static void note_before(void) {
  snug_stats(&stats_before, sizeof stats_before);
  for (unsigned i = 1; i < CLASS_COUNT; i++) blocks_before[i] = outstanding(i) - cached_blocks(i);
}

static void check_live_bytes(const char *when) {
  const struct snug_counters *c = &snug_counters;
  struct snug_stats stats;
  struct totals totals = sum_live();
  snug_stats(&stats, sizeof stats);
  uint64_t outstanding_bytes = 0, cached_bytes = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    uint64_t live_blocks = outstanding(i) - cached_blocks(i) - blocks_before[i];
    CHECK_THAT(live_blocks == totals.blocks[i], "%s: E1, class of %u: %zu counted, %zu live", when,
               class_shapes[i].size_bytes, (size_t)live_blocks, (size_t)totals.blocks[i]);
    outstanding_bytes += outstanding(i) * class_shapes[i].size_bytes;
    cached_bytes += cached_blocks(i) * class_shapes[i].size_bytes;
  }
  CHECK_THAT(c->cached_bytes == cached_bytes, "%s: %zu cached, %zu seen", when, (size_t)c->cached_bytes,
             (size_t)cached_bytes);
  CHECK(c->run_blocks == totals.run_blocks && c->run_bytes == totals.run_bytes);
  CHECK(c->large_blocks == totals.large_blocks && c->large_bytes == totals.large_bytes);
  uint64_t live_bytes = stats.live_allocated_bytes - stats_before.live_allocated_bytes;
  CHECK_THAT(live_bytes == totals.allocated_bytes, "%s: E2: %zu counted, %zu live", when, (size_t)live_bytes,
             (size_t)totals.allocated_bytes);
  CHECK(stats.live_allocated_bytes == outstanding_bytes - cached_bytes + c->run_bytes + c->large_bytes);
  CHECK_THAT(
      c->run_requested_bytes == totals.run_requested_bytes && c->large_requested_bytes == totals.large_requested_bytes,
      "%s: E3 for runs and large blocks", when);
  /* E3 for classes is a sample: of blocks in one class, so never off by more than the class rounds, and here by far
   * less. */
  double wrong =
      (double)stats.live_requested_bytes - (double)stats_before.live_requested_bytes - (double)totals.requested_bytes;
  if (wrong < 0) wrong = -wrong;
  CHECK_THAT(wrong <= 0.12 * (double)totals.class_rounding_bytes + 4096,
             "%s: E3: off by %.0f of %zu requested bytes, %zu in classes", when, wrong, (size_t)totals.requested_bytes,
             (size_t)totals.class_rounding_bytes);
}

static uint64_t resident_heap_bytes(void) {
  uint64_t bytes = 0;
  unsigned char pages_state[CHUNK_PAGES];
  for (size_t chunk = 0; chunk < zone_pages(); chunk += CHUNK_PAGES) {
    REQUIRE(mincore(page_address(chunk), CHUNK_PAGES * PAGE_BYTES, pages_state) == 0);
    for (size_t i = 0; i < CHUNK_PAGES; i++) bytes += (uint64_t)(pages_state[i] & 1) * PAGE_BYTES;
  }
  return bytes;
}

static void check_heap(const char *when) {
  const struct snug_counters *c = &snug_counters;
  struct snug_stats stats;
  snug_stats(&stats, sizeof stats);
  uint64_t slab_bytes = 0, outstanding_bytes = 0;
  for (unsigned arena = 0; arena < c->arena_count; arena++) {
    for (unsigned i = 1; i < CLASS_COUNT; i++) slab_bytes += c->classes[arena][i].slab_bytes;
  }
  for (unsigned i = 1; i < CLASS_COUNT; i++) outstanding_bytes += outstanding(i) * class_shapes[i].size_bytes;
  uint64_t sum = slab_bytes + c->run_bytes + c->dirty_bytes - c->large_retained_bytes + c->clean_bytes;
  CHECK_THAT(c->heap_top_bytes == sum, "%s: E4: top %zu, sum %zu", when, (size_t)c->heap_top_bytes, (size_t)sum);
  uint64_t slab_free = slab_bytes - outstanding_bytes;
  CHECK(stats.slab_free_bytes == (slab_free > c->slab_purged_bytes ? slab_free - c->slab_purged_bytes : 0));
  CHECK(c->heap_committed_bytes >= c->heap_top_bytes);
  uint64_t in_heap = c->heap_top_bytes - c->clean_bytes - c->slab_purged_bytes;
  CHECK_THAT(stats.resident_bytes == in_heap + c->large_bytes + c->large_retained_bytes + c->metadata_bytes, "%s: E5",
             when);
  if (!is_emulated()) {
    CHECK_THAT(resident_heap_bytes() <= in_heap, "%s: E5: %zu bytes of the heap are resident, %zu counted", when,
               (size_t)resident_heap_bytes(), (size_t)in_heap);
  }
  CHECK(stats.mapped_bytes >= stats.resident_bytes - stats.metadata_bytes && stats.dirty_bytes == c->dirty_bytes);
}

static void check_all(const char *when) {
  check_live_bytes(when);
  check_heap(when);
  snug_check();
}

/* ---- tests ---- */

static void check_in_child(void) {
  CHECK(snug_counters.pid == (uint32_t)getpid());
  check_all("in a child that did nothing yet");
  free(malloc(3000)); /* its first slow path takes the other threads' caches in */
  check_all("in a child");
  uint64_t random = 99;
  for (int step = 0; step < 20000; step++) random_step(&live[step % THREADS][random_below(&random, LIVE)], &random);
  check_all("in a child at work");
  for (size_t i = 0; i < THREADS * LIVE; i++) {
    free(live[i / LIVE][i % LIVE].start);
    live[i / LIVE][i % LIVE] = (struct block){NULL, 0};
  }
  snug_purge();
  check_all("in a child that freed all");
}

/* Others allocate between the first sum and the last. */
TEST(free_bytes_of_slabs_do_not_wrap) {
  struct snug_counters_class *row = &snug_counters.classes[0][CLASS_COUNT - 1];
  struct snug_stats stats;
  free(malloc(1));
  counter_bump(&row->outstanding_blocks, MIB);
  stats_collect(&stats);
  counter_bump(&row->outstanding_blocks, -(uint64_t)MIB);
  CHECK_THAT(stats.slab_free_bytes == 0, "%zu bytes", (size_t)stats.slab_free_bytes);
}

TEST(the_counters_add_up) {
  options.background = 0;
  pthread_barrier_init(&barrier, NULL, THREADS + 1);
  for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
  pthread_barrier_wait(&barrier);
  note_before();
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&barrier); /* go */
    pthread_barrier_wait(&barrier); /* stop */
    check_all("while all rest");
    if (round == 1) {
      snug_purge();
      check_all("after a purge");
    }
    if (round == 2) {
      uint64_t forks = snug_counters.forks;
      run_in_child(check_in_child);
      CHECK(snug_counters.forks == forks + 1 && snug_counters.pid == (uint32_t)getpid());
      check_all("in the parent of a fork");
    }
  }
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (size_t i = 0; i < THREADS * LIVE; i++) free(live[i / LIVE][i % LIVE].start);
  memset(live, 0, sizeof live);
  snug_purge();
  check_heap("after the end");
  struct snug_stats stats;
  snug_stats(&stats, sizeof stats);
  CHECK_THAT(stats.live_allocated_bytes <= stats_before.live_allocated_bytes, "%zu live, %zu before",
             (size_t)stats.live_allocated_bytes, (size_t)stats_before.live_allocated_bytes);
  CHECK(snug_counters.run_blocks == 0 && snug_counters.large_blocks == 0);
  CHECK_THAT(stats.dirty_bytes == 0 || zone.page_bytes > PAGE_BYTES, "%zu dirty bytes", (size_t)stats.dirty_bytes);
}

static char json[1 << 18];
static size_t json_length;
static void append(void *context, const char *text, size_t length) {
  CHECK(context == json && json_length + length < sizeof json);
  memcpy(json + json_length, text, length);
  json_length += length;
}

static uint64_t json_value(const char *name) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *found = strstr(json, key);
  CHECK_THAT(found != NULL, "no %s", name);
  return found != NULL ? strtoull(found + strlen(key), NULL, 10) : UINT64_MAX;
}

TEST(json_says_the_same) {
  struct snug_stats stats;
  json_length = 0;
  CHECK(snug_stats_json(append, json) == 0 && snug_stats(&stats, sizeof stats) == 0);
  json[json_length] = '\0';
  CHECK(json[0] == '{' && strcmp(json + json_length - 2, "}\n") == 0);
  long depth = 0, quotes = 0;
  for (size_t i = 0; i < json_length; i++) {
    depth += (json[i] == '{') + (json[i] == '[') - (json[i] == '}') - (json[i] == ']');
    quotes += json[i] == '"';
    CHECK(depth > 0 || i >= json_length - 2);
  }
  CHECK(depth == 0 && quotes % 2 == 0 && strstr(json, ",}") == NULL && strstr(json, ",]") == NULL &&
        strstr(json, "{,") == NULL);
  CHECK(json_value("live_allocated_bytes") == stats.live_allocated_bytes &&
        json_value("dirty_bytes") == stats.dirty_bytes);
  CHECK(json_value("metadata_bytes") == stats.metadata_bytes && json_value("pid") == (uint64_t)getpid());
  CHECK(json_value("resident_bytes") == stats.resident_bytes && json_value("thread_caches") == stats.caches);
}

TEST(callers_of_other_versions) {
  struct {
    struct snug_stats stats;
    uint64_t later;
  } newer;
  struct snug_stats stats;
  memset(&newer, 0xff, sizeof newer);
  CHECK(snug_stats(&newer.stats, sizeof newer) == 0 && newer.later == 0);
  memset(&stats, 0xff, sizeof stats);
  CHECK(snug_stats(&stats, 2 * sizeof(uint64_t)) == 0 && stats.cached_bytes == UINT64_MAX &&
        stats.live_allocated_bytes != UINT64_MAX);
  errno = 0;
  CHECK(snug_stats(NULL, sizeof stats) == -1 && errno == EINVAL);
  errno = 0;
  CHECK(snug_stats_json(NULL, NULL) == -1 && errno == EINVAL);
}

TEST(the_page_describes_itself) {
  const struct snug_counters *c = &snug_counters;
  free(malloc(1));
  CHECK(memcmp(c->magic, SNUG_COUNTERS_MAGIC, 16) == 0 && c->version == SNUG_COUNTERS_VERSION);
  CHECK((uintptr_t)c % SNUG_COUNTERS_ALIGN == 0 && c->size_bytes == sizeof *c && c->class_count == CLASS_COUNT);
  CHECK(c->page_size_bytes == zone.page_bytes && strcmp(c->snug_version, SNUG_VERSION) == 0 &&
        c->pid == (uint32_t)getpid());
  CHECK(strstr(c->settings, "background:1,purge_cpu_percent:") != NULL);
  CHECK(c->arena_count >= 1);
}
