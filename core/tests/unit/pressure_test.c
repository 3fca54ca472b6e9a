/* pressure_test.c: when all has to go near the limit, and how long a sweep that gave nothing waits. */
#include "../../src/sys.c"

#include "../../src/rights.c"
#include "../../src/cgroup.c"
#include "../../src/pressure.c"
#include "../../src/fatal.c"
#include "../../src/lock.c"
#include "unit.h"

#define SECOND UINT64_C(1000000000)

enum { LIMIT_PAGES = 100000, RESIDENT = 80000 };

static uint64_t now_ns;

static void look(uint64_t held_pages, size_t resident_pages) {
  struct cgroup_memory reading = {.held_bytes = held_pages * PAGE_BYTES, .limit_bytes = LIMIT_PAGES * PAGE_BYTES};
  pressure_look(&reading, resident_pages);
}

static void start_again(void) {
  memset(&pressure, 0, sizeof pressure);
  pressure.wait_ns = WAIT_MIN_NS;
  pressure_look(NULL, 0);
  now_ns = 1000 * SECOND;
}

/* How many sweeps there are in so many ticks of 100 ms, each of which gives `gone` pages back, of which `again` are
 * wanted again. */
static unsigned sweeps_in(unsigned ticks, uint64_t held_pages, size_t gone_pages, size_t again_pages) {
  unsigned count = 0;
  for (unsigned i = 0; i < ticks; i++) {
    now_ns += SECOND / 10;
    look(held_pages, RESIDENT);
    size_t resident = pressure.swept_ns == 0 ? RESIDENT : pressure.left_pages + again_pages;
    if (!pressure_judge_sweep(now_ns, resident)) continue;
    pressure_swept(now_ns, gone_pages, RESIDENT - gone_pages, true);
    count++;
  }
  return count;
}

TEST(far_from_the_limit_nothing_is_asked_for) {
  start_again();
  CHECK(!pressure_is_near() && pressure_most_pages() == SIZE_MAX && !pressure_judge_sweep(now_ns, RESIDENT));
  look(89900, RESIDENT);
  CHECK(!pressure_is_near() && pressure_most_pages() == SIZE_MAX && !pressure_judge_sweep(now_ns, RESIDENT));
  look(90100, RESIDENT);
  CHECK(pressure_is_near() && pressure_most_pages() != SIZE_MAX && pressure_judge_sweep(now_ns, RESIDENT));
  pressure_look(NULL, RESIDENT);
  CHECK(!pressure_is_near() && pressure_most_pages() == SIZE_MAX && !pressure_judge_sweep(now_ns, RESIDENT));
}

TEST(sweeps_that_give_pages_for_good_come_every_second) {
  start_again();
  unsigned count = sweeps_in(100, 95000, 2000, 0);
  CHECK_THAT(count == 10, "%u sweeps in 10 s", count);
  start_again();
  count = sweeps_in(100, 95000, 2000, 900);
  CHECK_THAT(count == 10, "%u sweeps in 10 s where less than half is wanted again", count);
}

TEST(sweeps_whose_pages_are_wanted_again_get_rare) {
  start_again();
  unsigned first = sweeps_in(640, 95000, 2000, 2000), then = sweeps_in(6400, 95000, 2000, 2000);
  CHECK_THAT(first == 1, "%u sweeps in 64 s", first);
  CHECK_THAT(then == 10, "%u sweeps in 640 s", then);
  start_again();
  first = sweeps_in(640, 95000, LIMIT_PAGES / 1024 - 10, 0);
  CHECK_THAT(first == 1, "%u sweeps in 64 s that give next to nothing", first);
}

TEST(they_come_more_often_again_when_pages_stay_away) {
  start_again();
  sweeps_in(6400, 95000, 2000, 2000);
  CHECK(pressure.wait_ns == WAIT_MAX_NS);
  sweeps_in(640 * 2, 95000, 2000, 0); /* 64 + 32 + 16 + ... s */
  CHECK_THAT(pressure.wait_ns == WAIT_MIN_NS, "%llu s", (unsigned long long)(pressure.wait_ns / SECOND));
}

/* Live memory leaves `room` pages. So many pages more go in a sweep, and come back within `back_ticks`. How many sweeps
 * there are in 64 s. */
static unsigned sweeps_of_what_comes_back(size_t room_pages, size_t gone_pages, unsigned back_ticks) {
  unsigned count = 0;
  size_t out_pages = 0, step_pages = (gone_pages + back_ticks - 1) / back_ticks;
  start_again();
  for (unsigned i = 0; i < 640; i++) {
    now_ns += SECOND / 10;
    out_pages -= out_pages < step_pages ? out_pages : step_pages;
    look(LIMIT_PAGES - room_pages - out_pages, RESIDENT - out_pages);
    if (!pressure_judge_sweep(now_ns, RESIDENT - out_pages)) continue;
    pressure_swept(now_ns, gone_pages - out_pages, RESIDENT - gone_pages, true);
    out_pages = gone_pages;
    count++;
  }
  return count;
}

/* Whatever share of the room goes, also where the limit is far for a moment, and however fast it comes back: what is
 * back within the second is lost. */
TEST(a_lost_bet_waits_however_much_room_it_made) {
  CHECK_THAT(sweeps_in(640, 99000, 2000, 2000) == 1, "twice the room");
  static const size_t rooms[] = {0, 1, 100, 1000, 3000, 5000, 9000}, gone[] = {150, 1000, 2500, 7000, 12000, 40000};
  for (size_t i = 0; i < COUNT_OF(rooms); i++) {
    for (size_t j = 0; j < COUNT_OF(gone); j++) {
      for (unsigned back_ticks = 1; back_ticks <= 10; back_ticks++) {
        unsigned count = sweeps_of_what_comes_back(rooms[i], gone[j], back_ticks);
        CHECK_THAT(count == 1, "%u sweeps: room %zu, gone %zu, back in %u ticks", count, rooms[i], gone[j], back_ticks);
      }
    }
  }
}

/* The same where each sweep is cut, or one of a few, and gives so many pages of what is left. */
static unsigned cut_sweeps_of_what_comes_back(size_t room_pages, size_t gone_pages, size_t cut_pages,
                                              unsigned back_ticks, unsigned period) {
  unsigned count = 0;
  size_t out_pages = 0, step_pages = (gone_pages + back_ticks - 1) / back_ticks;
  start_again();
  for (unsigned i = 0; i < 640; i++) {
    now_ns += SECOND / 10;
    out_pages -= out_pages < step_pages ? out_pages : step_pages;
    look(LIMIT_PAGES - room_pages - out_pages, RESIDENT - out_pages);
    if (!pressure_judge_sweep(now_ns, RESIDENT - out_pages)) continue;
    bool is_all = ++count % period != 0;
    size_t gone = is_all || gone_pages - out_pages < cut_pages ? gone_pages - out_pages : cut_pages;
    out_pages += gone;
    pressure_swept(now_ns, gone, RESIDENT - out_pages, is_all);
  }
  return count;
}

TEST(cut_sweeps_wait_as_others) {
  static const size_t rooms[] = {0, 100, 1000, 5000, 9000}, gone[] = {150, 1000, 7000, 40000};
  for (size_t i = 0; i < COUNT_OF(rooms); i++) {
    for (size_t j = 0; j < COUNT_OF(gone); j++) {
      for (size_t cut_pages = 50; cut_pages <= gone[j]; cut_pages *= 2) {
        for (unsigned k = 0; k < 30; k++) {
          unsigned back_ticks = k / 3 + 1, period = k % 3 + 1;
          unsigned count = cut_sweeps_of_what_comes_back(rooms[i], gone[j], cut_pages, back_ticks, period);
          CHECK_THAT(count <= 2, "%u sweeps: room %zu, gone %zu, by %zu, back in %u ticks, one of %u is cut", count,
                     rooms[i], gone[j], cut_pages, back_ticks, period);
        }
      }
    }
  }
}

/* Nothing is left for the second one, and nothing comes back. */
TEST(what_a_cut_sweep_gave_counts) {
  start_again();
  look(99000, RESIDENT);
  CHECK(pressure_judge_sweep(now_ns, RESIDENT));
  pressure_swept(now_ns, 2000, RESIDENT - 2000, false);
  now_ns += SECOND / 10;
  look(97000, RESIDENT - 2000);
  CHECK(pressure_judge_sweep(now_ns, RESIDENT - 2000));
  pressure_swept(now_ns, 10, RESIDENT - 2010, true);
  CHECK(pressure.gone_pages == 2010 && pressure.swept_room_pages == 1000);
  now_ns += SECOND;
  look(97000, RESIDENT - 2010);
  CHECK(pressure_judge_sweep(now_ns, RESIDENT - 2010) && pressure.wait_ns == WAIT_MIN_NS);
}

/* What sweeps give is wanted again at once, while the room swings. In 64 s it halves only so often. */
static void check_swinging_room(size_t gone_pages) {
  for (uint64_t swing = 50; swing <= 8000; swing *= 2) {
    unsigned count = 0;
    start_again();
    for (unsigned i = 0; i < 640; i++) count += sweeps_in(1, 99900 - i % 2 * swing, gone_pages, gone_pages);
    CHECK_THAT(count <= 7, "%u sweeps where the room swings by %zu pages", count, (size_t)swing);
  }
}

/* Live memory itself comes and goes: nothing but a few pages can be given back. */
TEST(a_bet_on_next_to_nothing_waits_where_the_room_swings) { check_swinging_room(50); }

/* Something else went than what the sweep gave: then comes a new approach. */
TEST(half_of_more_room_brings_a_sweep_at_once) {
  static const struct {
    uint64_t held_pages;
    bool due;
  } looks[] = {{99000, true},  /* 2,000 go */
               {97000, false}, /* room that it made itself */
               {91000, false},
               {96400, false},
               {96600, true} /* less than half of 7,000 */};
  start_again();
  for (size_t i = 0; i < COUNT_OF(looks); i++) {
    size_t resident = looks[i].held_pages - 20000;
    now_ns += SECOND / 10;
    look(looks[i].held_pages, resident);
    bool due = pressure_judge_sweep(now_ns, resident);
    CHECK_THAT(due == looks[i].due, "%zu", (size_t)looks[i].held_pages);
    if (due) pressure_swept(now_ns, 2000, resident - 2000, true);
  }
}

TEST(what_is_wanted_at_once_waits_where_others_come_and_go) { check_swinging_room(200); }

TEST(half_the_room_brings_a_sweep_at_once) {
  start_again();
  sweeps_in(6400, 92000, 2000, 2000);
  pressure_swept(now_ns, 2000, RESIDENT - 2000, true);
  unsigned count = sweeps_in(20, 92000, 2000, 2000);
  CHECK_THAT(count == 0, "%u sweeps though nothing changed", count);
  CHECK(pressure.swept_room_pages == 8000);
  count = sweeps_in(1, 96500, 1000, 1000);
  CHECK_THAT(count == 1 && pressure.swept_room_pages == 3500, "%u sweeps, %zu pages of room", count,
             pressure.swept_room_pages);
  count = sweeps_in(100, 99900, 100, 100);
  CHECK_THAT(count == 1, "%u sweeps at the limit", count); /* the room is what it was at that one */
}

TEST(what_comes_near_anew_has_its_room_from_there) {
  start_again();
  sweeps_in(100, 99900, 200, 200);
  look(50000, RESIDENT);
  look(91000, RESIDENT);
  CHECK(pressure.swept_room_pages == 8800);       /* but for what the sweep gave */
  CHECK(!pressure_judge_sweep(now_ns, RESIDENT)); /* the wait goes on */
  look(96000, RESIDENT);
  CHECK(pressure_judge_sweep(now_ns, RESIDENT));
}

/* To 99 % at once; the sweep gives a fifth, for good. */
TEST(after_a_jump_the_next_approach_meets_a_sweep) {
  start_again();
  look(99000, RESIDENT);
  CHECK(pressure_judge_sweep(now_ns, RESIDENT));
  pressure_swept(now_ns, 20000, RESIDENT - 20000, true);
  for (int i = 0; i < 400; i++) {
    now_ns += SECOND / 10;
    look(79000, RESIDENT - 20000);
    CHECK(!pressure_judge_sweep(now_ns, RESIDENT - 20000));
  }
  size_t more = 0;
  bool due = false;
  for (; !due && more < 20000; more += 500) {
    now_ns += SECOND / 10;
    look(79000 + more, RESIDENT - 20000 + more);
    due = pressure_judge_sweep(now_ns, RESIDENT - 20000 + more);
  }
  CHECK_THAT(79000 + more < 92000, "a sweep at %zu", 79000 + more);
  CHECK_THAT(pressure.wait_ns == WAIT_MIN_NS, "%llu s", (unsigned long long)(pressure.wait_ns / SECOND));
}

/* Live memory, and with it what a sweep gave. */
TEST(who_crosses_the_threshold_all_the_time_is_swept_rarely) {
  for (unsigned turn_ticks = 1; turn_ticks < 10; turn_ticks++) {
    unsigned count = 0;
    start_again();
    for (unsigned i = 0; i < 640; i++) {
      bool high = i / turn_ticks % 2 == 0;
      size_t resident = high ? RESIDENT : RESIDENT - 12000;
      now_ns += SECOND / 10;
      look(high ? 92000 : 80000, resident);
      if (!pressure_judge_sweep(now_ns, resident)) continue;
      pressure_swept(now_ns, 2000, resident - 2000, true);
      count++;
    }
    CHECK_THAT(count == 1, "%u sweeps in 64 s of turns of %u ticks", count, turn_ticks);
  }
}

TEST(growth_ends_at_half_the_room) {
  start_again();
  look(92000, RESIDENT);
  CHECK(pressure_most_pages() == RESIDENT + 4000);
  look(120000, RESIDENT); /* above memory.high */
  CHECK(pressure_most_pages() == RESIDENT);
  pressure_allow(RESIDENT + 7000);
  CHECK(pressure_most_pages() == RESIDENT + 7000);
}
