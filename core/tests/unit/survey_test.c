/* survey_test.c: many thread caches, of which each tick looks at a slice: how soon they are emptied, what is seen of
 * their life, what the page of counters says of them, how a new thread finds one and what a forked child does. */
#include "../../src/sys.c"

/* Time passes when a test says so. */
static uint64_t now_ns = UINT64_C(1000000000000);
static uint64_t own_clock(void) { return now_ns; }
#define sys_coarse_time_ns own_clock

/* A purge that is stopped in the middle, by a fork: at so many thefts from now. */
static uint32_t stop_at_barrier;
static bool barrier_and_stop(void);
#define sys_barrier_all_threads barrier_and_stop

/* Threads that ended without a word. */
enum { OWNER_ID = 1 << 30, GONE_ID };
static uint32_t questions;
static bool own_thread_exists(uint32_t process, uint32_t thread) {
  questions++;
  return thread == OWNER_ID || (thread != GONE_ID && sys_thread_exists(process, thread));
}
#define sys_thread_exists own_thread_exists
#include "above_sys.h"
#include "caches.h"

static bool barrier_and_stop(void) {
  if (stop_at_barrier != 0 && --stop_at_barrier == 0) purge_stop(true);
  return true;
}

#include <sys/resource.h>

enum { SOME = 300, LOTS = 3000, TICK_MS = 100, IDLE = 2 };
#define TICK ((uint64_t)TICK_MS * 1000000)

static struct cache *crowd[LOTS]; /* of threads that exist for the tests' sake */
static uint32_t crowd_count;

/* As a thread that attaches. */
static struct cache *attach_another(void) {
  lock_take(&caches.lock, RANK_CACHES);
  struct cache *cache = find_unused();
  REQUIRE(cache != NULL);
  set_in_use(cache, true);
  cache->thread_id = OWNER_ID;
  cache->arena = 0;
  cache->door = (struct door){.cache = cache};
  arena_join(0);
  counter_bump(&snug_counters.caches, 1);
  lock_give(&caches.lock, RANK_CACHES);
  return cache;
}

static void crowd_ends(void) {
  lock_take(&caches.lock, RANK_CACHES);
  while (crowd_count != 0) {
    struct cache *cache = crowd[--crowd_count];
    if (cache->in_use) cache_release(cache);
  }
  lock_give(&caches.lock, RANK_CACHES);
}

static void make_crowd(uint32_t count) {
  freeze_policies();
  REQUIRE(count <= LOTS && crowd_count == 0);
  while (crowd_count < count) crowd[crowd_count++] = attach_another();
}

static void disperse(void) {
  crowd_ends();
  CHECK_THAT(snug_counters.caches == 1 && arena_users(0) == 1, "%u caches", (unsigned)snug_counters.caches);
  thaw_policies();
  snug_check();
}

/* As its thread that frees a block of the class, with a slow call the first time. */
static void use(struct cache *cache) {
  struct bin *bin = &cache->bin[CLASS];
  bool contended;
  if (bin_capacity(bin) == 0) bin_set_capacity(cache, CLASS, first_capacity(CLASS));
  if (bin_count(cache, bin) == bin_capacity(bin)) bin_give(cache, bin, 1);
  REQUIRE(slab_take(cache->arena, CLASS, bin->top, 1, SIZE, &contended) == 1);
  bin_set_top(bin, bin->top + 1);
  cache->slow_calls++;
}

static uint32_t emptied(void) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < crowd_count; i++) count += cache_bytes(crowd[i]) == 0;
  return count;
}

/* In how many ticks all caches are looked at once. */
static uint32_t turn(void) { return (cache_used_count() + survey_slice() - 1) / survey_slice(); }

static uint32_t rounded_up_to_turns(uint32_t count) { return (count + turn() - 1) / turn() * turn(); }

/* ---- thieves ---- */

/* The second half is used for a while longer. */
static void check_that_idle_ones_are_emptied(uint32_t count) {
  make_crowd(count);
  for (uint32_t i = 0; i < count; i++) use(crowd[i]);
  uint32_t most = turn() + rounded_up_to_turns(IDLE), call = 0;
  CHECK_THAT(most <= 32 && turn() == (count == SOME ? 3 : 16), "%u of %u ticks", most, turn());
  for (; call < most; call++) {
    for (uint32_t i = count / 2; i < count; i++) use(crowd[i]);
    steal_caches(IDLE, this_thread.own);
    if (call < IDLE) CHECK_THAT(emptied() == 0, "%u were emptied after %u ticks", emptied(), call);
  }
  CHECK_THAT(emptied() == count / 2, "%u of %u were emptied after %u ticks", emptied(), count / 2, call);
  for (call = 0; call < most; call++) steal_caches(IDLE, this_thread.own);
  CHECK_THAT(emptied() == count, "%u of %u were emptied after %u ticks", emptied(), count, call);
  for (uint32_t i = 0; i < count; i++) CHECK(crowd[i]->door.cache == crowd[i] && !crowd[i]->is_victim);
  disperse();
}

TEST(each_of_300_idle_caches_is_emptied_within_two_turns) { check_that_idle_ones_are_emptied(SOME); }
TEST(each_of_3000_idle_caches_is_emptied_within_two_turns) { check_that_idle_ones_are_emptied(LOTS); }

static void check_that_vanished_ones_are_released(uint32_t count) {
  make_crowd(count);
  uint32_t own_caches = (uint32_t)snug_counters.caches - count, call = 0;
  for (uint32_t i = 0; i < count; i += 2) crowd[i]->thread_id = GONE_ID;
  questions = 0;
  for (; call < 2 * GONE_TICKS && snug_counters.caches > own_caches + count / 2; call++)
    steal_caches(IDLE, this_thread.own);
  CHECK_THAT(snug_counters.caches == own_caches + count / 2, "%u caches after %u ticks", (unsigned)snug_counters.caches,
             call);
  for (uint32_t i = 0; i < count; i++) CHECK(crowd[i]->in_use == i % 2);
  CHECK_THAT(questions <= 2 * count, "%u questions", questions);
  disperse();
}

TEST(caches_of_vanished_threads_are_released_within_32_ticks) {
  check_that_vanished_ones_are_released(SOME);
  check_that_vanished_ones_are_released(LOTS);
}

/* A fork stops a purge again and again. */
TEST(a_theft_that_was_stopped_goes_on_where_it_was) {
  make_crowd(SOME);
  uint32_t turns = 0;
  for (uint32_t i = 0; i < SOME; i++) use(crowd[i]);
  for (; emptied() < SOME && turns < 20; turns++) {
    use(crowd[0]);
    stop_at_barrier = 2;
    steal_caches(0, this_thread.own);
    purge_stop(false);
    uint32_t rest = 0;
    for (uint32_t i = 1; i < SOME; i++) rest += cache_bytes(crowd[i]) != 0;
    if (rest == 0) break;
  }
  stop_at_barrier = 0;
  CHECK_THAT(turns <= 2 * SOME / VICTIMS_MAX + 2, "%u turns", turns);
  disperse();
}

/* ---- life ---- */

/* So many of the janitor's looks until one sees nothing new. */
static uint32_t looks_until_quiet(void) {
  uint32_t looks = 0;
  for (uint64_t before = survey_activity(), now; looks < 100; looks++, before = now) {
    now = survey_activity();
    if (now == before) break;
  }
  return looks;
}

static void check_that_life_is_seen(uint32_t count) {
  uint64_t random = count;
  make_crowd(count);
  for (uint32_t i = 0; i < count; i++) use(crowd[i]);
  uint32_t looks = looks_until_quiet();
  CHECK_THAT(looks <= turn(), "%u looks after the last life of %u", looks, count);
  for (int i = 0; i < 200; i++) {
    uint64_t before = survey_activity();
    use(crowd[random_below(&random, count)]);
    CHECK_THAT(survey_activity() != before, "life %d of %u was not seen", i, count);
  }
  looks_until_quiet();
  uint64_t before = survey_activity();
  CHECK(before == survey_activity());
  disperse();
}

TEST(any_life_is_seen_at_once_and_soon_forgotten) {
  check_that_life_is_seen(SOME);
  check_that_life_is_seen(LOTS);
}

/* Else a process that idles would look busy for as long as its caches are emptied one after the other. */
TEST(a_theft_is_no_life) {
  make_crowd(LOTS);
  for (uint32_t i = 0; i < LOTS; i++) use(crowd[i]);
  looks_until_quiet();
  uint64_t before = survey_activity();
  for (uint32_t call = 0; call < 32; call++) {
    steal_caches(IDLE, this_thread.own);
    CHECK_THAT(survey_activity() == before, "after tick %u", call);
  }
  CHECK(emptied() == LOTS);
  for (uint32_t i = 0; i < LOTS; i++) use(crowd[i]);
  looks_until_quiet();
  use(crowd[7]); /* not seen before the theft */
  before = counter_get(&snug_counters.steals);
  uint64_t activity = survey_activity();
  use(crowd[8]);
  steal_caches(0, this_thread.own); /* closes bins, too */
  CHECK(counter_get(&snug_counters.steals) == before + LOTS && survey_activity() != activity);
  disperse();
}

/* ---- what the page of counters says ---- */

static uint64_t counted(void) {
  uint64_t sum = this_thread.own->counted_bytes;
  for (uint32_t i = 0; i < crowd_count; i++) sum += crowd[i]->counted_bytes;
  return sum;
}

static void check_the_counter(uint32_t count) {
  static uint64_t used_ns[LOTS]; /* when each was used last */
  uint64_t random = count;
  make_crowd(count);
  CHECK(held_bytes() == cache_bytes(this_thread.own) && snug_counters.cached_at_ns == now_ns);
  for (uint32_t i = 0; i < count; i++) used_ns[i] = now_ns;
  for (uint32_t tick = 0; tick < 100; tick++) {
    for (int k = 0; k < 5; k++) {
      uint32_t i = (uint32_t)random_below(&random, count);
      use(crowd[i]);
      used_ns[i] = now_ns;
    }
    now_ns += TICK;
    gauges_refresh(false);
    CHECK(snug_counters.cached_bytes == counted()); /* H1 */
    uint64_t at_ns = snug_counters.cached_at_ns;
    CHECK_THAT(at_ns <= now_ns && now_ns - at_ns <= (2 * turn() - 1) * TICK, "%zu ms old at tick %u of %u caches",
               (size_t)((now_ns - at_ns) / 1000000), tick, count);
    for (uint32_t i = 0; i < count; i++) /* H2 */
      CHECK(used_ns[i] >= at_ns || crowd[i]->counted_bytes == cache_bytes(crowd[i]));
  }
  uint64_t held = held_bytes();
  CHECK(held == snug_counters.cached_bytes && snug_counters.cached_at_ns == now_ns);
  for (uint32_t i = 0; i < count; i++) held -= cache_bytes(crowd[i]);
  CHECK(held == cache_bytes(this_thread.own));
  crowd_ends();
  for (uint32_t tick = turn(); tick != 0; tick--) gauges_refresh(false);
  CHECK_THAT(snug_counters.cached_bytes == cache_bytes(this_thread.own), "%zu bytes of caches without owners",
             (size_t)snug_counters.cached_bytes);
  disperse();
}

TEST(what_caches_hold_is_counted_by_slices) {
  check_the_counter(SOME);
  check_the_counter(LOTS);
}

TEST(few_caches_are_counted_at_every_tick) {
  make_crowd(SURVEY_SLICE - 1);
  REQUIRE(cache_used_count() <= SURVEY_SLICE || turn() > 1); /* others may have come first */
  use(crowd[0]);
  now_ns += TICK;
  for (uint32_t tick = turn(); tick != 0; tick--) gauges_refresh(false);
  CHECK(snug_counters.cached_bytes == counted() && crowd[0]->counted_bytes == cache_bytes(crowd[0]));
  disperse();
}

/* ---- unused ones ---- */

TEST(new_threads_take_the_lowest_unused_caches) {
  make_crowd(LOTS);
  uint32_t used = cache_used_count();
  uint64_t random = 1;
  for (int turns = 0; turns < 20; turns++) {
    lock_take(&caches.lock, RANK_CACHES);
    for (uint32_t i = 0; i < LOTS; i++) {
      if (random_below(&random, 3) == 0) cache_release(crowd[i]);
    }
    lock_give(&caches.lock, RANK_CACHES);
    for (uint32_t i = 0, last = 0; i < LOTS; i++) {
      if (crowd[i]->in_use) continue;
      struct cache *cache = attach_another();
      CHECK_THAT(cache == crowd[i] && cache_index(cache) > last, "cache %u, not %u", cache_index(cache), i);
      last = cache_index(cache);
    }
    CHECK(cache_used_count() == used);
  }
  disperse();
}

/* ---- in a forked child ---- */

static void fork_into(void (*body)(void)) {
  thaw_policies(); /* it takes all locks */
  run_in_child(body);
  freeze_policies();
}

static void check_what_is_left(void) {
  CHECK_THAT(snug_counters.caches == 1 && arena_users(0) == 1 && snug_counters.cached_bytes == 0, "%u caches, %u users",
             (unsigned)snug_counters.caches, arena_users(0));
  for (uint32_t i = 0; i < caches.count; i++) {
    CHECK(cache_number(i)->in_use == (cache_number(i) == this_thread.own));
    CHECK(bits_test(caches.unused, i) == !cache_number(i)->in_use && !cache_number(i)->is_victim);
    CHECK(cache_number(i) == this_thread.own || cache_number(i)->counted_bytes == 0);
  }
  lock_take(&caches.lock, RANK_CACHES);
  CHECK(find_unused() == cache_number(this_thread.own == cache_number(0)));
  lock_give(&caches.lock, RANK_CACHES);
  snug_check();
}

static void take_stock(void) {
  free(malloc(SIZE));
  CHECK(!cache_is_after_fork());
  check_what_is_left();
}

static void check_first_call_copies(long most) {
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  free(malloc(SIZE));
  getrusage(RUSAGE_SELF, &after);
  long copied = after.ru_minflt - before.ru_minflt;
  if (!is_emulated()) CHECK_THAT(copied < most, "%ld pages were copied", copied);
}

static void take_stock_of_unused_ones(void) {
  check_first_call_copies(LOTS / 10);
  take_stock();
}

TEST(a_child_leaves_pages_of_unused_caches_alone) {
  make_crowd(LOTS);
  for (uint32_t i = 0; i < LOTS; i++) use(crowd[i]);
  held_bytes();
  crowd_ends();
  held_bytes();
  fork_into(take_stock_of_unused_ones);
  disperse();
}

static void take_stock_of_vanished_ones(void) {
  uint64_t in_use = outstanding(CLASS), cached = snug_counters.cached_bytes;
  check_first_call_copies(100);
  CHECK_THAT(outstanding(CLASS) + TAKEN_IN_AT_ONCE + 2 >= in_use && snug_counters.caches == 1, "%d blocks went",
             (int)(in_use - outstanding(CLASS)));
  CHECK(snug_counters.cached_bytes <= cached && snug_counters.cached_bytes + 2 * TAKEN_IN_AT_ONCE * SIZE >= cached);
  CHECK(cache_has_vanished());
}

static void all_are_in(uint64_t in_use) {
  CHECK_THAT(outstanding(CLASS) + LOTS <= in_use + 16, "%d of %d blocks came back", (int)(in_use - outstanding(CLASS)),
             LOTS);
  CHECK(!cache_has_vanished());
  gauges_refresh(true);
  cache_empty_own();
  gauges_refresh(true);
  check_what_is_left();
}

static void take_all_in_at_ticks(void) {
  uint64_t in_use = outstanding(CLASS);
  take_stock_of_vanished_ones();
  uint32_t ticks = turn();
  for (uint32_t i = 0; i < ticks; i++) {
    uint64_t before = outstanding(CLASS);
    steal_caches(IDLE, this_thread.own);
    CHECK_THAT(before - outstanding(CLASS) <= survey_slice(), "%d at a tick", (int)(before - outstanding(CLASS)));
  }
  all_are_in(in_use);
}

static void take_all_in_at_a_purge(void) {
  uint64_t in_use = outstanding(CLASS);
  size_t bytes;
  take_stock_of_vanished_ones();
  CHECK(purge_all_locked(this_thread.own, &bytes));
  all_are_in(in_use);
}

/* Where membarrier may not be called nobody steals, but what is nobody's needs none. */
static void take_all_in_without_rights(void) {
  uint64_t in_use = outstanding(CLASS);
  take_stock_of_vanished_ones();
  rights_end();
  steal_caches(0, this_thread.own);
  all_are_in(in_use);
}

/* A fork that waits ends it, and the child of a child has the rest. */
static void take_the_rest_in(void) {
  check_first_call_copies(100);
  size_t bytes;
  CHECK(purge_all_locked(this_thread.own, &bytes) && !cache_has_vanished());
  CHECK(snug_counters.caches == 1);
  for (uint32_t i = 0; i < caches.count; i++) CHECK(cache_number(i)->in_use == (cache_number(i) == this_thread.own));
}

static void take_half_in_and_fork(void) {
  take_stock_of_vanished_ones();
  purge_stop(true);
  CHECK(!cache_take_vanished_in(0, caches.count) && cache_has_vanished());
  purge_stop(false);
  CHECK(cache_take_vanished_in(0, caches.count / 2) && cache_has_vanished());
  run_in_child(take_the_rest_in);
}

/* A child that needs as many caches as there can be. */
static void take_in_what_a_thread_needs(void) {
  take_stock_of_vanished_ones();
  caches.capacity = caches.count;
  for (uint32_t i = 1; i < caches.count; i++) attach_another();
  lock_take(&caches.lock, RANK_CACHES);
  CHECK(find_unused() == NULL && !cache_has_vanished());
  lock_give(&caches.lock, RANK_CACHES);
}

TEST(a_child_takes_the_caches_of_vanished_threads_in_bit_by_bit) {
  static void (*const bodies[])(void) = {take_all_in_at_ticks, take_all_in_at_a_purge, take_all_in_without_rights,
                                         take_half_in_and_fork, take_in_what_a_thread_needs};
  for (size_t i = 0; i < COUNT_OF(bodies); i++) {
    make_crowd(LOTS);
    for (uint32_t k = 0; k < LOTS; k++) use(crowd[k]);
    held_bytes();
    fork_into(bodies[i]);
    disperse();
  }
}

/* As threads that were attaching or ending at the fork leave it, where a handler forked (K4). */
static void take_stock_of_a_mess(void) {
  snug_counters.caches += 5;
  arena_join(0);
  cache_number(SOME / 2)->in_use = false;
  bits_set(caches.unused, SOME / 3, 1, true);
  caches.unused_from = SOME;
  cache_number(SOME / 4)->is_victim = true;
  caches.skipped_locks = true;
  take_stock();
}

TEST(a_child_counts_its_caches_anew) {
  make_crowd(SOME);
  for (uint32_t i = 0; i < SOME; i++) use(crowd[i]);
  held_bytes();
  fork_into(take_stock_of_a_mess);
  disperse();
}

static void close_all(void) {
  free(malloc(SIZE));
  struct cache *own = this_thread.own;
  cache_close();
  CHECK(cache_end_number() == 0 && own->door.cache == &empty_cache);
  free(malloc(SIZE));
  CHECK(this_thread.own == NULL && !own->in_use && snug_counters.caches == 0);
}

TEST(threads_of_many_are_called_in) {
  make_crowd(SOME);
  cache_call_in();
  for (uint32_t i = 0; i < SOME; i++) CHECK(crowd[i]->door.cache == &empty_cache);
  fork_into(close_all);
  disperse();
}

/* ---- caches of threads that ended ---- */

/* By smaps, which leaves out the kernel's page of zeros that stands in for what was only read. */
static size_t resident_bytes_of_caches(void) {
  static char line[4096];
  FILE *file = is_emulated() ? NULL : fopen("/proc/self/smaps", "r");
  size_t kib = 0, part;
  bool is_ours = false;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    char *rest;
    size_t begin = strtoul(line, &rest, 16);
    if (rest != line && *rest == '-') is_ours = begin - (uintptr_t)caches.table.start < caches.table.reserved_bytes;
    if (is_ours && sscanf(line, "Rss: %zu kB", &part) == 1) kib += part;
  }
  if (file != NULL) fclose(file);
  return kib * KIB;
}

/* A thread that has used all of its cache, and ended. */
static void use_all_and_end(void) {
  for (uint32_t i = 0; i < crowd_count; i++) {
    use(crowd[i]);
    for (size_t at = GROWN_SLOTS_OFFSET; at < CACHE_BYTES; at += PAGE_BYTES) ((char *)crowd[i])[at] = 1;
  }
  crowd_ends();
}

static size_t counted_caches(void) {
  gauges_refresh(true);
  size_t others = metadata_bytes(pages_account().top_pages, 0);
  return (snug_counters.metadata_bytes - others) / round_up(CACHE_TOUCHED_BYTES, zone.page_bytes);
}

static void check_that_memory_of_ended_ones_goes(uint32_t count) {
  make_crowd(count);
  use_all_and_end();
  uint32_t ended = cache_ended_count();
  CHECK_THAT(ended >= count && counted_caches() == ended + 1, "%u ended, %zu counted", ended, counted_caches());
  size_t bytes;
  CHECK(purge_all_locked(this_thread.own, &bytes) && bytes >= (size_t)count * CACHE_TOUCHED_BYTES);
  CHECK_THAT(cache_ended_count() == 0 && counted_caches() == 1, "%u ended, %zu counted", cache_ended_count(),
             counted_caches());
  survey_activity();
  size_t resident = resident_bytes_of_caches();
  CHECK_THAT(resident <= 4 * CACHE_BYTES, "%zu KiB are resident", resident / KIB);
  CHECK(purge_all_locked(this_thread.own, &bytes) && bytes < (size_t)count * CACHE_TOUCHED_BYTES);
  uint32_t used = cache_used_count();
  while (crowd_count < count) crowd[crowd_count++] = attach_another(); /* the same ones, of zeros */
  CHECK(cache_used_count() == used);
  for (uint32_t i = 0; i < count; i++) use(crowd[i]);
  CHECK_THAT(held_bytes() >= (size_t)count * SIZE && emptied() == 0, "%zu bytes are held", held_bytes());
  disperse();
}

TEST(memory_of_300_ended_threads_caches_goes) { check_that_memory_of_ended_ones_goes(SOME); }
TEST(memory_of_3000_ended_threads_caches_goes) { check_that_memory_of_ended_ones_goes(LOTS); }

/* A fork waits: what was not looked at goes the next time. */
TEST(a_stopped_purge_leaves_ended_caches_for_the_next_one) {
  make_crowd(SOME);
  use_all_and_end();
  size_t bytes;
  purge_stop(true);
  CHECK(!purge_all_locked(this_thread.own, &bytes) && cache_ended_count() >= SOME);
  purge_stop(false);
  CHECK(purge_all_locked(this_thread.own, &bytes) && cache_ended_count() == 0);
  disperse();
}

/* A thread that attaches meanwhile gets another one; it is unused again afterwards, unless a child of a handler's fork
 * (K4) has used it. */
TEST(a_cache_whose_memory_goes_is_nobodys_meanwhile) {
  make_crowd(SOME);
  crowd_ends();
  struct cache *batch[CACHE_ENDED_BATCH];
  uint32_t count = cache_take_ended(batch);
  CHECK_THAT(count == CACHE_ENDED_BATCH, "%u were taken", count);
  struct cache *other = attach_another();
  for (uint32_t i = 0; i < count; i++) CHECK(batch[i] != other && !batch[i]->in_use);
  lock_take(&caches.lock, RANK_CACHES);
  cache_release(other);
  lock_give(&caches.lock, RANK_CACHES);
  cache_put_back(batch, count);
  for (uint32_t i = 0; i < count; i++) CHECK(bits_test(caches.unused, cache_index(batch[i])));
  CHECK(attach_another() == batch[0]);
  crowd[crowd_count++] = batch[0];
  disperse();
}

/* The last of them may end while nothing else happens in the process. */
TEST(ends_of_threads_are_worth_a_janitor) {
  size_t bytes;
  make_crowd(SOME);
  CHECK(purge_all_locked(this_thread.own, &bytes));
  purge_looked();
  bool before = purge_janitor_is_worth();
  crowd_ends();
  size_t freed = dirty_pages() + slab_touched_pages() + (size_t)cache_ended_count() * CACHE_TOUCHED_PAGES;
  CHECK(!before && purge_janitor_is_worth() && freed > purge_look_pages && cache_after_thread != NULL);
  CHECK(purge_all_locked(this_thread.own, &bytes) && !purge_janitor_is_worth());
  disperse();
}
