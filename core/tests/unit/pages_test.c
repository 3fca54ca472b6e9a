/* pages_test.c: the page heap against an array with one state per page. The model also says which run a search must
 * find. */
#include "../../src/sys.c"

/* The system's answers, refused on demand. */
static bool refuse_purge, refuse_commit;
static bool purge_or_refuse(void *start, size_t length_bytes) {
  return !refuse_purge && sys_purge(start, length_bytes);
}
static bool commit_or_refuse(void *start, size_t length_bytes) {
  return !refuse_commit && sys_commit(start, length_bytes);
}
static bool map_or_refuse(void *start, size_t length_bytes) {
  return !refuse_commit && sys_map_at(start, length_bytes);
}
#define sys_purge purge_or_refuse
#define sys_commit commit_or_refuse
#define sys_map_at map_or_refuse
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/map.c"
#include "../../src/huge.c"

#include "../../src/bits.h"

/* How often the bits of a chunk are looked at. */
static size_t looks;
static size_t counted_find(const uint64_t *words, size_t from, size_t end, bool value) {
  looks++;
  return bits_find(words, from, end, value);
}
#define bits_find counted_find
#include "../../src/pages.c"
#include "unit.h"

struct snug_counters snug_counters; /* stats.c has the real one */

enum { MODEL_PAGES = 64 * CHUNK_PAGES, RUNS = 400 };

/* What the model knows of a page. */
enum state { ABOVE = 0, CLEAN, DIRTY, TAKEN };
static uint8_t state[MODEL_PAGES];
static bool aged[MODEL_PAGES];        /* dirty since before the last pages_age */
static size_t model_pages, model_top; /* usable; below the highest ever used */

static struct range {
  size_t first, count;
} taken[RUNS];
static size_t taken_count;
static uint64_t random_state;

static void init_once(void) {
  if (zone.base == NULL) REQUIRE(map_init());
}

static size_t whole_pages(void) { return zone.page_bytes / PAGE_BYTES; }

/* ---- the model ---- */

static bool is_candidate(size_t page, bool dirty_only) {
  return state[page] == DIRTY || (!dirty_only && state[page] == CLEAN);
}

/* G2, as written: the lowest chunk with a fit, there the shortest run that fits, of those the lowest. */
static size_t model_search(bool dirty_only, size_t count, size_t align_pages) {
  for (size_t chunk = 0; chunk < model_pages; chunk += CHUNK_PAGES) {
    size_t best = PAGE_NONE, best_length = SIZE_MAX;
    for (size_t start = chunk; start < chunk + CHUNK_PAGES;) {
      size_t end = start;
      while (end < chunk + CHUNK_PAGES && is_candidate(end, dirty_only)) end++;
      size_t aligned = (start + align_pages - 1) / align_pages * align_pages;
      if (end > start && aligned + count <= end && end - start < best_length) {
        best = aligned;
        best_length = end - start;
      }
      start = end + 1;
    }
    if (best != PAGE_NONE) return best;
  }
  return PAGE_NONE;
}

static size_t model_count(enum state wanted, size_t end) {
  size_t count = 0;
  for (size_t i = 0; i < end; i++) count += state[i] == wanted;
  return count;
}

static void model_follow_growth(void) {
  size_t usable = zone_pages();
  REQUIRE(usable <= MODEL_PAGES);
  for (; model_pages < usable; model_pages++) state[model_pages] = CLEAN;
}

/* Every page is what the model says, in the bits and in the account. */
static void compare(void) {
  pages_check();
  model_follow_growth();
  for (size_t i = 0; i < model_pages; i++) {
    bool is_free = bits_test(zone.free_bits, i), is_dirty = bits_test(zone.dirty_bits, i);
    if (bits_test(zone.aged_bits, i) != aged[i]) CHECK_THAT(false, "page %zu: aged in the model is %d", i, aged[i]);
    enum state seen = !is_free ? TAKEN : is_dirty ? DIRTY : CLEAN;
    if (seen != state[i] || (is_dirty && !is_free)) {
      CHECK_THAT(false, "page %zu: model %d, heap %d", i, state[i], seen);
      REQUIRE(test_failed < 5);
    }
  }
  struct pages_account account = pages_account();
  CHECK_THAT(account.top_pages == model_top, "top %zu, model %zu", account.top_pages, model_top);
  CHECK(account.dirty_pages == model_count(DIRTY, model_pages) && pages_dirty() == account.dirty_pages);
  CHECK(account.free_pages == model_count(CLEAN, model_top) + account.dirty_pages);
  CHECK(pages_used() == model_count(TAKEN, model_pages) && pages_top() == model_top);
}

/* ---- the operations, on both ---- */

/* First and last word of each page: as the owner wrote them, or zero if the page is said to be clean. */
static void write_pages(size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++) {
    uint64_t *words = (uint64_t *)page_address(i);
    words[0] = words[PAGE_BYTES / 8 - 1] = ~i;
  }
}

static void check_zeros(size_t first, size_t count) {
  for (size_t i = first; i < first + count; i++) {
    const uint64_t *words = (const uint64_t *)page_address(i);
    if (words[0] != 0 || words[PAGE_BYTES / 8 - 1] != 0) CHECK_THAT(false, "page %zu is said to be clean", i);
  }
}

static void model_take(size_t first, size_t count, bool clean) {
  bool all_clean = true;
  for (size_t i = first; i < first + count; i++) {
    CHECK_THAT(state[i] == CLEAN || state[i] == DIRTY, "page %zu was given out in state %d", i, state[i]);
    all_clean &= state[i] == CLEAN;
    state[i] = TAKEN;
    aged[i] = false;
  }
  CHECK_THAT(clean == all_clean, "run %zu+%zu: clean is %d", first, count, clean);
  if (clean) check_zeros(first, count);
  if (first + count > model_top) model_top = first + count;
  write_pages(first, count);
}

static size_t take(size_t count, size_t align_pages) {
  bool clean;
  size_t expected = model_search(true, count, align_pages);
  if (expected == PAGE_NONE) expected = model_search(false, count, align_pages);
  size_t first = pages_take(count, align_pages, &clean);
  if (first == PAGE_NONE) return PAGE_NONE;
  if (expected == PAGE_NONE) {
    CHECK_THAT(first >= model_pages, "no run of %zu was free, yet %zu was given out", count, first);
    model_follow_growth();
  } else {
    CHECK_THAT(first == expected, "%zu pages: %zu instead of %zu", count, first, expected);
  }
  CHECK(first % align_pages == 0 && first / CHUNK_PAGES == (first + count - 1) / CHUNK_PAGES); /* G1 */
  model_take(first, count, clean);
  return first;
}

static void give(size_t first, size_t count, uint64_t clean_mask) {
  for (size_t i = 0; i < count; i++) {
    if (i < 64 && clean_mask >> i & 1) memset(page_address(first + i), 0, PAGE_BYTES);
    state[first + i] = i < 64 && clean_mask >> i & 1 ? CLEAN : DIRTY;
  }
  pages_give(first, count, clean_mask);
}

static bool extend(struct range *run, size_t new_count) {
  bool can = new_count <= PAGES_RUN_MAX && run->first / CHUNK_PAGES == (run->first + new_count - 1) / CHUNK_PAGES;
  for (size_t i = run->first + run->count; can && i < run->first + new_count; i++) {
    can = i < model_pages && state[i] != TAKEN;
  }
  bool clean;
  pages_lock();
  bool done = pages_extend_locked(run->first, run->count, new_count, &clean);
  pages_unlock();
  CHECK_THAT(done == can, "run %zu+%zu to %zu: %d", run->first, run->count, new_count, done);
  if (!done) return false;
  model_take(run->first + run->count, new_count - run->count, clean);
  run->count = new_count;
  return true;
}

/* A purge may take more than asked, as it takes runs whole, but must not stop while something that could go is left.
 */
static size_t purge(size_t keep_pages, bool only_aged) {
  size_t before = pages_dirty(), purged = pages_purge(keep_pages, only_aged), gone = 0, whole_left = 0;
  size_t lowest_gone = SIZE_MAX;
  for (size_t i = 0; i < model_pages; i++) {
    if (state[i] != DIRTY || bits_test(zone.dirty_bits, i)) continue;
    bool any_aged = false; /* of the system's page */
    for (size_t j = i - i % whole_pages(), end = j + whole_pages(); j < end; j++) any_aged |= aged[j];
    CHECK_THAT(any_aged || !only_aged, "page %zu went, but is not aged", i);
    if (!is_emulated()) CHECK_THAT(!is_resident(page_address(i)), "page %zu still holds memory", i);
    check_zeros(i, 1);
    state[i] = CLEAN;
    gone++;
    if (lowest_gone == SIZE_MAX) lowest_gone = i;
  }
  for (size_t i = 0; i < model_pages; i += whole_pages()) {
    bool all_free = true, any_dirty = false; /* then a page of the system holds memory for nothing */
    for (size_t j = i; j < i + whole_pages(); j++) {
      all_free &= state[j] != TAKEN;
      any_dirty |= state[j] == DIRTY && (aged[j] || !only_aged);
      if (state[j] == CLEAN) aged[j] = false;
    }
    bool whole = all_free && any_dirty;
    whole_left += whole;
    CHECK_THAT(!whole || lowest_gone == SIZE_MAX || i / CHUNK_PAGES <= lowest_gone / CHUNK_PAGES,
               "page %zu is dirty, a lower chunk was purged", i);
  }
  CHECK_THAT(purged == gone && before - gone == pages_dirty(), "says %zu, went %zu", purged, gone);
  CHECK_THAT(pages_dirty() <= keep_pages || whole_left == 0, "%zu dirty, %zu to keep", pages_dirty(), keep_pages);
  return purged;
}

static void age(void) {
  pages_age();
  for (size_t i = 0; i < model_pages; i++) aged[i] = state[i] == DIRTY;
}

static size_t shrink(bool in_part) {
  size_t end = model_pages;
  while (end > 0) {
    size_t clean = 0;
    for (size_t i = end - CHUNK_PAGES; i < end; i++) clean += state[i] == CLEAN;
    if (clean < CHUNK_PAGES) break;
    end -= CHUNK_PAGES;
  }
  if (in_part) {
    size_t spare = end / 8 < SHRINK_CHUNKS * CHUNK_PAGES ? end / 8 / CHUNK_PAGES : SHRINK_CHUNKS;
    end += (SPARE_CHUNKS + spare) * CHUNK_PAGES;
    if (end > model_pages) end = model_pages;
    if (end + SHRINK_CHUNKS * CHUNK_PAGES < model_pages) end = model_pages - SHRINK_CHUNKS * CHUNK_PAGES;
  }
  size_t gone = model_pages - end;
  if (in_part) {
    pages_shrink_in_part();
  } else {
    gone = pages_shrink();
  }
  CHECK_THAT(gone == model_pages - end && zone_pages() == end, "%zu pages went, model %zu", gone, model_pages - end);
  for (size_t i = end; i < model_pages; i++) state[i] = ABOVE;
  model_pages = end;
  if (model_top > end) model_top = end;
  return gone;
}

/* ---- tests ---- */

static size_t random_length(void) {
  size_t kind = random_below(&random_state, 10);
  return 1 + random_below(&random_state, kind < 6 ? 8 : kind < 9 ? 64 : PAGES_RUN_MAX);
}

static void random_step(size_t live_max) {
  size_t choice = random_below(&random_state, 100);
  struct range *victim = taken_count != 0 ? &taken[random_below(&random_state, taken_count)] : NULL;
  if (choice < 45 && taken_count < live_max) {
    size_t count = random_length(), align_pages = (size_t)1 << random_below(&random_state, 9);
    if (choice > 8) align_pages = 1;
    size_t first = take(count, align_pages);
    REQUIRE(first != PAGE_NONE);
    taken[taken_count++] = (struct range){first, count};
  } else if (choice < 80 && victim != NULL) {
    give(victim->first, victim->count, choice < 55 ? random_next(&random_state) : 0);
    *victim = taken[--taken_count];
  } else if (choice < 95 && victim != NULL) {
    extend(victim, victim->count + 1 + random_below(&random_state, 8));
  } else if (choice < 98) {
    purge(random_below(&random_state, pages_dirty() + 1), choice == 97);
    age();
  } else if (choice == 98) {
    purge(0, random_below(&random_state, 2) == 0);
  } else {
    shrink(random_below(&random_state, 2) == 0);
  }
}

TEST(random_operations_agree_with_the_model) {
  init_once();
  random_state = 1;
  for (int step = 0; step < 4000; step++) {
    random_step(step / 1000 % 2 == 0 ? RUNS : 40); /* fill, empty, fill, empty */
    compare();
    if (test_failed) return;
  }
}

static void give_all(void) {
  while (taken_count != 0) {
    struct range *run = &taken[--taken_count];
    give(run->first, run->count, 0);
  }
}

TEST(an_empty_heap_shrinks_to_nothing_and_grows_again) {
  init_once();
  give_all();
  compare();
  purge(0, false);
  size_t dirty = pages_dirty(); /* none: chunks consist of whole system pages */
  CHECK_THAT(dirty == 0, "%zu pages stay dirty", dirty);
  shrink(false);
  CHECK(zone_pages() == 0 && pages_top() == 0);
  compare();
  for (int i = 0; i < 5; i++) {
    taken[taken_count++] = (struct range){take(PAGES_RUN_MAX, 1), PAGES_RUN_MAX};
    compare();
  }
  give_all();
}

/* At ticks 64 MiB at a time, and down to what the heap may grow by soon; else all that no page in use lies above. */
TEST(a_zone_after_a_peak_shrinks_slice_by_slice) {
  enum { PEAK_CHUNKS = 60, KEPT_CHUNKS = 16 };
  init_once();
  give_all();
  purge(0, false);
  while (zone_pages() < PEAK_CHUNKS * CHUNK_PAGES) {
    size_t first = take(PAGES_RUN_MAX, 1);
    REQUIRE(first != PAGE_NONE && taken_count < RUNS);
    taken[taken_count++] = (struct range){first, PAGES_RUN_MAX};
  }
  shrink(true);
  CHECK_THAT(zone_pages() >= PEAK_CHUNKS * CHUNK_PAGES, "%zu pages while all are in use", zone_pages());
  for (size_t i = taken_count; i-- > 0;) {
    if (taken[i].first < KEPT_CHUNKS * CHUNK_PAGES) continue;
    give(taken[i].first, taken[i].count, 0);
    taken[i] = taken[--taken_count];
  }
  shrink(true);
  CHECK_THAT(zone_pages() >= PEAK_CHUNKS * CHUNK_PAGES, "%zu pages while they are dirty", zone_pages());
  purge(0, false);
  size_t least = (KEPT_CHUNKS + KEPT_CHUNKS / 8 + SPARE_CHUNKS) * CHUNK_PAGES, slices = 0;
  for (size_t gone = 1; gone != 0; slices += gone != 0) {
    gone = shrink(true);
    CHECK_THAT(gone <= SHRINK_CHUNKS * CHUNK_PAGES, "%zu pages at once", gone);
  }
  CHECK_THAT(zone_pages() == least && slices == 3, "%zu pages after %zu slices, not %zu", zone_pages(), slices, least);
  compare();
  shrink(false);
  CHECK_THAT(zone_pages() == KEPT_CHUNKS * CHUNK_PAGES, "%zu pages", zone_pages());
  compare();
  give_all();
}

/* The page of a run that purging leaves when system pages are larger: its neighbours are in use. */
TEST(only_whole_pages_of_the_system_are_purged) {
  init_once();
  if (whole_pages() == 1) SKIP("needs system pages above 4 KiB");
  purge(0, false);
  size_t first = take(PAGES_RUN_MAX, PAGES_RUN_MAX);
  give(first + 1, whole_pages() - 1, 0);
  CHECK(purge(0, false) == 0 && pages_dirty() == whole_pages() - 1);
  give(first + whole_pages(), whole_pages(), 0);
  CHECK(purge(0, false) == whole_pages() && pages_dirty() == whole_pages() - 1);
  compare();
  give(first, 1, 0);
  CHECK(purge(0, false) == whole_pages() && pages_dirty() == 0);
  give(first + 2 * whole_pages(), PAGES_RUN_MAX - 2 * whole_pages(), 0);
  compare();
}

TEST(a_refused_purge_keeps_the_pages_dirty) {
  init_once();
  size_t first = take(100, 1), dirty = pages_dirty();
  give(first, 100, 0);
  refuse_purge = true;
  CHECK(pages_purge(0, false) == 0 && pages_dirty() >= 100 && pages_dirty() >= dirty);
  refuse_purge = false;
  compare();
  CHECK(purge(0, false) >= 100);
  compare();
}

TEST(refused_memory_is_no_memory_until_it_is_granted) {
  init_once();
  refuse_commit = true;
  while (taken_count < RUNS) {
    size_t first = take(PAGES_RUN_MAX, 1);
    if (first == PAGE_NONE) break;
    taken[taken_count++] = (struct range){first, PAGES_RUN_MAX};
  }
  REQUIRE(taken_count < RUNS);
  compare();
  refuse_commit = false;
  size_t first = take(PAGES_RUN_MAX, 1);
  CHECK(first != PAGE_NONE);
  taken[taken_count++] = (struct range){first, PAGES_RUN_MAX};
  compare();
  give_all();
  compare();
}

/* 1 GiB in runs of up to 200 KiB, of which a third is free. */
enum { MANY_RUNS = 12000, MANY_PAGES = 256 * 1024 };
static struct range many[MANY_RUNS];

static size_t fill_with_holes(void) {
  bool clean;
  size_t count = 0, kept = 0;
  for (size_t total = 0; total < MANY_PAGES && count < MANY_RUNS; total += many[count++].count) {
    size_t length = 1 + random_below(&random_state, 50);
    many[count] = (struct range){pages_take(length, 1, &clean), length};
    REQUIRE(many[count].first != PAGE_NONE);
  }
  for (size_t i = 0; i < count; i++) {
    if (random_below(&random_state, 10) < 3) {
      pages_give(many[i].first, many[i].count, 0);
    } else {
      many[kept++] = many[i];
    }
  }
  return kept;
}

static void take_aligned_beside_holes(void) {
  enum { TURNS = 6000, ALIGNED_PAGES = 16, LOOKS_MAX = 1000 };
  random_state = 7;
  fill_with_holes();
  size_t before = zone_pages(), most = 0;
  bool clean;
  looks = 0;
  for (size_t turn = 0; turn < TURNS; turn++) {
    size_t looks_before = looks, first = pages_take(ALIGNED_PAGES, ALIGNED_PAGES, &clean);
    REQUIRE(first != PAGE_NONE && first % ALIGNED_PAGES == 0);
    if (looks - looks_before > most) most = looks - looks_before;
  }
  CHECK_THAT(looks / TURNS < LOOKS_MAX, "%zu looks at bits for each, %zu at most", looks / TURNS, most);
  size_t more = zone_pages() - before;
  CHECK_THAT(more < TURNS * ALIGNED_PAGES, "the heap grew by %zu pages for %d", more, TURNS * ALIGNED_PAGES);
  pages_check();
  refuse_commit = true;
  size_t count = 0;
  while (pages_take(ALIGNED_PAGES, ALIGNED_PAGES, &clean) != PAGE_NONE) count++;
  for (size_t first = 0; first < zone_pages(); first += ALIGNED_PAGES)
    CHECK_THAT(bits_count(zone.free_bits, first, ALIGNED_PAGES) != ALIGNED_PAGES, "page %zu would fit", first);
  CHECK(count != 0);
  pages_check();
}

TEST(aligned_runs_are_found_without_a_look_at_every_hole) {
  init_once();
  run_in_child(take_aligned_beside_holes);
}

static size_t broken_page;
static void give_twice(void) {
  pages_give(broken_page, 4, 0);
  pages_give(broken_page + 3, 1, 0);
}
static void lose_a_free_bit(void) {
  zone.free_bits[broken_page / 64] ^= (uint64_t)1 << (broken_page % 64);
  pages_check();
}
static void lose_a_dirty_bit(void) {
  zone.dirty_bits[broken_page / 64] ^= (uint64_t)1 << (broken_page % 64);
  pages_check();
}
static void miscount_the_longest(void) {
  pages.chunks[0].longest_free = 0;
  pages_check();
}
static void miscount_the_total(void) {
  pages.free_pages++;
  pages_check();
}

TEST(broken_state_is_found) {
  init_once();
  broken_page = take(4, 1);
  check_dies(give_twice, "heap metadata is corrupted");
  check_dies(lose_a_free_bit, "heap metadata is corrupted");
  check_dies(lose_a_dirty_bit, "heap metadata is corrupted");
  check_dies(miscount_the_longest, "heap metadata is corrupted");
  check_dies(miscount_the_total, "heap metadata is corrupted");
}
