/* huge_test.c: where a large heap gets huge pages, and when they are broken. The heap is the test's own. */
#include "../../src/sys.c"

/* What the kernel is told, and what it answers. */
static size_t window_first_page, window_pages; /* where it may make huge pages; 0 pages: nowhere */
static size_t calls_of_break;
static size_t forgone_page; /* where the kernel was last told to make none in a part of that */
static bool can_break = true, touches = true;
static const char *setting = "always [madvise] never\n";
static uint64_t now_ns = UINT64_C(1000000000000);
static void note_huge_pages(void *start, size_t length_bytes);
static void note_no_huge_pages(void *start, size_t length_bytes);
static bool note_break(void *page);
static bool find_resident(void *start, size_t length_bytes, unsigned char resident[]);
static size_t read_setting(const char *path, char *text, size_t capacity_bytes);
static uint64_t own_clock(void) { return now_ns; }
#define sys_huge_pages note_huge_pages
#define sys_no_huge_pages note_no_huge_pages
#define sys_break_huge_page note_break
#define sys_find_resident find_resident
#define sys_read_file read_setting
#define sys_coarse_time_ns own_clock
#include "above_sys.h"
#include "unit.h"
#undef sys_huge_pages
#undef sys_no_huge_pages
#undef sys_break_huge_page

static void note_huge_pages(void *start, size_t length_bytes) {
  CHECK_THAT(window_pages == 0, "%zu pages may get huge pages already", window_pages);
  window_first_page = page_index(start);
  window_pages = length_bytes / PAGE_BYTES;
  sys_huge_pages(start, length_bytes);
}

static void note_no_huge_pages(void *start, size_t length_bytes) {
  size_t first = page_index(start);
  if (zone.base != NULL && first == window_first_page && length_bytes / PAGE_BYTES == window_pages) {
    window_pages = 0;
  } else if (zone.base != NULL && length_bytes == CHUNK_PAGES * PAGE_BYTES) {
    forgone_page = first;
  }
  sys_no_huge_pages(start, length_bytes);
}

static bool note_break(void *page) {
  calls_of_break++;
  sys_break_huge_page(page);
  return can_break;
}

static bool find_resident(void *start, size_t length_bytes, unsigned char resident[]) {
  (void)start;
  memset(resident, touches, length_bytes / PAGE_BYTES);
  return true;
}

static size_t read_setting(const char *path, char *text, size_t capacity_bytes) {
  const char *content = strcmp(path, "/proc/self/status") == 0                             ? "Cpus_allowed:\t3\n"
                        : strcmp(path, "/sys/kernel/mm/transparent_hugepage/enabled") == 0 ? setting
                                                                                           : "";
  snprintf(text, capacity_bytes, "%s", content);
  return strlen(text);
}

enum { MILLISECOND = 1000000, CHUNK_RUNS = CHUNK_PAGES / PAGES_RUN_MAX, RUNS = 500 * CHUNK_RUNS };
static size_t runs[RUNS]; /* first pages of runs of a quarter of a chunk */
static size_t run_count;

static void take_run(void) {
  bool clean;
  REQUIRE(run_count < RUNS);
  runs[run_count] = pages_take(PAGES_RUN_MAX, PAGES_RUN_MAX, &clean);
  REQUIRE(runs[run_count] != PAGE_NONE);
  run_count++;
}

/* Nothing is touched: the heap is large, and memory is not needed. */
static void take_until(size_t pages_count) {
  while (zone_pages() < pages_count) take_run();
}

static void give_runs(void) {
  while (run_count != 0) pages_give(runs[--run_count], PAGES_RUN_MAX, 0);
}

static void tick(void) {
  now_ns += 100 * MILLISECOND;
  tick_now(this_thread.own, true);
}

static void start(uint32_t thp) {
  free(malloc(1)); /* this thread has its cache */
  options.background = 0;
  options.thp = thp;
  now_ns += 10000ull * MILLISECOND;
}

/* The heap just grew into a window of huge pages. */
static void grow_huge(void) {
  start(THP_GROWTH);
  take_until(HUGE_HEAP_PAGES);
  tick();
  while (window_pages == 0) take_run();
}

static bool is_for_4k(void) { return zone.page_bytes == PAGE_BYTES; }

static void check_growth(void) {
  start(THP_GROWTH);
  while (zone_pages() < HUGE_HEAP_PAGES) {
    take_run();
    tick();
  }
  CHECK(huge_chunks() == 0 && window_pages == 0); /* a small heap */
  tick();
  size_t before = zone_pages();
  while (zone_pages() == before) take_run();
  if (!is_for_4k()) {
    CHECK(huge_chunks() == 0 && window_pages == 0);
    return;
  }
  CHECK_THAT(window_first_page == before && before + window_pages + CHUNK_PAGES == zone_pages(),
             "from %zu to %zu, huge from %zu on %zu", before, zone_pages(), window_first_page, window_pages);
  CHECK(huge_chunks() == window_pages / CHUNK_PAGES && huge_may_be_at(before) && !huge_may_be_at(before - 1) &&
        huge_may_be_at(zone_pages() - CHUNK_PAGES - 1) && !huge_may_be_at(zone_pages() - CHUNK_PAGES) &&
        !huge_may_be_at(zone_pages()));
  size_t first = window_first_page, chunks = huge_chunks();
  before = zone_pages();
  while (zone_pages() == before) take_run();
  CHECK(window_first_page == before && first != before); /* the first one was closed: else the note would say so */
  CHECK(huge_chunks() == chunks + window_pages / CHUNK_PAGES && huge_may_be_at(first));
}

TEST(a_large_heap_gets_huge_pages_where_it_grows) { run_in_child(check_growth); }

static void check_not_touched(void) {
  start(THP_GROWTH);
  touches = false;
  take_until(HUGE_HEAP_PAGES);
  for (int i = 0; i < 100; i++) {
    take_run();
    tick();
  }
  CHECK(huge_chunks() == 0 && window_pages == 0);
  touches = true;
  tick(); /* it did not grow: nobody asks again */
  size_t before = zone_pages();
  while (zone_pages() == before) take_run();
  CHECK(window_pages == 0);
  tick();
  before = zone_pages();
  while (zone_pages() == before) take_run();
  CHECK(window_pages != 0 || !is_for_4k());
  touches = false;
  tick();
  before = zone_pages();
  while (zone_pages() == before) take_run();
  CHECK(window_pages == 0);
}

TEST(what_a_program_does_not_touch_gets_none) { run_in_child(check_not_touched); }

static void check_never(void) {
  start(THP_GROWTH);
  setting = "always madvise [never]\n";
  take_until(HUGE_HEAP_PAGES);
  for (int i = 0; i < 100; i++) {
    take_run();
    tick();
  }
  CHECK(huge_chunks() == 0 && window_pages == 0);
}

static void check_old_kernel(void) {
  start(THP_GROWTH);
  can_break = false;
  take_until(HUGE_HEAP_PAGES);
  for (int i = 0; i < 100; i++) {
    take_run();
    tick();
  }
  CHECK(huge_chunks() == 0 && window_pages == 0);
}

static void check_setting_never(void) {
  start(THP_NEVER);
  take_until(HUGE_HEAP_PAGES);
  for (int i = 0; i < 100; i++) {
    take_run();
    tick();
  }
  CHECK(huge_chunks() == 0 && window_pages == 0);
}

TEST(none_where_the_kernel_makes_none) { run_in_child(check_never); }
TEST(none_where_they_could_not_be_broken) { run_in_child(check_old_kernel); }
TEST(none_where_the_setting_forbids_them) { run_in_child(check_setting_never); }

/* Bytes of huge pages in the chunk of a page, as the kernel says. */
static size_t huge_bytes_at(size_t page) {
  uintptr_t wanted = (uintptr_t)page_address(page), from = 0, end = 0;
  size_t kib = 0;
  char line[256];
  FILE *file = fopen("/proc/self/smaps", "r");
  REQUIRE(file != NULL);
  while (fgets(line, sizeof line, file) != NULL) {
    size_t first, last;
    if (sscanf(line, "%zx-%zx ", &first, &last) == 2) from = first, end = last;
    size_t value;
    if (sscanf(line, "AnonHugePages: %zu kB", &value) == 1 && from <= wanted && wanted < end) kib = value;
  }
  fclose(file);
  return kib * KIB;
}

static void check_break(void) {
  grow_huge();
  size_t first = window_first_page;
  memset(page_address(first), 7, CHUNK_PAGES * PAGE_BYTES);
  size_t huge_bytes = huge_bytes_at(first);
  huge_allow_breaks(0);
  huge_take_breaks();
  calls_of_break = 0;
  size_t chunks = huge_chunks();
  CHECK(!pages_break_huge(first) && huge_may_be_at(first) && calls_of_break == 0); /* not allowed */
  huge_allow_breaks(1);
  purge_stop(true);
  CHECK(!pages_break_huge(first) && huge_may_be_at(first) && calls_of_break == 0); /* somebody forks */
  purge_stop(false);
  CHECK(pages_break_huge(first) && !huge_may_be_at(first) && huge_chunks() == chunks - 1 && calls_of_break == 2);
  CHECK(pages_break_huge(first) && calls_of_break == 2); /* there are none any more, */
  CHECK(forgone_page == first);                          /* and no new ones come, although the heap has not grown */
  CHECK(!pages_break_huge(first + CHUNK_PAGES));         /* one was allowed */
  CHECK(huge_take_breaks() == 1 && huge_take_breaks() == 0);
  CHECK_THAT(huge_bytes_at(first) == 0, "%zu bytes of huge pages of %zu", huge_bytes_at(first), huge_bytes);
  for (size_t i = 0; i < CHUNK_PAGES * PAGE_BYTES; i++) {
    if (page_address(first)[i] != 7) CHECK_THAT(false, "byte %zu is %d", i, page_address(first)[i]);
  }
  sys_purge(page_address(first), CHUNK_PAGES * PAGE_BYTES);
  page_address(first)[0] = 7;
  CHECK_THAT(huge_bytes_at(first) == 0, "%zu bytes of huge pages again", huge_bytes_at(first));
}

TEST(a_break_leaves_small_pages_with_their_contents) {
  if (sys_page_size_bytes() != PAGE_BYTES || is_emulated()) SKIP("no huge pages of 2 MiB");
  run_in_child(check_break);
}

/* Free pages of chunks with huge pages stay, until they are a 32nd of the heap. */
static void check_pages(void) {
  grow_huge();
  options.purge_cpu_percent = 1;
  size_t before = zone_pages();
  while (zone_pages() == before) take_run();
  pages_give(runs[--run_count], PAGES_RUN_MAX, 0); /* the only dirty pages: all above is clean */
  size_t last = run_count;
  while (!huge_may_be_at(runs[last - 1])) last--;
  size_t given = runs[last - 1];
  CHECK(given != PAGE_NONE && huge_may_be_at(given));
  runs[last - 1] = runs[--run_count];
  pages_give(given, PAGES_RUN_MAX, 0);
  for (int i = 0; i < 50; i++) tick();
  CHECK(bits_test(zone.dirty_bits, given) && huge_may_be_at(given));
  size_t chunks = huge_chunks();
  size_t kept = run_count - (pages_used() / 24) / PAGES_RUN_MAX;
  while (run_count > kept) pages_give(runs[--run_count], PAGES_RUN_MAX, 0);
  uint64_t ticks_before = snug_counters.ticks;
  for (int i = 0; i < 600 && bits_test(zone.dirty_bits, given); i++) tick();
  CHECK_THAT(huge_chunks() < chunks, "%zu of %zu chunks are not broken", huge_chunks(), chunks);
  int64_t spent = (int64_t)(chunks - huge_chunks()) * (int64_t)BREAK_COST_NS;
  int64_t earned = (int64_t)(snug_counters.ticks - ticks_before) * MILLISECOND + 2 * TOKENS_MAX_MS * MILLISECOND;
  CHECK_THAT(spent <= earned, "%lld ns for breaks, earned %lld", (long long)spent, (long long)earned);
  CHECK(pages_dirty() <= pages_used() / 32 + 2 * cap_pages());
  options.purge_cpu_percent = 100;
  while (run_count > kept / 2) pages_give(runs[--run_count], PAGES_RUN_MAX, 0);
  snug_purge();
  CHECK(pages_dirty() == 0);
  snug_check();
}

TEST(pages_beside_huge_ones_go_when_they_are_many) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_pages);
}

/* The same of pages inside slabs. */
static void check_slabs(void) {
  enum { BLOCKS = 1200, BYTES = 8192 };
  static char *blocks[BLOCKS];
  grow_huge();
  options.purge_cpu_percent = 0;
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(BYTES), 1, BYTES);
  size_t in_huge = 0;
  for (size_t i = 0; i < BLOCKS; i++) in_huge += huge_may_be_at(page_index(blocks[i]));
  CHECK_THAT(in_huge > BLOCKS / 2, "%zu of %d blocks are where huge pages are", in_huge, BLOCKS);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % 7 != 0) free(blocks[i]);
  }
  cache_empty_own();
  lock_take(&purge.lock, RANK_PURGE);
  huge_allow_breaks(0);
  slab_purge(0, false, slab_record_count(), SIZE_MAX); /* those elsewhere */
  size_t purged = slab_purge(0, false, slab_record_count(), SIZE_MAX), touched = slab_touched_pages();
  CHECK_THAT(purged == 0 && touched >= in_huge, "%zu pages went, %zu are touched", purged, touched);
  huge_allow_breaks(1);
  size_t first = slab_purge(0, false, slab_record_count(), SIZE_MAX);
  CHECK_THAT(first != 0 && first < 2 * CHUNK_PAGES, "%zu pages of one chunk", first);
  huge_allow_breaks(SIZE_MAX);
  size_t rest = slab_purge(0, false, slab_record_count(), SIZE_MAX);
  CHECK_THAT(first + rest >= in_huge, "%zu and %zu pages of %zu blocks", first, rest, in_huge);
  CHECK(slab_touched_pages() < touched);
  lock_give(&purge.lock, RANK_PURGE);
  for (size_t i = 0; i < BLOCKS; i += 7) {
    CHECK(blocks[i][0] == 1 && blocks[i][BYTES - 1] == 1);
    free(blocks[i]);
  }
  snug_check();
}

TEST(pages_in_slabs_beside_huge_ones_wait_for_a_break) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_slabs);
}

static void check_asked(void) {
  grow_huge();
  for (size_t i = 0; i < 8; i++) pages_give(runs[--run_count], PAGES_RUN_MAX, 0);
  options.purge_cpu_percent = 1;
  snug_purge();
  CHECK(pages_dirty() == 0); /* who asks gets all of it, at any price */
  give_runs();
  snug_purge();
  CHECK(pages_dirty() == 0);
  snug_check();
}

TEST(a_purge_that_is_asked_for_breaks_all) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_asked);
}

/* Else a janitor that finds enough to do would find nothing that it may do, again and again. */
static void check_janitor(void) {
  grow_huge();
  for (int i = 0; i < 4; i++) take_run();
  for (int i = 0; i < 4; i++) pages_give(runs[--run_count], PAGES_RUN_MAX, 0); /* more than a janitor's least */
  size_t used = pages_used(), resident = 16 * pages_dirty();                   /* the rest went inside slabs */
  counter_set(&snug_counters.slab_purged_bytes, (used - resident) * PAGE_BYTES);
  REQUIRE(pages_dirty() < pages_used() >> HUGE_KEEP_SHIFT);
  CHECK(pages_dirty() * PAGE_BYTES > janitor_bytes() && breaks_pay());
  counter_set(&snug_counters.slab_purged_bytes, 0);
  CHECK(pages_dirty() * PAGE_BYTES <= janitor_bytes() && !breaks_pay());
}

TEST(breaks_pay_where_a_janitor_does) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_janitor);
}

TEST(what_a_tick_earns_is_enough_for_a_break) {
  options.purge_cpu_percent = 1;
  purge.tokens_ns = 99 * MILLISECOND / 100;
  CHECK(affordable_breaks() == 1);
  purge.tokens_ns = BREAK_COST_NS;
  CHECK(affordable_breaks() == 1);
  purge.tokens_ns = 0;
  CHECK(affordable_breaks() == 0);
}

/* The first of the runs that make up a chunk with huge pages, or run_count. */
static size_t find_huge_chunk(void) {
  for (size_t i = 0; i + CHUNK_RUNS <= run_count; i++) {
    size_t k = 0;
    while (k < CHUNK_RUNS && runs[i + k] == runs[i] + k * PAGES_RUN_MAX) k++;
    if (k == CHUNK_RUNS && runs[i] % CHUNK_PAGES == 0 && huge_may_be_at(runs[i])) return i;
  }
  return run_count;
}

/* A chunk that is free goes at once, and its huge pages whole. */
static void check_whole(void) {
  grow_huge();
  size_t before = zone_pages();
  while (zone_pages() == before) take_run();
  size_t at = find_huge_chunk(), chunks = huge_chunks();
  REQUIRE(at < run_count);
  size_t first = runs[at];
  memset(page_address(first), 7, CHUNK_PAGES * PAGE_BYTES);
  pages_purge(0, false);
  huge_allow_breaks(0);
  huge_take_breaks();
  calls_of_break = 0;
  for (size_t k = 1; k < CHUNK_RUNS; k++) pages_give(runs[at + k], PAGES_RUN_MAX, 0);
  CHECK(pages_purge(0, false) == 0 && huge_chunks() == chunks); /* the rest of it is in use */
  pages_age();
  pages_give(first, PAGES_RUN_MAX, 0);
  CHECK(pages_purge(0, true) == 0 && huge_chunks() == chunks); /* a part was free for less than a tick */
  pages_age();
  CHECK(pages_purge(0, true) == CHUNK_PAGES && pages_dirty() == 0);
  CHECK(huge_chunks() == chunks - 1 && !huge_may_be_at(first) && calls_of_break == 0 && forgone_page == first);
  memset(page_address(first), 7, PAGE_BYTES);
  CHECK_THAT(huge_bytes_at(first) == 0, "%zu bytes of huge pages again", huge_bytes_at(first));
  snug_check();
}

TEST(a_chunk_that_is_free_goes_without_a_break) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_whole);
}

/* A fork holds no purge lock yet when it gives back what it can, and would wait for the breaks. */
static void check_fork(void) {
  grow_huge();
  snug_purge(); /* as many breaks as there may be; the zone ends after the last page in use */
  for (size_t growths = 0, before = zone_pages(); growths < 2; growths++, before = zone_pages()) {
    while (zone_pages() == before) take_run();
  }
  size_t huge_page = window_first_page, chunks = huge_chunks();
  REQUIRE(huge_may_be_at(huge_page) && chunks != 0);
  huge_allow_breaks(SIZE_MAX);
  huge_take_breaks();
  size_t given = 0, small = 0;
  while (run_count != 0 && given < 2 * CHUNK_RUNS) {
    size_t run = runs[--run_count];
    if (run % CHUNK_PAGES == 0) continue; /* in use: no chunk is free */
    given += huge_may_be_at(run);
    small += !huge_may_be_at(run);
    pages_give(run, PAGES_RUN_MAX, 0);
  }
  size_t dirty = pages_dirty();
  CHECK(pages_purge_before_fork() == small * PAGES_RUN_MAX);
  CHECK(pages_dirty() == dirty - small * PAGES_RUN_MAX && pages_purgeable() == pages_dirty());
  CHECK(huge_take_breaks() == 0 && huge_chunks() == chunks);
  snug_check();
}

TEST(a_fork_breaks_none) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_fork);
}

/* Another may live where the heap was. */
static void check_shrink(void) {
  grow_huge();
  size_t first = window_first_page;
  give_runs();
  snug_purge();
  pages_shrink();
  CHECK(zone_pages() < first && huge_chunks() == 0 && huge.window_first == huge.window_end);
  CHECK(window_pages == 0);
  take_until(HUGE_HEAP_PAGES / 8 * 7); /* in the same place */
  CHECK(huge_chunks() == 0 && window_pages == 0);
}

TEST(what_is_given_back_whole_has_none) {
  if (sys_page_size_bytes() != PAGE_BYTES) SKIP("no huge pages of 2 MiB");
  run_in_child(check_shrink);
}

static void check_always(void) {
  start(THP_ALWAYS);
  huge_start(zone_pages());
  CHECK(huge_chunks() == zone_pages() / CHUNK_PAGES || !is_for_4k());
  take_until(zone_pages() + 8 * CHUNK_PAGES);
  CHECK(huge_chunks() == zone_pages() / CHUNK_PAGES || !is_for_4k());
  give_runs();
  snug_purge();
  CHECK(pages_dirty() == 0);
  snug_check();
}

TEST(with_thp_1_all_of_the_heap_may_have_them) { run_in_child(check_always); }
