/* purge_test.c: the cap on dirty pages, the budget of time for purging, what a janitor is worth, idle moments. */
#include "purging.h"

TEST(tokens_are_a_share_of_the_time_that_passes) {
  start_again(2);
  now_ns += 100 * MILLISECOND;
  earn_tokens();
  CHECK_THAT(purge.tokens_ns == 2 * MILLISECOND, "%lld", (long long)purge.tokens_ns);
  earn_tokens(); /* no time, no tokens */
  CHECK(purge.tokens_ns == 2 * MILLISECOND);
  now_ns += 50 * MILLISECOND;
  earn_tokens();
  CHECK(purge.tokens_ns == 3 * MILLISECOND);
  now_ns += 3600000ull * MILLISECOND; /* an hour of rest buys no hour of purging */
  earn_tokens();
  CHECK(purge.tokens_ns == (int64_t)TOKENS_MAX_MS * MILLISECOND);
  now_ns -= 1000 * MILLISECOND; /* coarse clocks may lag behind on another CPU */
  earn_tokens();
  CHECK(purge.tokens_ns == (int64_t)TOKENS_MAX_MS * MILLISECOND);
  now_ns += 1000 * MILLISECOND;
  options.purge_cpu_percent = 0;
  purge.tokens_ns = 0;
  now_ns += 1000 * MILLISECOND;
  earn_tokens();
  CHECK(purge.tokens_ns == 0);
}

TEST(without_a_budget_nothing_is_purged) {
  start_again(0);
  make_dirty(1024);
  size_t dirty = pages_dirty();
  for (int i = 0; i < 100; i++) {
    now_ns += 10 * MILLISECOND;
    purge_excess();
    tick_now(this_thread.own, true);
  }
  CHECK_THAT(pages_dirty() == dirty, "%zu dirty pages of %zu", pages_dirty(), dirty);
  CHECK(purge_due_pages > pages_dirty()); /* so that not every free comes here */
  start_again(2);
}

TEST(with_all_the_time_dirty_pages_stay_below_the_cap) {
  start_again(100);
  make_dirty(1024);
  uint64_t purges = snug_counters.purges, purged = snug_counters.purged_bytes;
  size_t dirty = pages_dirty();
  purge_excess();
  CHECK_THAT(pages_dirty() <= cap_pages(), "%zu dirty pages, cap %zu", pages_dirty(), cap_pages());
  CHECK(snug_counters.purges == purges + 1 &&
        snug_counters.purged_bytes - purged == (dirty - pages_dirty()) * PAGE_BYTES);
  CHECK(purge_due_pages == cap_pages() && snug_counters.dirty_cap_bytes == cap_pages() * PAGE_BYTES);
  dirty = pages_dirty();
  purge_excess(); /* below the cap: nothing to do */
  CHECK(pages_dirty() == dirty);
}

TEST(a_budget_buys_as_many_pages_as_it_pays_for) {
  start_again(2);
  make_dirty(2 * YOUNG_MIN_PAGES);
  size_t dirty = pages_dirty();
  purge_excess(); /* no tokens yet */
  CHECK(pages_dirty() == dirty && purge_due_pages > dirty);
  now_ns += 10 * MILLISECOND; /* 200 us: 133 pages */
  purge_excess();
  size_t gone = dirty - pages_dirty(), paid = 10 * MILLISECOND / 50 / PAGE_COST_NS;
  CHECK_THAT(gone >= paid && gone < paid + 1024, "%zu pages for the price of %zu", gone, paid);
  CHECK_THAT(purge.tokens_ns == 200000 - (int64_t)gone * PAGE_COST_NS, "%lld tokens", (long long)purge.tokens_ns);
}

TEST(what_was_freed_a_moment_ago_waits_for_the_next_tick) {
  start_again(2);
  void *blocks[80];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = malloc(500 * KIB);
  size_t young = cap_pages() + pages_used() * YOUNG_HEAP_PERCENT / 200; /* above the cap, below urgent */
  make_dirty(young);
  size_t dirty = pages_dirty();
  CHECK(dirty > cap_pages() && dirty < urgent_pages());
  now_ns += 3600000ull * MILLISECOND; /* it could be paid */
  purge_excess();
  CHECK(pages_dirty() == dirty && purge_due_pages == urgent_pages());
  CHECK_THAT(snug_counters.dirty_cap_bytes == cap_pages() * PAGE_BYTES, "%zu bytes, cap %zu pages",
             (size_t)snug_counters.dirty_cap_bytes, cap_pages());
  tick_now(this_thread.own, true);
  CHECK_THAT(pages_dirty() == dirty, "%zu young pages went at the first tick", dirty - pages_dirty());
  now_ns += TICK_NS;
  tick_now(this_thread.own, true);
  CHECK_THAT(pages_dirty() <= cap_pages(), "%zu dirty pages, cap %zu", pages_dirty(), cap_pages());
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
}

/* Whether it is wanted, and whether threads may start. None does: nothing here comes by maintain(). */
static void set_janitor(bool is_wanted, bool may_start) {
  purge.early_ticks = EARLY_TICKS;
  options.background = is_wanted;
  rights.privileged = false;
  rights.had = may_start ? rights.had | RIGHT_THREAD : rights.had & ~(uint32_t)RIGHT_THREAD;
}

/* Of a small heap 3 % are less than a request or a short loop takes and frees. */
TEST(bursts_of_a_small_heap_take_again_what_they_freed) {
  start_again(1);
  set_janitor(true, true);
  enum { BURST_PAGES = 1200 };
  make_dirty(BURST_PAGES);
  size_t purged = purged_pages;
  for (int i = 0; i < 20; i++) {
    now_ns += TICK_NS; /* a tick pays for half of a burst */
    tick_now(this_thread.own, true);
    make_dirty(BURST_PAGES);
    purge_excess();
  }
  CHECK_THAT(purged_pages == purged, "%zu pages went, as many as faults", purged_pages - purged);
  set_janitor(false, false);
}

TEST(what_waits_for_a_tick_has_a_bound) {
  start_again(1);
  set_janitor(true, true);
  now_ns += 3600000ull * MILLISECOND; /* it can be paid */
  make_dirty(2 * YOUNG_MIN_PAGES);
  size_t dirty = pages_dirty();
  purge_excess();
  CHECK_THAT(pages_dirty() < dirty, "%zu dirty pages", pages_dirty());
  set_janitor(false, false);
}

/* How many pages stay dirty, of a burst, where so much of the container's 100 MB is held; NULL: it has no limit. */
enum { WAITING = YOUNG_MIN_PAGES / 2 };
static size_t pages_that_wait(const char *held, bool is_wanted, bool may_start) {
  start_again(1);
  set_janitor(is_wanted, may_start);
  now_ns += 3600000ull * MILLISECOND; /* it can be paid */
  make_dirty(WAITING);
  size_t dirty = pages_dirty();
  if (held != NULL) {
    memory_current = held;
    purge_look_at_limit(true);
  }
  purge_excess();
  set_janitor(false, false);
  return pages_dirty() == dirty ? WAITING : pages_dirty();
}

TEST(what_waits_for_a_tick_leaves_room_for_others) {
  CHECK(pages_that_wait(NULL, true, true) == WAITING);
  CHECK(pages_that_wait("40000000\n", true, true) == WAITING);
  size_t room_pages = 15000000 / PAGE_BYTES;
  CHECK_THAT(pages_that_wait("85000000\n", true, true) <= room_pages / 8 + cap_pages(), "%zu wait", pages_dirty());
  CHECK_THAT(pages_that_wait("95000000\n", true, true) <= cap_pages() * 2, "%zu wait near the limit", pages_dirty());
}

TEST(nothing_waits_for_the_first_ticks) {
  start_again(1);
  set_janitor(true, true);
  purge.early_ticks = 0; /* as in a program that has just begun */
  for (int i = 0; i < EARLY_TICKS; i++) {
    now_ns += 3600000ull * MILLISECOND; /* it can be paid */
    make_dirty(WAITING);
    purge_excess();
    CHECK_THAT(pages_dirty() < WAITING, "%zu dirty pages after %d ticks", pages_dirty(), i);
    purge_above_cap(false);
  }
  make_dirty(WAITING);
  size_t dirty = pages_dirty();
  purge_excess();
  CHECK_THAT(pages_dirty() == dirty, "%zu dirty pages of %zu", pages_dirty(), dirty);
  set_janitor(false, false);
}

TEST(nothing_waits_for_a_tick_where_no_janitor_takes_it) {
  CHECK(pages_that_wait(NULL, false, true) < WAITING);
  CHECK(pages_that_wait(NULL, true, false) < WAITING);
  CHECK(pages_that_wait(NULL, true, true) == WAITING);
}

TEST(the_cap_follows_the_heap) {
  start_again(2);
  CHECK(pages_used() >= SMALL_HEAP_PAGES || cap_pages() == CAP_SMALL_PAGES);
  void *blocks[80];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = malloc(500 * KIB);
  size_t used = pages_used();
  CHECK(used >= SMALL_HEAP_PAGES && cap_pages() == CAP_PAGES + used / 100);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
}

/* Near the limit free pages pay for growth that they can't serve, at any price; not for what takes them. */
TEST(growth_near_the_limit_is_paid_with_dirty_pages) {
  start_again(0);
  make_dirty(2048);
  memory_current = "95000000\n"; /* room for 1,220 pages, of which half may go */
  purge_look_at_limit(false);
  purge_above_cap(false);
  CHECK(purge_due_pages == CAP_SMALL_PAGES && purge.excess_pages > dirty_pages());
  size_t purged = purged_pages, most = pressure_most_pages();
  void *small = malloc(500 * KIB); /* of dirty pages */
  CHECK_THAT(purged_pages == purged && resident_pages() < most, "%zu pages", purged_pages - purged);
  void *within = malloc(2 * MIB);
  CHECK_THAT(purged_pages == purged && resident_pages() < most, "%zu pages", purged_pages - purged);
  uint64_t limit_purges = snug_counters.limit_purges;
  void *beyond = malloc(4 * MIB);
  CHECK_THAT(purged_pages - purged >= (6 * MIB) / PAGE_BYTES - 611 && purged_pages - purged < 2048, "%zu pages",
             purged_pages - purged);
  CHECK(resident_pages() <= most && snug_counters.limit_purges == limit_purges + 1);
  purge_forget_limit();
  purge_above_cap(false);
  CHECK(purge_due_pages == purge.excess_pages);
  free(small);
  free(within);
  free(beyond);
}

TEST(retained_mappings_count_and_go_first) {
  start_again(100);
  free(malloc(8 * MIB));
  CHECK_THAT(large_retained_pages() == 0, "%zu pages are retained above the cap", large_retained_pages());
  start_again(0);
  free(malloc(8 * MIB));
  CHECK(large_retained_pages() == 2048 && dirty_pages() >= 2048);
  start_again(2);
  CHECK(large_retained_pages() == 0); /* malloc_trim gives all back */
}

/* A buffer for each request: neither it nor the cap's other pages go at ticks while it is wanted again. */
TEST(a_mapping_that_comes_and_goes_stays_mapped) {
  start_again(1);
  free(malloc(2 * MIB - 64 * KIB));
  uint64_t unmaps = snug_counters.large_unmaps;
  for (int i = 0; i < 20; i++) {
    for (int j = 0; j < 3; j++) free(malloc(2 * MIB - 64 * KIB));
    now_ns += TICK_NS;
    tick_now(this_thread.own, true);
  }
  CHECK_THAT(snug_counters.large_unmaps == unmaps, "%zu times", (size_t)(snug_counters.large_unmaps - unmaps));
  now_ns += TICK_NS;
  tick_now(this_thread.own, true);
  CHECK_THAT(large_retained_pages() == 0, "%zu pages are retained for nobody", large_retained_pages());
}

TEST(a_purger_at_work_is_not_waited_for) {
  start_again(100);
  make_dirty(256);
  size_t dirty = pages_dirty();
  lock_take(&purge.lock, RANK_PURGE);
  purge_excess();
  tick_now(this_thread.own, true);
  CHECK(pages_dirty() == dirty);
  lock_give(&purge.lock, RANK_PURGE);
  purge_excess();
  CHECK(pages_dirty() < dirty);
}

TEST(pages_inside_slabs_cost_tokens_too) {
  start_again(1);
  enum { COUNT = 700, SIZE = 8192 };
  static void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) blocks[i] = memset(malloc(SIZE), 1, SIZE);
  for (size_t i = 0; i < COUNT; i++) {
    if (i % 7 != 0) free(blocks[i]);
  }
  cache_empty_own();
  for (int i = 0; i < 3; i++) slab_tick();
  now_ns += 20 * MILLISECOND; /* 200 us: 133 pages */
  uint64_t purged = snug_counters.slab_purged_bytes;
  ticks.count = 1; /* not the one that looks at small classes */
  tick_now(this_thread.own, true);
  size_t gone = (size_t)(snug_counters.slab_purged_bytes - purged) / PAGE_BYTES;
  size_t paid = 20 * MILLISECOND / 100 / PAGE_COST_NS, slab_pages = 64;
  CHECK_THAT(gone <= paid + slab_pages && (gone != 0 || zone.page_bytes > SIZE), "%zu pages for the price of %zu", gone,
             paid);
  for (size_t i = 0; i < COUNT; i += 7) free(blocks[i]);
  snug_check();
}

TEST(runs_that_come_and_go_are_activity) {
  start_again(2);
  free(malloc(100 * KIB));
  free(malloc(5 * MIB));
  uint64_t before = purge_activity();
  CHECK(purge_activity() == before);
  free(malloc(100 * KIB));
  CHECK(purge_activity() != before);
  before = purge_activity();
  free(malloc(5 * MIB)); /* the retained one */
  CHECK(purge_activity() != before);
}

/* ---- what a janitor is worth ---- */

enum { SPARSE = 40000, SPARSE_BYTES = 240 };
static void *sparse[SPARSE];

/* About 10 MB of small blocks. */
static void fill_slabs(void) {
  for (size_t i = 0; i < SPARSE; i++) sparse[i] = memset(malloc(SPARSE_BYTES), 1, SPARSE_BYTES);
}

static void keep_one_of(size_t count) {
  for (size_t i = 0; i < SPARSE; i++) {
    if (sparse[i] == NULL || i % count == 0) continue;
    free(sparse[i]);
    sparse[i] = NULL;
  }
  cache_empty_own();
}

/* The first idle moment finds a block in each page, and can give nothing back. That says nothing about the second. */
TEST(what_could_not_go_once_can_go_later) {
  start_again(0);
  fill_slabs();
  purge_idle();
  keep_one_of(8); /* each page has some left */
  purge_idle();
  CHECK_THAT(!purge_janitor_is_worth(), "%zu bytes, %zu needed", (size_t)slab_purgeable_bytes(),
             (size_t)janitor_bytes());
  keep_one_of(400);
  CHECK(purge_janitor_is_worth());
  purge_idle();
  CHECK(!purge_janitor_is_worth());
  keep_one_of(SPARSE);
  CHECK_THAT(pages_dirty() == 0 || purgeable_page_bytes() != 0, "dirty pages that do not count");
  free(sparse[0]);
  sparse[0] = NULL;
  snug_purge();
  CHECK(!purge_janitor_is_worth());
  snug_check();
}

TEST(frees_beside_live_blocks_ask_for_no_janitor_again_and_again) {
  start_again(0);
  fill_slabs();
  keep_one_of(8);
  purge_idle();
  int worth = 0;
  for (int turn = 0; turn < 20; turn++) { /* a little of what each page has free is used, and freed */
    void *some[50];
    for (size_t i = 0; i < COUNT_OF(some); i++) some[i] = malloc(SPARSE_BYTES);
    for (size_t i = 0; i < COUNT_OF(some); i++) free(some[i]);
    cache_empty_own();
    if (!purge_janitor_is_worth()) continue;
    worth++;
    purge_idle();
  }
  CHECK_THAT(worth <= 1, "%d janitors", worth);
  keep_one_of(SPARSE);
  snug_purge();
}

/* ---- idle moments ---- */

static void burst(size_t pages, uint64_t pause_ms) {
  now_ns += pause_ms * MILLISECOND;
  make_dirty(pages);
}

/* A burst, as long after the last one as the last argument says, and an idle purge after it. */
static void burst_and_purge(size_t pages, uint64_t pause_ms) {
  burst(pages, pause_ms);
  purge_idle();
  CHECK_THAT(pages_dirty() * PAGE_BYTES < zone.page_bytes * 16, "%zu dirty pages", pages_dirty());
}

static void begin_bets(void) {
  start_again(1);
  now_ns += 3600000ull * MILLISECOND;
  for (int i = 0; i < 8; i++) purge_idle();
  CHECK_THAT(purge_idle_looks() == IDLE_LOOKS_MIN, "%u looks at first", purge_idle_looks());
}

/* However little it is: a page that is away for so short a time costs more than it saves. */
static void check_bets(size_t pages) {
  begin_bets();
  burst_and_purge(pages, 600);
  for (uint32_t looks = IDLE_LOOKS_MIN * 2; looks <= IDLE_LOOKS_MAX; looks *= 2) {
    burst_and_purge(pages, 600);
    CHECK_THAT(purge_idle_looks() == looks, "%zu pages: %u looks, not %u", pages, purge_idle_looks(), looks);
  }
  for (int i = 0; i < 4; i++) burst_and_purge(pages, 600);
  CHECK_THAT(purge_idle_looks() == IDLE_LOOKS_MAX, "%u looks at last", purge_idle_looks());
  burst_and_purge(pages, 1100);
  CHECK(purge_idle_looks() == IDLE_LOOKS_MAX / 2);
  now_ns += 600 * MILLISECOND;
  purge_idle(); /* nothing was taken again */
  CHECK(purge_idle_looks() == IDLE_LOOKS_MAX / 4);
  for (int i = 0; i < 8; i++) burst_and_purge(pages, 1100);
  CHECK(purge_idle_looks() == IDLE_LOOKS_MIN);
}

TEST(idle_purges_that_are_undone_at_once_wait_for_longer) {
  check_bets(512);
  check_bets(5120);
  check_bets(8192);
}

/* What counts is how long memory was away, not when the next idle moment comes. */
TEST(a_late_idle_moment_pays_for_nothing) {
  begin_bets();
  burst_and_purge(5120, 600);
  burst(5120, 600);
  purge_above_cap(true); /* a tick while the program works on */
  now_ns += 10000ull * MILLISECOND;
  purge_idle();
  CHECK_THAT(purge_idle_looks() == IDLE_LOOKS_MIN * 2, "%u looks", purge_idle_looks());
}

/* ---- a fork that waits ---- */

TEST(a_fork_stops_a_purge_after_a_batch) {
  start_again(0);
  static void *pages_of_test[20000];
  for (size_t i = 0; i < COUNT_OF(pages_of_test); i++)
    pages_of_test[i] = memset(malloc(9 * PAGE_BYTES), 1, 9 * PAGE_BYTES);
  for (size_t i = 0; i < COUNT_OF(pages_of_test); i += 2) free(pages_of_test[i]); /* scattered: 9 pages each */
  size_t dirty = pages_dirty();
  CHECK(dirty >= COUNT_OF(pages_of_test) / 2 * 9);
  stop_next_purge(1, false);
  size_t bytes;
  lock_take(&purge.lock, RANK_PURGE);
  purge_all_locked(this_thread.own, &bytes);
  CHECK_THAT(purged_pages <= PURGE_BATCH_PAGES + CHUNK_PAGES, "%zu pages after the stop", purged_pages);
  purged_pages = 0;
  purge_all_locked(this_thread.own, &bytes); /* while it lasts nothing goes at all */
  CHECK_THAT(purged_pages == 0, "%zu pages while stopped", purged_pages);
  lock_give(&purge.lock, RANK_PURGE);
  purge_stop(false);
  CHECK(purge_janitor_is_worth());
  snug_purge();
  CHECK_THAT(pages_dirty() == 0 || zone.page_bytes > PAGE_BYTES, "%zu dirty pages", pages_dirty());
  for (size_t i = 1; i < COUNT_OF(pages_of_test); i += 2) free(pages_of_test[i]);
  snug_purge();
  snug_check();
}

TEST(a_fork_stops_a_purge_inside_slabs_too) {
  start_again(0);
  make_holes();
  stop_next_purge(1, false);
  size_t bytes;
  lock_take(&purge.lock, RANK_PURGE);
  purge_all_locked(this_thread.own, &bytes);
  lock_give(&purge.lock, RANK_PURGE);
  purge_stop(false);
  CHECK_THAT(purged_pages <= 32 * 64, "%zu pages after the stop", purged_pages);
  CHECK(purge_janitor_is_worth() || zone.page_bytes > HOLE_BYTES); /* no group of larger pages is free here */
  end_holes();
}

/* ---- a stop that is over when the purge ends ---- */

static bool are_holes_gone(void) {
  size_t free_pages = (HOLES - HOLES / HOLES_KEPT) * HOLE_BYTES / PAGE_BYTES;
  return snug_counters.slab_purged_bytes >= (uint64_t)free_pages * PAGE_BYTES / 10 * 9 || zone.page_bytes > HOLE_BYTES;
}

TEST(who_asks_for_all_gets_all_after_a_short_stop) {
  start_again(0);
  make_holes();
  stop_next_purge(1, true);
  size_t bytes = snug_purge();
  CHECK_THAT(are_holes_gone() && bytes + 1 * MIB > snug_counters.slab_purged_bytes, "%zu bytes went, %zu in slabs",
             bytes, (size_t)snug_counters.slab_purged_bytes);
  end_holes();
}

/* Writes a request for all, as another process would; returns its check. */
static uint64_t ask_for_all(void) {
  static uint64_t asked;
  uint64_t words = SNUG_REQUEST_PURGE, from = 4711 | ++asked << 32;
  snug_counters.request = words;
  snug_counters.request_from = from;
  return snug_counters.request_check = snug_request_check(words, from, snug_counters.pid);
}

TEST(a_request_for_all_is_answered_when_all_went) {
  start_again(0);
  make_holes();
  uint64_t check = ask_for_all();
  stop_next_purge(1, true);
  control_look(this_thread.own);
  CHECK(snug_counters.answer_to != check || zone.page_bytes > HOLE_BYTES);
  control_look(this_thread.own);
  CHECK(snug_counters.answer_to == check && are_holes_gone());
  CHECK(snug_counters.answer >> 8 >= snug_counters.slab_purged_bytes - 1 * MIB || zone.page_bytes > HOLE_BYTES);
  end_holes();
}

static void check_that_nothing_more_goes(void) {
  snug_purge();
  uint64_t check = ask_for_all();
  control_look(this_thread.own);
  CHECK(snug_counters.answer_to == check);
  CHECK_THAT(snug_counters.answer >> 8 < 256 * KIB, "%zu bytes went", (size_t)(snug_counters.answer >> 8));
}

/* Not what went for one that was cut and then withdrawn, overtaken, or the parent's. */
TEST(an_answer_claims_only_what_went_for_its_request) {
  start_again(0);
  make_holes();
  uint64_t check = ask_for_all();
  stop_next_purge(1, true);
  control_look(this_thread.own);
  CHECK((snug_counters.answer_to != check && snug_counters.slab_purged_bytes > 256 * KIB) ||
        zone.page_bytes > HOLE_BYTES);
  run_in_child(check_that_nothing_more_goes);
  check_that_nothing_more_goes();
  end_holes();
}

/* What a thread that looks meanwhile would do without effect, holding the lock for which the fork naps. */
TEST(a_request_for_all_waits_while_purging_stops) {
  start_again(0);
  static void *blocks[100];
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = malloc(100);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) free(blocks[i]);
  uint64_t check = ask_for_all(), sign_of_life = cache_sign_of_life(this_thread.own);
  uint64_t counted_ns = snug_counters.cached_at_ns;
  now_ns += MILLISECOND;
  stop_next_purge(SIZE_MAX, false);
  purge_stop(true);
  control_look(this_thread.own);
  CHECK(snug_counters.answer_to != check);
  CHECK_THAT(cache_sign_of_life(this_thread.own) == sign_of_life, "the cache was emptied");
  CHECK_THAT(snug_counters.cached_at_ns == counted_ns, "all caches were counted");
  purge_stop(false);
  control_look(this_thread.own);
  CHECK(snug_counters.answer_to == check && snug_counters.cached_at_ns == now_ns);
}

/* Purges all of the holes while forks cut each pass after so long. Returns the passes. */
static size_t passes_that_are_cut_after(uint64_t pass_ns) {
  start_again(0);
  make_holes();
  stop_next_purge(1, true);
  stop_always_after_ns = pass_ns;
  uint32_t stops = purging_stops;
  snug_purge();
  stop_next_purge(SIZE_MAX, false);
  stop_always_after_ns = 0;
  purge_stop(false);
  return (purging_stops - stops) / 2;
}

TEST(passes_that_forks_cut_are_repeated_for_a_while_only) {
  size_t passes = passes_that_are_cut_after(1);
  CHECK_THAT(are_holes_gone(), "after %zu passes", passes);
  CHECK(passes > 2 || zone.page_bytes > HOLE_BYTES);
  end_holes();
  passes = passes_that_are_cut_after(1000 * MILLISECOND);
  CHECK_THAT(passes == 2 || zone.page_bytes > HOLE_BYTES, "%zu passes of a second", passes);
  end_holes();
  passes = passes_that_are_cut_after(20 * MILLISECOND);
  CHECK_THAT(passes == 4 || zone.page_bytes > HOLE_BYTES, "%zu passes of 20 ms", passes);
  end_holes();
}

TEST(after_a_short_stop_the_rest_is_worth_a_janitor) {
  start_again(0);
  make_holes();
  stop_next_purge(1, true);
  purge_idle();
  CHECK(!is_purging_stopped() && (!are_holes_gone() || zone.page_bytes > HOLE_BYTES));
  CHECK(purge_janitor_is_worth() || zone.page_bytes > HOLE_BYTES);
  purge_idle();
  CHECK(are_holes_gone());
  end_holes();
}

/* What others free between a purge and the request that fails after it may serve the next one. */
TEST(what_is_freed_since_a_vain_purge_is_purged_for_the_next_request) {
  uint64_t left_bytes;
  start_again(2);
  now_ns += 2000 * MILLISECOND; /* since any other */
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
  make_dirty(1024);
  purge_served_nothing(left_bytes);
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
  CHECK_THAT(pages_dirty() * PAGE_BYTES < 2 * zone.page_bytes, "%zu dirty pages", pages_dirty());
  purge_served_nothing(left_bytes);
  CHECK(!purge_for_request(this_thread.own, MIB, &left_bytes));
  now_ns += 2000 * MILLISECOND;
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
}

/* What was there at the vain purge, and is taken, makes no room for what is freed. */
TEST(what_is_taken_since_a_vain_purge_does_not_hide_what_is_freed) {
  uint64_t left_bytes;
  start_again(2);
  now_ns += 2000 * MILLISECOND; /* since any other */
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
  purge_served_nothing(left_bytes + 4096 * PAGE_BYTES);
  CHECK(!purge_for_request(this_thread.own, MIB, &left_bytes));
  make_dirty(1024);
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
}

/* Nor does one that a fork cut. */
TEST(a_purge_that_was_cut_is_not_known_to_be_vain) {
  uint64_t left_bytes;
  start_again(2);
  now_ns += 2000 * MILLISECOND; /* since any other */
  stop_next_purge(SIZE_MAX, false);
  purge_stop(true);
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
  purge_stop(false);
  purge_served_nothing(left_bytes);
  CHECK(purge_for_request(this_thread.own, MIB, &left_bytes));
}
