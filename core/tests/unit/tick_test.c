/* tick_test.c: when ticks come, and what they do. */
#include "purging.h"

static void tick(void) {
  now_ns += TICK_NS;
  tick_now(this_thread.own, true);
}

TEST(near_the_containers_limit_all_goes_whatever_it_costs) {
  start_again(0);
  make_dirty(512);
  uint64_t limit_purges = snug_counters.limit_purges;
  memory_current = "95000000\n";
  tick();
  CHECK(pressure_is_near() && snug_counters.limit_purges == limit_purges + 1);
  CHECK_THAT(pages_dirty() <= CAP_SMALL_PAGES, "%zu dirty pages", pages_dirty());
  memory_current = "50000000\n";
  tick();
  CHECK(!pressure_is_near());
}

/* Which ticks after a pause purge what was freed before it, one bit for each. */
static unsigned purges_after_pause(uint64_t pause_ns, int percent, const char *in_use) {
  start_again(percent);
  memory_current = in_use;
  now_ns += 3600 * UINT64_C(1000000000);
  for (int i = 0; i < EARLY_TICKS; i++) tick();
  make_dirty(2048);
  tick();
  now_ns += pause_ns - TICK_NS;
  unsigned purges = 0;
  for (int i = 0; i < 3; i++) {
    size_t before = purged_pages;
    tick();
    if (purged_pages != before) purges |= 1u << i;
  }
  memory_current = "0\n";
  return purges;
}

TEST(the_first_tick_after_a_pause_spares_what_is_about_to_be_wanted) {
  CHECK((purges_after_pause(TICK_NS, 1, "0\n") & 1) != 0);
  CHECK((purges_after_pause(6 * TICK_NS, 1, "0\n") & 3) == 2);
  CHECK((purges_after_pause(600 * TICK_NS, 1, "0\n") & 3) == 2);
  CHECK((purges_after_pause(6 * TICK_NS, 1, "95000000\n") & 1) != 0);
  start_again(1);
  make_dirty(4096);
  size_t before = purged_pages;
  for (int i = 0; i < 4; i++) { /* where no janitor brings ticks, each comes after a pause */
    now_ns += 5 * TICK_NS;
    tick();
  }
  CHECK_THAT(purged_pages > before, "nothing goes from a program that pauses again and again");
}

/* What live memory near the limit takes and frees all the time stays, and costs no faults. */
TEST(what_is_wanted_again_at_once_stays_near_the_limit) {
  enum { SECONDS = 20, ROUNDS = 5 };
  start_again(1);
  memory_current = "95000000\n";
  make_dirty(512);
  tick();
  size_t purged = purged_pages;
  uint64_t limit_purges = snug_counters.limit_purges;
  for (int i = 0; i < SECONDS * 10; i++) {
    for (int j = 0; j < ROUNDS; j++) make_dirty(512);
    tick();
  }
  CHECK_THAT(purged_pages - purged < 512 * 6, "%zu pages purged by %d rounds that use 512", purged_pages - purged,
             SECONDS * 10 * ROUNDS);
  CHECK_THAT(snug_counters.limit_purges - limit_purges < 6, "%zu purges",
             (size_t)(snug_counters.limit_purges - limit_purges));
}

/* It is due still, and what it gave says nothing. */
static void check_that_a_cut_sweep_is_no_bet(bool stop_is_over) {
  start_again(0);
  make_holes();
  memory_current = "95000000\n";
  stop_next_purge(1, stop_is_over);
  tick();
  CHECK(pressure_is_near() && purged_pages != 0);
  purge_stop(false);
  size_t before = purged_pages;
  tick();
  CHECK_THAT(purged_pages > before, "no page in the tick after a sweep that was stopped");
  tick();
  CHECK(pressure.wait_ns == WAIT_MIN_NS && pressure.swept_ns == now_ns - TICK_NS);
  end_holes();
}

TEST(a_sweep_that_was_stopped_is_no_bet) {
  if (zone.page_bytes > HOLE_BYTES) SKIP("no group of larger pages is free here");
  check_that_a_cut_sweep_is_no_bet(false);
  check_that_a_cut_sweep_is_no_bet(true);
}

/* Forks come more often than a sweep lasts, and what went is wanted again. */
TEST(sweeps_that_are_cut_wait_too) {
  enum { TICKS = 600, PERIODS = 3 };
  for (unsigned period = 1; period <= PERIODS; period++) {
    start_again(0);
    memory_current = "95000000\n";
    make_dirty(512);
    uint64_t limit_purges = snug_counters.limit_purges;
    for (unsigned i = 0; i < TICKS; i++) {
      stop_next_purge(i % period == 0 ? 1 : SIZE_MAX, true);
      tick();
      make_dirty(512);
    }
    stop_next_purge(SIZE_MAX, false);
    CHECK_THAT(snug_counters.limit_purges - limit_purges <= 2, "%zu sweeps in a minute, one in %u cut",
               (size_t)(snug_counters.limit_purges - limit_purges), period);
  }
}

TEST(a_won_bet_halves_the_wait_once_however_often_the_next_one_is_cut) {
  start_again(0);
  memory_current = "95000000\n";
  make_dirty(512);
  tick();
  pressure.wait_ns = WAIT_MAX_NS;
  now_ns += WAIT_MAX_NS;
  for (int i = 0; i < 6; i++) {
    make_dirty(208); /* less than half */
    stop_next_purge(1, true);
    tick();
  }
  stop_next_purge(SIZE_MAX, false);
  CHECK_THAT(pressure.wait_ns == WAIT_MAX_NS / 2, "%zu s", (size_t)(pressure.wait_ns / 1000000000));
}

/* Descriptors and memory run out together. After chroot(2) nothing can be read ever again. */
static void check_that_nearness_outlives(const char **file) {
  start_again(0);
  memory_current = "95000000\n";
  const char *readable = *file;
  tick();
  CHECK(pressure_is_near());
  *file = "";
  for (int i = 0; i < 90; i++) {
    tick();
    CHECK_THAT(pressure_is_near(), "after %d ticks", i);
  }
  for (int i = 0; i < 30; i++) tick();
  CHECK_THAT(!pressure_is_near(), "after 12 s");
  *file = readable;
  tick();
  CHECK(pressure_is_near());
  *file = "";
  for (int i = 0; i < 90; i++) tick();
  CHECK_THAT(pressure_is_near(), "the second time");
  *file = readable;
}

TEST(the_limit_stays_near_while_its_use_cannot_be_read) {
  check_that_nearness_outlives(&memory_current);
  check_that_nearness_outlives(&memory_stat);
}

/* A reading from before a sandbox would stand. */
TEST(who_may_read_no_files_any_more_is_not_near_the_limit) {
  start_again(1);
  memory_current = "95000000\n";
  tick();
  CHECK(pressure_is_near());
  uint32_t had = rights.had;
  rights.had &= ~(uint32_t)RIGHT_FILES;
  tick();
  CHECK(!pressure_is_near());
  rights.had = had;
}

TEST(slow_paths_bring_ticks_when_it_is_time) {
  start_again(2);
  uint64_t before = snug_counters.ticks;
  tick_if_due(this_thread.own, true);
  CHECK(snug_counters.ticks == before);
  now_ns += TICK_NS;
  for (int i = 0; i < MAINTAIN_PERIOD; i++) free(malloc(100 * KIB));
  CHECK_THAT(snug_counters.ticks == before + 1, "%zu ticks", (size_t)(snug_counters.ticks - before));
}

/* Slabs of large classes: ticks give their pages back, once they are left alone. */
TEST(ticks_purge_pages_inside_slabs) {
  start_again(100);
  enum { COUNT = 70 };
  void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) blocks[i] = memset(malloc(32768), 1, 32768);
  for (size_t i = 0; i < COUNT; i++) {
    if (i % 7 != 0) free(blocks[i]);
  }
  cache_empty_own();
  uint64_t purged = snug_counters.slab_purged_bytes;
  for (int i = 0; i < 4; i++) {
    now_ns += TICK_NS;
    tick_now(this_thread.own, true);
  }
  CHECK_THAT(snug_counters.slab_purged_bytes > purged + COUNT / 2 * 32768, "%zu bytes",
             (size_t)(snug_counters.slab_purged_bytes - purged));
  for (size_t i = 0; i < COUNT; i += 7) free(blocks[i]);
  snug_check();
}

TEST(a_look_that_lags_behind_a_tick_brings_no_other_one) {
  start_again(2);
  uint64_t before = snug_counters.ticks;
  __atomic_store_n(&ticks.at_ns, now_ns + 4 * MILLISECOND, __ATOMIC_RELAXED); /* by another thread, just now */
  CHECK(!tick_if_due(this_thread.own, true) && snug_counters.ticks == before);
}

/* A process that is restored on a machine which has run for less finds that its clock went back by any time. */
TEST(ticks_and_looks_at_the_container_go_on_after_the_clock_went_back) {
  static const uint64_t back_ns[] = {200 * MILLISECOND, 5000 * (uint64_t)MILLISECOND, UINT64_C(900000000000)};
  for (size_t i = 0; i < COUNT_OF(back_ns); i++) {
    start_again(2);
    tick();
    now_ns -= back_ns[i];
    uint64_t before = snug_counters.ticks;
    CHECK_THAT(tick_if_due(this_thread.own, true) && snug_counters.ticks == before + 1, "%zu ms back: no tick",
               (size_t)(back_ns[i] / MILLISECOND));
    memory_current = "95000000\n";
    now_ns += TICK_NS;
    CHECK_THAT(tick_if_due(this_thread.own, true) && pressure_is_near(), "%zu ms back: the limit was not seen",
               (size_t)(back_ns[i] / MILLISECOND));
    memory_current = "50000000\n";
    now_ns -= back_ns[i]; /* the ticks are a janitor's that opens no files */
    tick_now(NULL, false);
    CHECK_THAT(!tick_if_due(this_thread.own, true) && !pressure_is_near(), "%zu ms back: no look between ticks",
               (size_t)(back_ns[i] / MILLISECOND));
    now_ns += 2 * back_ns[i];
  }
}

/* It sleeps for as long as a tick lasts, and a step of the coarse clock is often a little less than its name says. */
TEST(each_look_of_a_janitor_is_a_tick_though_the_clock_is_short) {
  enum { LOOKS = 20 };
  static const uint64_t short_ns[] = {0, 1, 1000, 10 * MILLISECOND};
  for (size_t i = 0; i < COUNT_OF(short_ns); i++) {
    start_again(2);
    unsigned ticked = 0;
    for (int look = 0; look < LOOKS; look++) {
      now_ns += TICK_NS - short_ns[i];
      ticked += tick_if_due(NULL, true);
    }
    CHECK_THAT(ticked == LOOKS, "%u ticks at %d looks that are short by %zu ns", ticked, LOOKS, (size_t)short_ns[i]);
  }
}

/* ---- the janitor's, where it opens no files ---- */

TEST(who_may_open_files_looks_at_the_container_though_the_janitor_ticks) {
  start_again(2);
  for (int i = 0; i < 20; i++) {
    bool is_near = i % 2 == 0;
    memory_current = is_near ? "95000000\n" : "50000000\n";
    now_ns += TICK_NS;
    CHECK(tick_if_due(NULL, false) && pressure_is_near() != is_near);
    CHECK(!tick_if_due(this_thread.own, true) && pressure_is_near() == is_near);
  }
}

TEST(a_limit_that_is_near_waits_for_no_tick) {
  start_again(0);
  make_dirty(512);
  now_ns += TICK_NS;
  CHECK(tick_if_due(NULL, false));
  memory_current = "95000000\n";
  uint64_t limit_purges = snug_counters.limit_purges;
  CHECK(!tick_if_due(this_thread.own, true) && snug_counters.limit_purges == limit_purges + 1);
  CHECK_THAT(pages_dirty() <= CAP_SMALL_PAGES, "%zu dirty pages", pages_dirty());
}

TEST(between_ticks_the_container_is_looked_at_once) {
  start_again(2);
  now_ns += TICK_NS;
  CHECK(tick_if_due(this_thread.own, true));
  memory_current = "95000000\n";
  now_ns += TICK_NS / 2;
  CHECK(!tick_if_due(this_thread.own, true) && !pressure_is_near());
}

/* Whichever of the ticks may open files: a limit that comes near is seen within seconds. */
TEST(the_container_is_looked_at_whoever_ticks_between) {
  enum { PERIODS = 20, LOOKS = 25 };
  for (unsigned period = 1; period <= PERIODS; period++) {
    for (unsigned phase = 0; phase < period; phase++) {
      start_again(0);
      cgroup_search_memory_limit();
      memory->directory[0] = '\0';
      tick(); /* not the first one of all */
      for (unsigned i = 0; i < 10 * period; i++) {
        now_ns += TICK_NS;
        bool may_open_files = i % period == phase;
        tick_now(may_open_files ? this_thread.own : NULL, may_open_files);
        if (i == 0) memory_current = "95000000\n";
      }
      CHECK_THAT(pressure_is_near(), "one tick in %u may open files, number %u", period, phase);
    }
  }
}

/* Nor do slabs of small classes wait for one that may. */
TEST(ticks_that_open_no_files_do_all_the_rest) {
  start_again(100);
  enum { COUNT = 20000, SIZE = 64 };
  static void *blocks[COUNT];
  for (size_t i = 0; i < COUNT; i++) blocks[i] = malloc(SIZE);
  for (size_t i = 0; i < COUNT; i++) {
    if (i % 2000 != 0) free(blocks[i]);
  }
  cache_empty_own();
  uint64_t purged = snug_counters.slab_purged_bytes;
  for (int i = 0; i < 30; i++) {
    now_ns += TICK_NS;
    tick_now(NULL, false);
  }
  CHECK_THAT(snug_counters.slab_purged_bytes > purged || zone.page_bytes > PAGE_BYTES, "no page went");
  for (size_t i = 0; i < COUNT; i += 2000) free(blocks[i]);
  snug_check();
}

/* ---- which slabs are looked at ---- */

/* After how many ticks all of so many full slabs of a class, which were touched, have been looked at; most + 1: not in
 * so many. */
static unsigned ticks_until_all_are_looked_at(size_t slab_count, unsigned class_index, unsigned most) {
  struct slab *real_records = slabs.records;
  uint32_t real_count = slabs.record_count;
  size_t real_touched = slabs.touched_pages, reached = 1;
  unsigned done = 0;
  start_again(100);
  size_t table_bytes = round_up((slab_count + 1) * sizeof(struct slab), zone.page_bytes);
  void *table = sys_map(table_bytes); /* no malloc from here on */
  REQUIRE(table != NULL);
  slabs.records = table;
  slabs.record_count = (uint32_t)slab_count + 1;
  for (size_t i = 1; i <= slab_count; i++) {
    slabs.records[i].class_index = (uint8_t)class_index;
    slabs.records[i].bucket = BUCKET_FULL;
    slabs.records[i].touched = TOUCHED;
  }
  while (reached <= slab_count && done < most) {
    now_ns += TICK_NS;
    slabs.tick = 9; /* it comes round, and what was touched 128 ticks ago would look young */
    tick_now(NULL, true);
    done++;
    while (reached <= slab_count && slabs.records[reached].touched == 0) reached++;
  }
  sys_unmap(table, table_bytes);
  slabs.records = real_records;
  slabs.record_count = real_count;
  slabs.touched_pages = real_touched;
  return reached > slab_count ? done : most + 1;
}

/* Whatever their number is a multiple of. */
TEST(each_slab_is_looked_at_within_a_minute_or_so) {
  static const size_t counts[] = {1,     100,    8191,   8192,   8193,   81919, 81920,
                                  90112, 100000, 163840, 524288, 600000, 720000};
  unsigned small = class_index_large[1024 / CLASS_LARGE_GRANULE_BYTES - 1];
  unsigned large = class_index_large[8192 / CLASS_LARGE_GRANULE_BYTES - 1];
  for (size_t i = 0; i < COUNT_OF(counts); i++) {
    unsigned looks = 2 + (unsigned)(counts[i] < TICK_RECORDS * TICK_SHARE ? counts[i] / TICK_RECORDS : TICK_SHARE);
    unsigned most = looks * SLOW_TICKS, needed = ticks_until_all_are_looked_at(counts[i], small, most);
    CHECK_THAT(needed <= most, "%zu slabs of small classes: not in %u ticks", counts[i], most);
    most = looks + looks / (SLOW_TICKS - 1) + 2;
    needed = ticks_until_all_are_looked_at(counts[i], large, most);
    CHECK_THAT(needed <= most, "%zu slabs of large classes: not in %u ticks", counts[i], most);
  }
}
