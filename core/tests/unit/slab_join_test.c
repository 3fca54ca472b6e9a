/* slab_join_test.c: blocks of adjacent free slots of a smaller class, against a list of live blocks; when holes are
 * used, which, and misuse. */
#include "live_blocks.h"

static uint64_t random_state = 7;

static bool is_joined_block(const struct block *block) {
  return kind_class(page_kind(page_index(block->start))) < block->class_index;
}

/* As many as can be had at once; checks what B9 promises. Returns how many are joined. */
static size_t take_in(unsigned arena, unsigned class_index, size_t wanted) {
  void *blocks[BATCH];
  bool contended = false;
  size_t size_bytes = size_of(class_index), joined = 0;
  size_t alignment = size_bytes & -size_bytes, shortest = class_shapes[class_index - 1].size_bytes + 1;
  size_t count = slab_take(arena, class_index, blocks, wanted, size_bytes, &contended);
  CHECK(count >= 1 && count <= wanted && !contended);
  for (size_t i = 0; i < count; i++) {
    size_t usable = slab_block_size(blocks[i]);
    CHECK_THAT(usable >= size_bytes && usable - usable / 4 <= round_up(shortest, 16), "%zu for %zu", usable,
               size_bytes);
    CHECK_THAT((uintptr_t)blocks[i] % (alignment < PAGE_BYTES ? alignment : PAGE_BYTES) == 0, "%p", blocks[i]);
    CHECK(kind_arena(page_kind(page_index(blocks[i]))) == arena && slab_is_taken(blocks[i]));
    keep(blocks[i], class_index);
    joined += is_joined_block(&live[live_count - 1]);
  }
  return joined;
}

static size_t take(unsigned class_index, size_t wanted) { return take_in(0, class_index, wanted); }

static void start_again(void) {
  give_until(0);
  slab_purge(0, false, slab_record_count(), SIZE_MAX);
  pages_purge(0, false);
  for (int i = 0; i < 2 * CHURN_TICKS; i++) slab_join_tick();
}

/* So many blocks of a class, of which a share is freed at random. */
static void make_holes(unsigned class_index, size_t count, unsigned freed_percent) {
  init_once();
  start_again();
  while (live_count < count) take(class_index, 1 + random_below(&random_state, BATCH));
  give_until(count - count * freed_percent / 100);
  slab_join_tick();
}

/* Counters are those of slots, whichever blocks lie in them. */
static void compare(void) {
  static uint64_t slots[CLASS_COUNT];
  memset(slots, 0, sizeof slots);
  for (size_t i = 0; i < live_count; i++) {
    unsigned class_index = kind_class(page_kind(page_index(live[i].start)));
    slots[class_index] += slab_block_size(live[i].start) / size_of(class_index);
  }
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    uint64_t outstanding = 0;
    for (unsigned arena = 0; arena < ARENAS; arena++) outstanding += row_of(arena, i)->outstanding_blocks;
    CHECK_THAT(outstanding == slots[i], "class %u: %llu outstanding, %llu live", i, (unsigned long long)outstanding,
               (unsigned long long)slots[i]);
  }
  slab_check();
}

TEST(larger_blocks_fill_the_holes_of_small_ones) {
  enum { SMALL = 100000 };
  make_holes(class_holding(64), SMALL, 70);
  size_t pages_before = pages_used(), joined = 0, count = 0, purged = pages_dirty();
  REQUIRE(purged == 0);
  for (; count < SMALL / 16; count++) joined += take(class_holding(208), 1); /* a third of what is free */
  CHECK_THAT(joined > count * 9 / 10, "only %zu of %zu blocks are joined", joined, count);
  size_t more = pages_used() - pages_before, apart = count * 208 / PAGE_BYTES;
  CHECK_THAT(more < apart / 8, "%zu pages more, without holes %zu", more, apart);
  compare();
  start_again();
  compare();
  CHECK_THAT(pages_used() == 0, "%zu pages are in use without a block", pages_used());
  CHECK(row_of(0, class_holding(64))->outstanding_blocks == 0);
}

TEST(few_holes_are_left_alone) {
  make_holes(class_holding(64), 100000, 10); /* less than an eighth */
  size_t joined = 0;
  for (int i = 0; i < 2000; i++) joined += take(class_holding(208), 1);
  CHECK_THAT(joined == 0, "%zu joined blocks", joined);
  make_holes(class_holding(64), 3000, 70); /* less than 256 KiB */
  for (int i = 0; i < 200; i++) joined += take(class_holding(208), 1);
  CHECK_THAT(joined == 0, "%zu joined blocks", joined);
  start_again();
}

TEST(dirty_pages_are_used_first) {
  bool clean;
  make_holes(class_holding(64), 100000, 70);
  size_t first = pages_take(16, 1, &clean);
  pages_give(first, 16, 0);
  size_t joined = 0;
  while (pages_dirty() >= class_shapes[class_holding(208)].pages) joined += take(class_holding(208), 1);
  CHECK_THAT(joined == 0, "%zu joined blocks", joined);
  start_again();
}

/* A slab needs them side by side; pieces that are too short for it are as good as none. */
TEST(short_pieces_of_dirty_pages_do_not_stop_joining) {
  enum { PIECES = 32 };
  size_t pieces[PIECES], needed = class_shapes[class_holding(208)].pages;
  bool clean;
  REQUIRE(needed > 1 && PIECES > needed);
  make_holes(class_holding(64), 100000, 70);
  for (size_t i = 0; i < 2 * needed; i++) { /* every second page of a stretch */
    pieces[i] = pages_take(1, 1, &clean);
    memset(page_address(pieces[i]), 1, 1);
  }
  for (size_t i = 0; i < 2 * needed; i += 2) pages_give(pieces[i], 1, 0);
  CHECK(pages_dirty() >= needed && !pages_have_dirty(needed));
  CHECK(take(class_holding(208), 1) == 1);
  for (size_t i = 1; i < 2 * needed; i += 2) pages_give(pieces[i], 1, 0);
  CHECK(pages_have_dirty(needed));
  CHECK(take(class_holding(208), 1) == 0);
  start_again();
}

/* Between a look without the lock and one with it a record may have become another slab's. */
TEST(a_record_that_became_another_slabs_serves_nothing) {
  init_once();
  start_again();
  for (unsigned now = 1; now < class_holding(256); now++) {
    REQUIRE(take(now, 1) == 0);
    struct slab *slab = &slabs.records[slab_number(live[live_count - 1].start)];
    for (unsigned then = 1; then < class_holding(208); then++) {
      struct wish wish = {0, class_holding(208), 200, false};
      void *block;
      if (then == now || slots_for(wish.class_index, then) == 0) continue;
      CHECK_THAT(take_from(slab, then, &wish, &block, 1) == 0, "class %u, which was %u", now, then);
    }
  }
  slab_check();
  start_again();
}

static bool has_joints(const void *p) { return kind_has_joints(page_kind(page_index(p))); }

TEST(pages_say_that_their_slab_has_joined_blocks_while_it_has) {
  make_holes(class_holding(64), 100000, 70);
  void *blocks[2];
  REQUIRE(take(class_holding(208), 1) == 1);
  blocks[0] = live[--live_count].start;
  const struct slab *slab = &slabs.records[slab_number(blocks[0])];
  for (size_t i = 0; i < shape_of(slab)->pages; i++) CHECK(has_joints(page_address(slab->page + i)));
  joins.cursor = number_of(slab) - 1; /* a second one of the same slab, if there is room */
  REQUIRE(take(class_holding(112), 1) == 1);
  blocks[1] = live[--live_count].start;
  REQUIRE(slab_number(blocks[1]) == number_of(slab));
  slab_give(blocks, 1);
  CHECK(has_joints(blocks[1]));
  slab_give(blocks + 1, 1);
  for (size_t i = 0; i < shape_of(slab)->pages; i++) CHECK(!has_joints(page_address(slab->page + i)));
  start_again();
}

/* E3, of blocks of which each asks for as much. */
static double requested_bytes(void) {
  double sum = 0;
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    const struct snug_counters_class *row = row_of(0, i);
    if (row->sampled_requests == 0) continue;
    double mean = (double)row->sampled_requested_bytes / (double)row->sampled_requests;
    sum += mean * (double)row->outstanding_blocks;
  }
  return sum;
}

TEST(what_was_asked_for_is_estimated_right_with_joined_blocks) {
  enum { SMALL = 100000, LARGE = 5000 };
  make_holes(class_holding(64), SMALL, 70);
  for (unsigned i = 1; i < CLASS_COUNT; i++) row_of(0, i)->sampled_requests = row_of(0, i)->sampled_requested_bytes = 0;
  while (live_count < SMALL * 6 / 10) take(class_holding(64), 1 + random_below(&random_state, BATCH));
  while (live_count < SMALL * 6 / 10 + LARGE) take(class_holding(208), 1 + random_below(&random_state, BATCH));
  double asked = 0;
  for (size_t i = 0; i < live_count; i++) asked += (double)size_of(live[i].class_index);
  double ratio = requested_bytes() / asked;
  CHECK_THAT(ratio > 0.97 && ratio < 1.03, "%.3f of what was asked for", ratio);
  start_again();
}

TEST(what_comes_back_at_once_gets_slabs_of_its_own) {
  make_holes(class_holding(64), 100000, 70);
  size_t left = live_count, joined = 0;
  for (int i = 0; i < CHURN_MIN; i++) joined += take(class_holding(208), 1);
  REQUIRE(joined >= CHURN_MIN - 100);
  void *blocks[1];
  while (live_count > left) {
    blocks[0] = live[--live_count].start;
    slab_give(blocks, 1);
  }
  slab_join_tick();
  CHECK(take(class_holding(208), 1) == 0);
  for (int i = 0; i < CHURN_TICKS; i++) slab_join_tick();
  pages_purge(0, false);
  joined = 0;
  for (int i = 0; i < 1000; i++) joined += take(class_holding(208), 1);
  CHECK_THAT(joined > 900, "only %zu joined blocks after the rest", joined);
  start_again();
}

TEST(sealed_slabs_and_reserved_arenas_join_nothing) {
  make_holes(class_holding(64), 100000, 70);
  unsigned reserved = arena_reserve();
  REQUIRE(reserved != 0);
  bool contended;
  void *block;
  slab_take(reserved, class_holding(208), &block, 1, 208, &contended);
  CHECK(kind_arena(page_kind(page_index(block))) == reserved && slab_block_size(block) == 208);
  slab_give(&block, 1);
  slab_lock_all();
  slab_seal(1);
  slab_unlock_all();
  /* Slabs of which half is free serve again from the next free in them on: no free happens here. */
  size_t joined = 0;
  for (int i = 0; i < 1000; i++) joined += take(class_holding(208), 1);
  CHECK_THAT(joined == 0, "%zu joined blocks", joined);
  start_again();
}

TEST(random_operations_agree_with_the_model) {
  static const unsigned sizes[] = {16, 32, 48, 64, 80, 112, 256, 384, 512, 1024, 1536, 2304, 4096, 8208};
  size_t joined = 0;
  make_holes(class_holding(64), 60000, 70);
  for (int step = 0; step < 60000; step++) {
    size_t choice = random_below(&random_state, 1000);
    bool grows = step / 8000 % 2 == 0;
    unsigned class_index = class_holding(sizes[random_below(&random_state, COUNT_OF(sizes))]);
    size_t many = 1 + random_below(&random_state, BATCH);
    if (choice < (grows ? 600 : 300) && live_count + BATCH < LIVE_MAX) {
      unsigned arena = random_below(&random_state, 4) == 0 ? 1 : 0;
      if (arena_users(arena) != 0) joined += take_in(arena, class_index, many);
    } else if (choice < 950) {
      give_some(many);
    } else if (choice < 970) {
      slab_tick();
      joins.rest_ticks = 0;
      slab_join_tick();
    } else if (choice < 985) {
      slab_purge(0, random_below(&random_state, 2), 1 + random_below(&random_state, 2000), SIZE_MAX);
      pages_purge(0, false);
    } else if (choice < 990) {
      if (arena_users(1) == 0) {
        arena_join(1);
      } else {
        arena_leave(1); /* the other adopts its slabs */
      }
    } else if (choice == 990) {
      slab_lock_all();
      slab_seal((unsigned)random_below(&random_state, 3));
      slab_unlock_all();
    }
    if (step % 2000 == 0) compare();
    if (test_failed) return;
  }
  CHECK_THAT(joined > 1000, "only %zu joined blocks", joined);
  if (arena_users(1) == 0) arena_join(1);
  start_again();
  compare();
  CHECK_THAT(pages_used() == 0, "%zu pages are in use without a block", pages_used());
}

/* ---- misuse ---- */

static char *victim; /* a joined block of four slots of 64 bytes */
static void free_inside(void) {
  void *inside = victim + 128;
  slab_give(&inside, 1);
}
static void size_inside(void) { slab_block_size(victim + 64); }
static void free_inside_a_slot(void) {
  void *inside = victim + 72;
  slab_give(&inside, 1);
}
static void free_twice(void) {
  slab_give((void **)&victim, 1);
  slab_give((void **)&victim, 1);
}
static void free_twice_in_one_batch(void) {
  void *batch[] = {victim, victim};
  slab_give(batch, 2);
}
static void lose_a_joint(void) {
  struct slab *slab = &slabs.records[slab_number(victim)];
  size_t slot = (size_t)(victim - page_address(slab->page)) / 64;
  slabs.records[slab->joints].bits[(slot + 1) / 64] ^= (uint64_t)1 << (slot + 1) % 64;
  slab->bits[(slot + 1) / 64] |= (uint64_t)1 << (slot + 1) % 64;
  slab_check();
}
static void join_a_free_slot(void) {
  struct slab *slab = &slabs.records[slab_number(victim)];
  size_t slot = bits_find(slab->bits, 1, shape_of(slab)->slots, true);
  slabs.records[slab->joints].bits[slot / 64] |= (uint64_t)1 << slot % 64;
  slab_check();
}

TEST(misuse_and_broken_state_end_the_process) {
  make_holes(class_holding(64), 100000, 70);
  for (int i = 0; i < 100 && take(class_holding(208), 1) == 0; i++) continue;
  victim = live[live_count - 1].start;
  REQUIRE(slab_block_size(victim) == 256);
  check_dies(free_inside, "free of a pointer inside a block");
  check_dies(free_inside, "in the block of 256 bytes");
  check_dies(size_inside, "free of a pointer inside a block");
  check_dies(free_inside_a_slot, "in the block of 256 bytes");
  check_dies(free_twice, "double free");
  check_dies(free_twice_in_one_batch, "double free");
  check_dies(lose_a_joint, "heap metadata is corrupted");
  check_dies(join_a_free_slot, "heap metadata is corrupted");
  start_again();
}
