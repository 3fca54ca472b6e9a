/* large_test.c: blocks with mappings of their own against a list of them; the hash table against a set. */
#include "../../src/sys.c"
#include "large_pages.h"

/* The system's answers, refused on demand. */
static bool refuse_map, refuse_remap, refuse_unmap;
static bool stop_at_unmap; /* the next one */
static void stop_once(void);
static bool unmap_or_refuse(void *start, size_t length_bytes) {
  if (stop_at_unmap) stop_once();
  return !refuse_unmap && sys_unmap(start, length_bytes);
}
static size_t forgone_bytes; /* what huge pages were forbidden for last */
static void note_no_huge_pages(void *start, size_t length_bytes) {
  forgone_bytes = length_bytes;
  sys_no_huge_pages(start, length_bytes);
}
static void *map_or_refuse(size_t length_bytes) { return refuse_map ? NULL : sys_map(length_bytes); }
static void *remap_or_refuse(void *start, size_t old_bytes, size_t new_bytes, bool may_move) {
  return refuse_remap ? NULL : sys_remap(start, old_bytes, new_bytes, may_move);
}
static bool refuse_commit;
static size_t commits;
static bool commit_or_refuse(void *start, size_t length_bytes) {
  commits++;
  return !refuse_commit && sys_commit(start, length_bytes);
}
#define sys_commit commit_or_refuse
#define sys_remap remap_or_refuse
#undef sys_map
#define sys_map map_or_refuse
#undef sys_unmap
#define sys_unmap unmap_or_refuse
#define sys_no_huge_pages note_no_huge_pages
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/map.c"
#include "../../src/huge.c"
#include "../../src/pages.c"
#include "../../src/large.c"
#include "unit.h"

struct snug_counters snug_counters; /* stats.c has the real one */

static void stop_once(void) {
  stop_at_unmap = false;
  purging_stops++;
}

enum { BLOCKS = 300 };

static struct block {
  char *start;
  size_t size_bytes;
  uint64_t seed;
} blocks[BLOCKS];
static size_t block_count;
static uint64_t random_state = 1;

static void init_once(void) {
  if (zone.base != NULL) return;
  REQUIRE(map_init());
  REQUIRE(large_init());
}

/* ---- the table, with addresses of our choice ---- */

enum { ROWS = 1024, KEYS = 400 };

/* Addresses whose first rows are among a few, at the end of the table and its start: long probe sequences that wrap.
 */
static size_t find_colliding(const void *keys[KEYS]) {
  size_t count = 0;
  for (uintptr_t page = 1; count < KEYS; page++) {
    const void *key = (const void *)(page << PAGE_SHIFT);
    size_t row = home_row(key, ROWS);
    if (row >= ROWS - 2 || row < 2) keys[count++] = key;
  }
  return count;
}

TEST(colliding_addresses_are_found_and_removed) {
  static const void *keys[KEYS];
  static struct large rows_of_test[ROWS];
  static bool present[KEYS];
  size_t count = find_colliding(keys), used = 0;
  struct large *saved_rows = large.rows;
  size_t saved_count = large.row_count, saved_used = large.used;
  large.rows = rows_of_test;
  large.row_count = ROWS;
  for (int step = 0; step < 20000; step++) {
    size_t i = random_below(&random_state, count);
    if (present[i]) {
      remove_row(find(keys[i]));
      used--;
    } else {
      struct large row = {(char *)(uintptr_t)keys[i], i, i};
      put(large.rows, ROWS, &row);
      large.used++;
      used++;
    }
    present[i] = !present[i];
    if (step % 50 != 0) continue;
    CHECK(large.used == used);
    for (size_t k = 0; k < count; k++) {
      const struct large *row = find(keys[k]);
      CHECK_THAT((row != NULL) == present[k] && (row == NULL || row->mapped_bytes == k), "key %zu after step %d", k,
                 step);
    }
    if (test_failed) break;
  }
  large.rows = saved_rows;
  large.row_count = saved_count;
  large.used = saved_used;
}

/* ---- blocks ---- */

static size_t mapped_bytes_of(size_t size_bytes) { return round_up(size_bytes, zone.page_bytes); }

static void mark(struct block *block) {
  block->seed = random_next(&random_state);
  fill_pattern(block->start, 64, block->seed);
  fill_pattern(block->start + block->size_bytes - 64, 64, block->seed);
}

static void check_block(const struct block *block) {
  CHECK(pattern_mismatch(block->start, 64, block->seed) == 64);
  CHECK(pattern_mismatch(block->start + block->size_bytes - 64, 64, block->seed) == 64);
  CHECK_THAT(large_size(block->start) == mapped_bytes_of(block->size_bytes), "%zu asked, %zu usable", block->size_bytes,
             large_size(block->start));
  CHECK(large_size(block->start + 16) == 0);
}

static void compare(void) {
  uint64_t bytes = 0, requested_bytes = 0;
  for (size_t i = 0; i < block_count; i++) {
    bytes += mapped_bytes_of(blocks[i].size_bytes);
    requested_bytes += blocks[i].size_bytes;
  }
  CHECK(snug_counters.large_blocks == block_count && snug_counters.large_bytes == bytes);
  CHECK(snug_counters.large_requested_bytes == requested_bytes);
  CHECK(snug_counters.large_retained_bytes == large_retained_pages() * PAGE_BYTES);
  CHECK(large.used == block_count);
  large_check();
}

static void take(size_t size_bytes, size_t alignment) {
  bool clean;
  size_t retained = large_retained_pages();
  struct block block = {large_take(size_bytes, alignment, &clean), size_bytes, 0};
  REQUIRE(block.start != NULL);
  CHECK((uintptr_t)block.start % alignment == 0);
  CHECK_THAT(clean == (large_retained_pages() == retained), "clean is %d, %zu and %zu pages retained", clean, retained,
             large_retained_pages());
  if (clean)
    CHECK(nonzero_offset(block.start, 4096) == 4096 && nonzero_offset(block.start + size_bytes - 64, 64) == 64);
  for (size_t i = 0; i < block_count; i++) {
    CHECK(block.start + mapped_bytes_of(size_bytes) <= blocks[i].start ||
          blocks[i].start + mapped_bytes_of(blocks[i].size_bytes) <= block.start);
  }
  mark(&block);
  blocks[block_count++] = block;
}

static void give(size_t i) {
  check_block(&blocks[i]);
  CHECK(!large_give(blocks[i].start + PAGE_BYTES));
  CHECK(large_give(blocks[i].start));
  CHECK(large_was_freed(blocks[i].start) && large_size(blocks[i].start) == 0 && !large_give(blocks[i].start));
  blocks[i] = blocks[--block_count];
}

static void resize(size_t i, size_t size_bytes) {
  struct block *block = &blocks[i];
  check_block(block);
  char *start = large_resize(block->start, size_bytes);
  REQUIRE(start != NULL);
  CHECK(pattern_mismatch(start, 64, block->seed) == 64);
  block->start = start;
  if (size_bytes >= block->size_bytes) CHECK(pattern_mismatch(start + block->size_bytes - 64, 64, block->seed) == 64);
  block->size_bytes = size_bytes;
  mark(block);
}

static size_t random_size(void) { return LARGE_MIN_BYTES + random_below(&random_state, LARGE_MIN_BYTES * 3); }

TEST(random_operations_agree_with_the_model) {
  init_once();
  for (int step = 0; step < 6000; step++) {
    size_t choice = random_below(&random_state, 100);
    size_t i = block_count != 0 ? random_below(&random_state, block_count) : 0;
    if (choice < 45 && block_count < (step / 1500 % 2 ? 20 : BLOCKS)) {
      take(random_size(), choice < 8 ? zone.page_bytes << 1 << random_below(&random_state, 8) : 16);
    } else if (choice < 75 && block_count != 0) {
      give(i);
    } else if (choice < 97 && block_count != 0) {
      resize(i, random_size());
    } else {
      size_t keep = random_below(&random_state, large_retained_pages() + 1), before = large_retained_pages();
      CHECK(before - large_purge(keep, false) == large_retained_pages() && large_retained_pages() <= keep);
    }
    compare();
    if (test_failed) return;
  }
  while (block_count != 0) give(0);
  compare();
}

TEST(a_freed_mapping_is_retained_reused_and_purged) {
  init_once();
  large_purge(0, false);
  take(2 * LARGE_MIN_BYTES, 1);
  char *start = blocks[0].start;
  uint64_t maps = snug_counters.large_maps;
  give(0);
  CHECK(large_retained_pages() == 2 * LARGE_MIN_BYTES / PAGE_BYTES);
  take(2 * LARGE_MIN_BYTES - 1, 1);
  CHECK(blocks[0].start == start && snug_counters.large_maps == maps && large_retained_pages() == 0);
  give(0);
  CHECK(large_purge(0, false) == 2 * LARGE_MIN_BYTES / PAGE_BYTES && large_retained_pages() == 0);
  check_unreadable(start);
}

/* At ticks: what was retained a moment ago stays while retained mappings serve, and only then. */
TEST(young_retained_mappings_stay_where_they_serve) {
  init_once();
  large_purge(0, false);
  large_age();
  size_t pages_of_one = LARGE_MIN_BYTES / PAGE_BYTES;
  take(LARGE_MIN_BYTES, 1);
  give(0);
  CHECK(large_purge(0, true) == pages_of_one); /* none has served */
  for (int i = 0; i < 2; i++) take(LARGE_MIN_BYTES, 1);
  while (block_count != 0) give(block_count - 1);
  take(LARGE_MIN_BYTES, 1); /* served, and the other one is as young */
  CHECK(large_purge(0, true) == 0 && large_retained_pages() == pages_of_one);
  large_age();
  give(0);
  CHECK(large_purge(0, true) == 2 * pages_of_one); /* none has served since the tick */
  take(LARGE_MIN_BYTES, 1);
  take(2 * LARGE_MIN_BYTES, 1);
  while (block_count != 0) give(block_count - 1);
  large_age();
  take(LARGE_MIN_BYTES, 1);
  give(0); /* this one is young again, the longer one has been there since before the tick */
  CHECK(large_purge(0, true) == 2 * pages_of_one && large_retained_pages() == pages_of_one);
  CHECK(large_purge(pages_of_one, false) == 0 && large_purge(0, false) == pages_of_one);
  compare();
}

TEST(what_is_left_of_an_aged_mapping_is_as_old) {
  init_once();
  large_purge(0, false);
  for (size_t i = 1; i <= 40; i += 39) take(i * MIB, 1);
  while (block_count != 0) give(block_count - 1);
  large_age();
  take(MIB, 1);
  give(0); /* young, and it served */
  stop_at_unmap = true;
  size_t went = large_purge(0, true);
  CHECK_THAT(went != 0 && went < 40 * MIB / PAGE_BYTES && is_purging_stopped(), "%zu pages", went);
  purging_stops++;
  went += large_purge(0, true);
  CHECK_THAT(went == 40 * MIB / PAGE_BYTES && large_retained_pages() == MIB / PAGE_BYTES, "%zu pages", went);
  large_purge(0, false);
  take(40 * MIB, 1);
  give(0);
  stop_at_unmap = true;
  CHECK(large_purge(0, false) != 0 && is_purging_stopped());
  purging_stops++;
  take(MIB, 1);
  take(3 * MIB, 1);
  give(1);
  take(2 * MIB, 1); /* served: what is left of the young one is as young */
  size_t young = large_retained_pages();
  CHECK(large_purge(0, true) == 0 && large_retained_pages() == young);
  while (block_count != 0) give(0);
  large_purge(0, false);
  compare();
}

TEST(a_retained_mapping_is_cut_or_grown_to_fit) {
  init_once();
  large_purge(0, false);
  take(4 * LARGE_MIN_BYTES, 1);
  uint64_t maps = snug_counters.large_maps;
  give(0);
  take(2 * LARGE_MIN_BYTES, 1); /* cut */
  CHECK(snug_counters.large_maps == maps && large_retained_pages() == 0);
  give(0);
  take(4 * LARGE_MIN_BYTES, 1); /* grown, perhaps moved */
  CHECK(snug_counters.large_maps == maps && large_retained_pages() == 0);
  memset(blocks[0].start + 64, 1, 4 * LARGE_MIN_BYTES - 128);
  give(0);
  take(9 * LARGE_MIN_BYTES, 1); /* more than half of it would be new */
  CHECK(snug_counters.large_maps == maps + 1 && large_retained_pages() == 4 * LARGE_MIN_BYTES / PAGE_BYTES);
  take(LARGE_MIN_BYTES, 1); /* more than half of it would go */
  CHECK(snug_counters.large_maps == maps + 2 && large_retained_pages() == 4 * LARGE_MIN_BYTES / PAGE_BYTES);
  while (block_count != 0) give(block_count - 1);
  large_purge(0, false);
}

TEST(the_nearest_retained_mapping_is_taken) {
  init_once();
  large_purge(0, false);
  for (size_t i = 3; i <= 9; i += 3) take(i * LARGE_MIN_BYTES, 1);
  while (block_count != 0) give(block_count - 1);
  size_t retained = large_retained_pages();
  take(5 * LARGE_MIN_BYTES, 1);
  CHECK(retained - large_retained_pages() == 6 * LARGE_MIN_BYTES / PAGE_BYTES);
  give(0);
  large_purge(0, false);
}

TEST(growing_a_retained_mapping_keeps_alignment_and_may_fail) {
  init_once();
  large_purge(0, false);
  take(3 * LARGE_MIN_BYTES, 8 * LARGE_MIN_BYTES);
  give(0);
  uint64_t maps = snug_counters.large_maps;
  take(4 * LARGE_MIN_BYTES, 8 * LARGE_MIN_BYTES); /* it could move: a new one */
  CHECK(snug_counters.large_maps == maps + 1);
  refuse_remap = true;
  bool clean;
  void *block = large_take(5 * LARGE_MIN_BYTES, 1, &clean);
  refuse_remap = false;
  CHECK(block != NULL && clean && snug_counters.large_maps == maps + 2 && large_retained_pages() == 0);
  CHECK(large_give(block));
  while (block_count != 0) give(block_count - 1);
  large_purge(0, false);
}

/* The program may leave what it frees as it likes, in parts, too. */
static void check_protected(size_t size_bytes, size_t alignment, size_t next_bytes) {
  static const int protections[] = {PROT_NONE, PROT_READ};
  for (size_t i = 0; i < COUNT_OF(protections); i++) {
    bool clean;
    char *block = large_take(size_bytes, alignment, &clean);
    REQUIRE(block != NULL);
    memset(block, 1, size_bytes);
    REQUIRE(mprotect(block + size_bytes / 4, size_bytes / 2, protections[i]) == 0);
    CHECK(large_give(block) && large_retained_pages() != 0);
    block = large_take(next_bytes, 16, &clean);
    REQUIRE(block != NULL && large_retained_pages() == 0);
    memset(block, 1, next_bytes);
    CHECK(large_give(block));
    large_purge(0, false);
  }
}

TEST(what_the_program_protected_is_writable_in_the_next_block) {
  init_once();
  large_purge(0, false);
  large.gave_at_pages = false;
  check_protected(SURELY_WRITABLE_BYTES, 16, SURELY_WRITABLE_BYTES);
  check_protected(5 * SURELY_WRITABLE_BYTES, 16, 4 * SURELY_WRITABLE_BYTES);
  check_protected(5 * SURELY_WRITABLE_BYTES, 16, 6 * SURELY_WRITABLE_BYTES);
  CHECK(!large.gave_at_pages);
  check_protected(2 * LARGE_MIN_BYTES, zone.page_bytes, 2 * LARGE_MIN_BYTES);
  check_protected(2 * LARGE_MIN_BYTES, zone.page_bytes, 3 * LARGE_MIN_BYTES);
  compare();
}

/* Programs that ask for no block at a page do not pay for it where blocks are short. */
TEST(short_blocks_are_not_made_writable_for_nothing) {
  init_once();
  large_purge(0, false);
  large.gave_at_pages = false;
  size_t before = commits;
  for (int i = 0; i < 10; i++) {
    take(2 * LARGE_MIN_BYTES, 16);
    give(0);
  }
  CHECK_THAT(commits == before, "%zu system calls", commits - before);
  large_purge(0, false);
}

TEST(a_mapping_that_stays_protected_is_not_used_again) {
  init_once();
  large_purge(0, false);
  take(3 * LARGE_MIN_BYTES, zone.page_bytes);
  give(0);
  uint64_t maps = snug_counters.large_maps;
  bool clean;
  refuse_commit = true;
  void *block = large_take(2 * LARGE_MIN_BYTES, 16, &clean);
  refuse_commit = false;
  CHECK(block != NULL && clean && snug_counters.large_maps == maps + 1 && large_retained_pages() == 0);
  CHECK_THAT(large_size(block) == 2 * LARGE_MIN_BYTES, "%zu usable", large_size(block));
  CHECK(large_give(block));
  large_purge(0, false);
  compare();
}

TEST(few_and_no_huge_mappings_are_retained) {
  init_once();
  large_purge(0, false);
  take(RETAINED_MAX_BYTES + 1, 1);
  give(0);
  CHECK(large_retained_pages() == 0);
  for (int i = 0; i < RETAINED_MAX + 5; i++) take(LARGE_MIN_BYTES, 1);
  while (block_count != 0) give(block_count - 1);
  CHECK(large_retained_pages() == (size_t)RETAINED_MAX * LARGE_MIN_BYTES / PAGE_BYTES);
  compare();
  large_purge(0, false);
}

TEST(a_resize_that_cannot_be_leaves_the_block) {
  init_once();
  take(LARGE_MIN_BYTES, 1);
  CHECK(large_resize(blocks[0].start, (size_t)1 << 50) == NULL);
  check_block(&blocks[0]);
  compare();
  CHECK(large_resize(blocks[0].start + PAGE_BYTES, LARGE_MIN_BYTES) == NULL);
  give(0);
}

TEST(what_lies_inside_a_block_is_told_from_what_does_not) {
  init_once();
  take(3 * LARGE_MIN_BYTES, 1);
  char *start = blocks[0].start;
  CHECK(large_block_around(start) == start && large_block_around(start + 3 * LARGE_MIN_BYTES - 1) == start);
  CHECK(large_block_around(&start) == NULL &&
        large_block_around(start + mapped_bytes_of(3 * LARGE_MIN_BYTES)) != start);
  give(0);
  CHECK(large_block_around(start) == NULL);
}

TEST(no_memory_is_null_and_changes_nothing) {
  init_once();
  bool clean;
  large_purge(0, false);
  refuse_map = true;
  CHECK(large_take(LARGE_MIN_BYTES, 1, &clean) == NULL);
  refuse_map = false;
  CHECK(large_take(SIZE_MAX / 2, 1, &clean) == NULL);
  CHECK(large_take(LARGE_MIN_BYTES, SIZE_MAX / 2 + 1, &clean) == NULL);
  compare();
}

/* When the table can't grow it fills beyond one half, and then refuses, still with room to probe. */
TEST(a_full_table_refuses) {
  init_once();
  static char *starts[4096];
  size_t count = 0;
  bool clean;
  size_t rows = large.row_count;
  for (; count < COUNT_OF(starts) && count < rows / 2; count++) starts[count] = large_take(LARGE_MIN_BYTES, 1, &clean);
  CHECK(large.row_count == rows);
  for (; count < COUNT_OF(starts); count++) {
    lock_take(&large.lock, RANK_LARGE);
    refuse_map = true;
    bool room = make_room(1);
    refuse_map = false;
    lock_give(&large.lock, RANK_LARGE);
    if (!room) break;
    starts[count] = sys_map(zone.page_bytes);
    struct large row = {starts[count], zone.page_bytes, 1};
    put(large.rows, large.row_count, &row);
    large.used++;
  }
  CHECK_THAT(count > rows / 2 && count < rows, "%zu blocks in %zu rows", count, rows);
  CHECK(large_size(&count) == 0); /* ends although the table is nearly full */
  for (size_t i = 0; i < count; i++) CHECK_THAT(large_size(starts[i]) != 0, "block %zu", i);
  large_check();
}

static void lose_a_row(void) {
  struct large *row = find(blocks[0].start);
  large.rows[(row - large.rows + 5) & (ptrdiff_t)(large.row_count - 1)] = *row;
  row->start = NULL;
  large_check();
}

TEST(broken_state_is_found) {
  init_once();
  block_count = 0;
  take(LARGE_MIN_BYTES, 1);
  check_dies(lose_a_row, "heap metadata is corrupted");
}

static bool is_mapped(const void *page) {
  unsigned char state;
  return mincore((void *)(uintptr_t)page, 1, &state) == 0;
}

/* As it does when a process has as many mappings as it may have. */
TEST(what_could_not_be_unmapped_goes_with_its_neighbours_or_later) {
  enum { COUNT = 64 };
  char *starts[COUNT];
  const size_t bytes = RETAINED_MAX_BYTES + MIB; /* too long to be retained */
  bool clean;
  for (size_t i = 0; i < COUNT; i++) {
    starts[i] = large_take(bytes, 4096, &clean);
    REQUIRE(starts[i] != NULL);
    *starts[i] = 1;
  }
  refuse_unmap = true;
  for (size_t i = 0; i < COUNT; i += 2) {
    CHECK(large_give(starts[i]) && is_mapped(starts[i]));
    CHECK(!is_resident(starts[i])); /* its memory goes all the same */
    large_check();
  }
  size_t refused = large.refused;
  CHECK_THAT(refused > 0 && refused <= COUNT / 2, "%zu ranges", refused);
  refuse_unmap = false;
  for (size_t i = 1; i < COUNT / 2; i += 2) CHECK(large_give(starts[i]));
  large_check();
  for (size_t i = 1; i < COUNT / 2; i += 2) {
    CHECK_THAT(!is_mapped(starts[i]), "block %zu", i);
    bool adjacent = starts[i] + bytes == starts[i - 1] || starts[i - 1] + bytes == starts[i];
    CHECK_THAT(!adjacent || !is_mapped(starts[i - 1]), "block %zu", i - 1);
  }
  refuse_unmap = true;
  for (size_t i = COUNT / 2 + 1; i < COUNT; i += 2) CHECK(large_give(starts[i]));
  large_retry_unmaps();
  large_check();
  CHECK(large.refused > 0);
  refuse_unmap = false;
  large_retry_unmaps();
  large_check();
  CHECK_THAT(large.refused == 0, "%zu ranges are left", large.refused);
  for (size_t i = 0; i < COUNT; i++) CHECK_THAT(!is_mapped(starts[i]), "block %zu", i);
}

TEST(a_cut_that_is_refused_is_remembered) {
  bool clean;
  large_purge(0, false);
  char *start = large_take(20 * MIB, 4096, &clean);
  REQUIRE(start != NULL && large_give(start));
  refuse_unmap = true;
  char *cut = large_take(12 * MIB, 4096, &clean);
  CHECK(cut == start && large_size(cut) == 12 * MIB && large.refused == 1);
  refuse_unmap = false;
  large_retry_unmaps();
  CHECK(large.refused == 0 && !is_mapped(start + 12 * MIB) && is_mapped(start));
  CHECK(large_give(cut));
  large_purge(0, false);
  large_check();
}

TEST(a_mapping_that_became_short_forgoes_huge_pages) {
  bool clean;
  large_purge(0, false);
  char *start = large_take(40 * MIB, 4096, &clean);
  REQUIRE(start != NULL && large_give(start));
  forgone_bytes = 0;
  char *cut = large_take(24 * MIB, 4096, &clean);
  CHECK_THAT(cut == start && forgone_bytes == 24 * MIB, "%zu bytes", forgone_bytes);
  CHECK(large_give(cut));
  large_purge(0, false);
  start = large_take(40 * MIB, 4096, &clean);
  REQUIRE(start != NULL);
  forgone_bytes = 0;
  start = large_resize(start, 16 * MIB);
  CHECK_THAT(start != NULL && forgone_bytes == 16 * MIB, "%zu bytes", forgone_bytes);
  CHECK(large_give(start));
  large_purge(0, false);
}

/* What a fork that comes meanwhile waits for. */
TEST(a_purge_that_is_stopped_keeps_the_rest) {
  bool clean;
  large_purge(0, false);
  char *start = large_take(40 * MIB, 4096, &clean);
  REQUIRE(start != NULL && large_give(start));
  purging_stops++;
  CHECK(large_purge(0, false) == 0 && large_retained_pages() == 40 * MIB / PAGE_BYTES);
  purging_stops++;
  CHECK(large_purge(0, false) == 40 * MIB / PAGE_BYTES && large_retained_pages() == 0 && !is_mapped(start));
  large_check();
}
