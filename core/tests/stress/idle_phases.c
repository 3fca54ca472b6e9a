/* Random phases of growing, thinning out, freeing and idling, in threads, forked children and grandchildren. Whatever
 * came before, an idle process gives back what it does not need: ten seconds later at most its live pages, a tenth more
 * and 4 MB are resident. A live page is one that a live block touches: no allocator can give it back. */
#include "stress.h"

enum {
  BLOCKS_MAX = 1 << 17,
  PAGES_MAX = 1 << 16, /* of the set of pages below; a power of two */
  WORKERS_MAX = 8,
  FILL_BYTES = 48 << 20, /* live at most, roughly */
  SLACK_BYTES = 4000000,
  IDLE_MS = 10000,
  POLL_MS = 50,
  SETTLE_MS = 800,    /* in which a helper thread is done, if the program idled for the first time */
  CROWDED_MS = 60000, /* a helper thread may wait for a CPU, but not forever */
  DEPTH_MAX = 2,
  FORKED_ROUNDS = 4,
};

struct block {
  void *start;
  uint32_t size_bytes;
  uint32_t doomed;
};

static struct block blocks[BLOCKS_MAX];
static uintptr_t page_set[PAGES_MAX];
static size_t baseline;

/* ---- live pages ---- */

/* True if the page was not in the set. */
static int page_set_add(uintptr_t page) {
  size_t i = (size_t)(page * 0x9e3779b97f4a7c15u >> 40) % PAGES_MAX;
  while (page_set[i] != 0 && page_set[i] != page) i = (i + 1) % PAGES_MAX;
  if (page_set[i] == page) return 0;
  page_set[i] = page;
  return 1;
}

static size_t add_pages(const struct block *block, size_t page_bytes) {
  size_t added = 0;
  uintptr_t first = (uintptr_t)block->start / page_bytes;
  uintptr_t last = ((uintptr_t)block->start + block->size_bytes - 1) / page_bytes;
  for (uintptr_t page = first; page <= last; page++) added += (size_t)page_set_add(page);
  return added;
}

static size_t live_bytes(void) {
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), pages = 0;
  memset(page_set, 0, sizeof page_set);
  for (size_t i = 0; i < BLOCKS_MAX; i++)
    if (blocks[i].start != NULL) pages += add_pages(&blocks[i], page_bytes);
  return pages * page_bytes;
}

/* ---- what workers do: each has a share of the blocks, another one each time ---- */

enum deed { FILL, FREE_DOOMED, STOP };

static struct {
  pthread_barrier_t begin, end;
  enum deed deed;
  unsigned workers, turn;
  uint64_t seed;
  unsigned sizes; /* which sizes FILL takes */
} crew;

static size_t random_size(uint64_t *random) {
  static const size_t largest[] = {64, 1024, 30000, 200000, 3000000};
  unsigned kind = crew.sizes < COUNT_OF(largest) ? crew.sizes : (unsigned)random_below(random, COUNT_OF(largest));
  return 1 + random_below(random, largest[kind]);
}

static void fill(unsigned worker) {
  uint64_t random = crew.seed ^ worker * 0x9e3779b97f4a7c15u;
  size_t left = FILL_BYTES / crew.workers;
  for (size_t i = worker; i < BLOCKS_MAX && left > 0; i += crew.workers) {
    if (blocks[i].start != NULL) {
      left -= blocks[i].size_bytes < left ? blocks[i].size_bytes : left;
      continue;
    }
    size_t size_bytes = random_size(&random);
    void *start = hidden(malloc(size_bytes));
    STRESS_CHECK(start != NULL, "no memory for %zu bytes", size_bytes);
    memset(start, 1, size_bytes);
    blocks[i] = (struct block){start, (uint32_t)size_bytes, 0};
    left -= size_bytes < left ? size_bytes : left;
  }
}

static void free_doomed(unsigned worker) {
  for (size_t i = worker; i < BLOCKS_MAX; i += crew.workers) {
    if (blocks[i].start == NULL || !blocks[i].doomed) continue;
    free(blocks[i].start);
    blocks[i].start = NULL;
  }
}

static void *work(void *argument) {
  for (;;) {
    pthread_barrier_wait(&crew.begin);
    unsigned worker = ((unsigned)(uintptr_t)argument + crew.turn) % crew.workers;
    if (crew.deed == STOP) return NULL;
    if (crew.deed == FILL) fill(worker);
    if (crew.deed == FREE_DOOMED) free_doomed(worker);
    pthread_barrier_wait(&crew.end);
  }
}

static void all_do(enum deed deed, uint64_t *random) {
  crew.deed = deed;
  crew.seed = random_next(random);
  crew.turn = (unsigned)random_below(random, crew.workers);
  crew.sizes = (unsigned)random_below(random, 8);
  pthread_barrier_wait(&crew.begin);
  if (deed != STOP) pthread_barrier_wait(&crew.end);
}

/* ---- phases ---- */

/* One block stays of each page. */
static void thin_out(uint64_t *random) {
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  memset(page_set, 0, sizeof page_set);
  for (size_t i = 0; i < BLOCKS_MAX; i++)
    if (blocks[i].start != NULL) blocks[i].doomed = add_pages(&blocks[i], page_bytes) == 0;
  all_do(FREE_DOOMED, random);
}

static void free_some(uint64_t *random) {
  uint64_t keep_one_of = 2u << random_below(random, 10);
  for (size_t i = 0; i < BLOCKS_MAX; i++) blocks[i].doomed = random_below(random, keep_one_of) != 0;
  all_do(FREE_DOOMED, random);
}

static void free_all(uint64_t *random) {
  for (size_t i = 0; i < BLOCKS_MAX; i++) blocks[i].doomed = 1;
  all_do(FREE_DOOMED, random);
}

/* Whether a thread of this process waits for a CPU: then the machine is to blame. */
static int is_crowded(void) {
  double begin = now_s();
  sleep_ms(1);
  return now_s() - begin > 0.02;
}

/* Sleeps until little enough is resident. What it does itself neither allocates nor frees. */
static void be_idle(const char *history, int settles) {
  if (settles) sleep_ms(SETTLE_MS);
  size_t live = live_bytes(), resident = resident_bytes();
  size_t most = baseline + live + live / 10 + SLACK_BYTES;
  for (int waited_ms = 0, crowded_ms = 0; resident > most; resident = resident_bytes()) {
    STRESS_CHECK(waited_ms < IDLE_MS, "%d ms idle after %s (%u threads): %zu KiB resident, %zu before, %zu live",
                 waited_ms, history, crew.workers, resident / KIB, baseline / KIB, live / KIB);
    sleep_ms(POLL_MS);
    if (is_crowded() && crowded_ms < CROWDED_MS) {
      crowded_ms += POLL_MS;
    } else {
      waited_ms += POLL_MS;
    }
  }
}

static void round_of_phases(uint64_t *random) {
  char history[16];
  size_t count = 1 + random_below(random, 3);
  for (size_t i = 0; i < count; i++) {
    static void (*const phases[])(uint64_t *) = {NULL, thin_out, free_some, free_all};
    size_t phase = random_below(random, COUNT_OF(phases));
    history[i] = "gtsf"[phase]; /* grow, thin out, free some, free all */
    if (phase == 0) {
      all_do(FILL, random);
    } else {
      phases[phase](random);
    }
  }
  history[count] = '\0';
  be_idle(history, random_below(random, 3) != 0);
}

static void begin_work(pthread_t threads[WORKERS_MAX], uint64_t *random) {
  crew.workers = 1 + (unsigned)random_below(random, WORKERS_MAX);
  pthread_barrier_init(&crew.begin, NULL, crew.workers + 1);
  pthread_barrier_init(&crew.end, NULL, crew.workers + 1);
  for (unsigned i = 0; i < crew.workers; i++)
    STRESS_CHECK(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0, "no thread");
}

static void end_work(pthread_t threads[WORKERS_MAX], uint64_t *random) {
  all_do(STOP, random);
  for (unsigned i = 0; i < crew.workers; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&crew.begin);
  pthread_barrier_destroy(&crew.end);
}

static void run_rounds(uint64_t *random, unsigned depth, uint64_t rounds);

/* The child has the blocks of all its parent's threads. */
static void fork_one(uint64_t *random, unsigned depth) {
  pid_t child = fork();
  STRESS_CHECK(child >= 0, "fork: errno %d", errno);
  if (child == 0) {
    uint64_t own = random_next(random) ^ 0x5bd1e995u;
    run_rounds(&own, depth + 1, FORKED_ROUNDS);
    if (snug_check != NULL) snug_check();
    _exit(0);
  }
  int status = 0;
  pid_t waited;
  do waited = waitpid(child, &status, 0);
  while (waited < 0 && errno == EINTR);
  STRESS_CHECK(waited == child && status == 0, "child's wait status is 0x%x", status);
}

static void run_rounds(uint64_t *random, unsigned depth, uint64_t rounds) {
  pthread_t threads[WORKERS_MAX];
  begin_work(threads, random);
  for (uint64_t i = 0; i < rounds && stress_goes_on(); i++) {
    round_of_phases(random);
    if (depth < DEPTH_MAX && random_below(random, 6) == 0) fork_one(random, depth);
  }
  free_all(random);
  be_idle("the last", 0);
  end_work(threads, random);
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  if (!snug_is_active() || getenv("TEST_EMULATED")) {
    test_print(1, "skip idle_phases: a question to snug, and under an emulator the resident size is the emulator's\n");
    return 0;
  }
  if (freed_blocks_wait()) {
    test_print(1, "skip idle_phases: those that wait keep a page each\n");
    return 0;
  }
  memset(blocks, 1, sizeof blocks);
  memset(blocks, 0, sizeof blocks);
  memset(page_set, 1, sizeof page_set);
  baseline = resident_bytes();
  uint64_t random = stream_seed(0);
  while (stress_goes_on()) run_rounds(&random, 0, 4);
  return stress_passed("idle_phases");
}
