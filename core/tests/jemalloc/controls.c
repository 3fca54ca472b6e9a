/* controls.c: mallctl and its MIBs: errors, and what the answers are worth. names.c asks for every name. */
#include <pthread.h>

#include "../../include/jemalloc/jemalloc.h"
#include "../../include/snug.h"
#include "../support/test.h"

static size_t read_size(const char *name) {
  size_t value = (size_t)-7, bytes = sizeof value;
  int result = mallctl(name, &value, &bytes, NULL, 0);
  CHECK_THAT(result == 0 && bytes == sizeof value, "%s: %d, %zu bytes", name, result, bytes);
  return value;
}

static unsigned read_unsigned(const char *name) {
  unsigned value = 77777;
  size_t bytes = sizeof value;
  int result = mallctl(name, &value, &bytes, NULL, 0);
  CHECK_THAT(result == 0 && bytes == sizeof value, "%s: %d, %zu bytes", name, result, bytes);
  return value;
}

static bool read_bool(const char *name) {
  unsigned char value = 7;
  size_t bytes = sizeof(bool);
  int result = mallctl(name, &value, &bytes, NULL, 0);
  CHECK_THAT(result == 0 && bytes == sizeof(bool) && value <= 1, "%s: %d, %zu bytes, %d", name, result, bytes, value);
  return value == 1;
}

static const char *read_text(const char *name) {
  const char *value = NULL;
  size_t bytes = sizeof value;
  int result = mallctl(name, &value, &bytes, NULL, 0);
  CHECK_THAT(result == 0 && bytes == sizeof value && value != NULL, "%s: %d, %zu bytes", name, result, bytes);
  return value != NULL ? value : "";
}

static void refresh(void) {
  uint64_t epoch = 1;
  CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
}

/* ---- names ---- */

TEST(what_can_only_be_read_is_not_written) {
  size_t value = 1;
  CHECK(mallctl("version", NULL, NULL, &value, sizeof value) == EPERM);
  CHECK(mallctl("stats.allocated", NULL, NULL, &value, sizeof value) == EPERM);
  CHECK(mallctl("stats.allocated", NULL, NULL, &value, 1) == EPERM);
  CHECK(mallctl("opt.narenas", NULL, NULL, &value, sizeof value) == EPERM);
  CHECK(mallctl("config.stats", NULL, NULL, &value, sizeof(bool)) == EPERM);
}

TEST(names_that_are_none) {
  static const char *const none[] = {"",
                                     ".",
                                     "stats",
                                     "stats.",
                                     ".stats",
                                     "stats.allocated.",
                                     "stats.allocated.x",
                                     "Version",
                                     "version ",
                                     "arena",
                                     "arena.0",
                                     "arena.x.purge",
                                     "arena..purge",
                                     "arena.-1.purge",
                                     "arena.99999.purge",
                                     "arena.0x0.purge",
                                     "a.b.c.d.e.f.g.h.i.j.k.l",
                                     "arena.18446744073709551616.purge"};
  for (size_t i = 0; i < COUNT_OF(none); i++) {
    int result = mallctl(none[i], NULL, NULL, NULL, 0);
    CHECK_THAT(result == ENOENT, "\"%s\": %d", none[i], result);
  }
}

/* ---- MIBs ---- */

TEST(a_mib_takes_other_arenas) {
  size_t mib[5], length = COUNT_OF(mib), all = 0, first = 0, bytes = sizeof all;
  void *block = hidden(malloc(100));
  REQUIRE(mallctlnametomib("stats.arenas.0.small.allocated", mib, &length) == 0 && length == 5);
  refresh();
  CHECK(mallctlbymib(mib, length, &first, &bytes, NULL, 0) == 0 &&
        first == read_size("stats.arenas.0.small.allocated"));
  mib[2] = MALLCTL_ARENAS_ALL;
  CHECK(mallctlbymib(mib, length, &all, &bytes, NULL, 0) == 0);
  CHECK(all == read_size("stats.arenas.4096.small.allocated") && all >= first && all > 0);
  mib[2] = 100000;
  CHECK(mallctlbymib(mib, length, &all, &bytes, NULL, 0) == ENOENT);
  size_t purge[3], purge_length = COUNT_OF(purge);
  REQUIRE(mallctlnametomib("arena.0.purge", purge, &purge_length) == 0 && purge_length == 3);
  purge[1] = read_unsigned("arenas.narenas"); /* jemalloc 4's way to say all, which Redis uses */
  CHECK(mallctlbymib(purge, purge_length, NULL, NULL, NULL, 0) == 0);
  free(block);
}

TEST(beginnings_of_names_have_mibs) {
  size_t mib[4] = {9, 9, 9, 9}, length = 2;
  CHECK(mallctlnametomib("stats.arenas.0.pdirty", mib, &length) == 0 && length == 2 && mib[2] == 9);
  length = 4;
  CHECK(mallctlnametomib("stats.arenas", mib, &length) == 0 && length == 2);
  CHECK(mallctlbymib(mib, length, NULL, NULL, NULL, 0) == ENOENT);
  length = 4;
  CHECK(mallctlnametomib("stats.nothing", mib, &length) == ENOENT);
}

TEST(mibs_that_are_none) {
  size_t mib[6] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  for (size_t length = 1; length <= 5; length++) CHECK(mallctlbymib(mib, length, NULL, NULL, NULL, 0) == ENOENT);
  if (!snug_is_active()) SKIP("jemalloc does not look at the rest");
  CHECK(mallctlbymib(mib, 0, NULL, NULL, NULL, 0) == ENOENT && mallctlbymib(mib, 600, NULL, NULL, NULL, 0) == ENOENT);
  CHECK(mallctlbymib(NULL, 1, NULL, NULL, NULL, 0) == EINVAL);
  CHECK(mallctlnametomib("version", NULL, NULL) == EINVAL);
}

/* ---- what the values are worth ---- */

TEST(numbers_follow_the_heap) {
  enum { COUNT = 400 };
  static void *blocks[COUNT];
  refresh();
  size_t before = read_size("stats.allocated");
  for (int i = 0; i < COUNT; i++) {
    blocks[i] = hidden(malloc(20 * KIB));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, 20 * KIB);
  }
  CHECK(read_size("stats.allocated") == before); /* as of the last epoch */
  refresh();
  size_t allocated = read_size("stats.allocated"), active = read_size("stats.active");
  size_t resident = read_size("stats.resident"), mapped = read_size("stats.mapped");
  CHECK_THAT(allocated >= before + COUNT * 20 * KIB && allocated < before + COUNT * 26 * KIB, "%zu, before %zu",
             allocated, before);
  CHECK_THAT(allocated <= active && active <= resident, "%zu %zu %zu", allocated, active, resident);
  CHECK_THAT(active <= mapped, "active %zu, mapped %zu", active, mapped);
  CHECK(read_size("stats.metadata") > 0);
  for (int i = 0; i < COUNT; i++) free(blocks[i]);
  CHECK(mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0);
  refresh();
  if (freed_blocks_wait()) SKIP("freed blocks wait");
  size_t freed = read_size("stats.allocated");
  CHECK_THAT(freed < before + 100 * KIB, "%zu after frees, %zu before", freed, before);
  CHECK(read_size("stats.resident") < resident);
}

TEST(sums_are_right) {
  void *small = hidden(malloc(100)), *large = hidden(malloc(3 * MIB));
  refresh();
  size_t sum = read_size("stats.arenas.4096.small.allocated") + read_size("stats.arenas.4096.large.allocated");
  CHECK_THAT(sum == read_size("stats.allocated"), "%zu, %zu", sum, read_size("stats.allocated"));
  CHECK(read_size("stats.arenas.4096.large.allocated") >= 3 * MIB);
  CHECK(read_size("stats.arenas.4096.pactive") == read_size("stats.active") / read_size("arenas.page"));
  CHECK(read_size("stats.arenas.4096.pmuzzy") == 0 && read_size("arenas.quantum") == 16);
  if (snug_is_active()) {
    size_t of_arenas = 0;
    char name[64];
    for (unsigned i = 0; i < read_unsigned("arenas.narenas"); i++) {
      snprintf(name, sizeof name, "stats.arenas.%u.mapped", i);
      of_arenas += read_size(name);
    }
    CHECK(of_arenas == read_size("stats.mapped"));
    CHECK(read_size("stats.arenas.4096.large.curlextents") >= 1);
  }
  free(small);
  free(large);
}

/* As Redis 8 makes them for its scripts: hints, in which nothing lies. */
TEST(arenas_and_caches_can_be_created) {
  unsigned arena = 0, cache = 0, other = 0;
  size_t bytes = sizeof arena;
  CHECK(mallctl("arenas.create", &arena, &bytes, NULL, 0) == 0 && arena != 0);
  CHECK(mallctl("arenas.create", &other, &bytes, NULL, 0) == 0 && other != arena);
  CHECK(mallctl("tcache.create", &cache, &bytes, NULL, 0) == 0);
  int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE(cache);
  char *block = mallocx(100, flags), name[64];
  REQUIRE(block != NULL);
  block = rallocx(block, 3000, flags);
  REQUIRE(block != NULL);
  dallocx(block, flags);
  CHECK(mallctl("tcache.flush", NULL, NULL, &cache, sizeof cache) == 0);
  CHECK(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache) == 0);
  snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", arena);
  refresh();
  if (!snug_is_active()) SKIP("the rest is asked of snug alone");
  CHECK(read_size(name) == 0);
  CHECK(mallctl("arenas.create", &arena, &bytes, &name, sizeof(void *)) == EPERM); /* with hooks */
  cache = 99999;
  CHECK(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache) == EFAULT);
  CHECK(mallctl("tcache.destroy", NULL, NULL, NULL, 0) == EINVAL);
  CHECK(mallctl("tcache.destroy", &cache, &bytes, NULL, 0) == EPERM);
}

TEST(the_epoch_counts_refreshes) {
  uint64_t old = 0, epoch = 5, bytes_wrong = sizeof epoch - 1;
  size_t bytes = sizeof old;
  CHECK(mallctl("epoch", &old, &bytes, NULL, 0) == 0 && old >= 1);
  CHECK(mallctl("epoch", &epoch, &bytes, &epoch, sizeof epoch) == 0 && epoch == old + 1);
  CHECK(mallctl("epoch", NULL, NULL, &epoch, bytes_wrong) == EINVAL && read_size("epoch") == old + 1);
}

TEST(the_version_names_both) {
  const char *version = read_text("version");
  CHECK_THAT(strncmp(version, "5.", 2) == 0, "%s", version);
  if (!snug_is_active()) SKIP("the rest is asked of snug alone");
  CHECK_THAT(
      strncmp(version, "5.3.1-", 6) == 0 && strstr(version, "snug") != NULL && strstr(version, snug_version()) != NULL,
      "%s", version);
}

TEST(the_background_thread_is_ours) {
  if (!snug_is_active()) SKIP("not snug");
  bool before = read_bool("background_thread"), on = true, off = false, old = !before;
  size_t bytes = sizeof old;
  CHECK(mallctl("background_thread", &old, &bytes, &off, sizeof off) == 0 && old == before);
  CHECK(!read_bool("background_thread") && !read_bool("opt.background_thread"));
  refresh();
  CHECK(read_size("stats.background_thread.num_threads") == 0);
  CHECK(mallctl("background_thread", NULL, NULL, &on, sizeof on) == 0 && read_bool("background_thread"));
  CHECK(mallctl("background_thread", NULL, NULL, &on, 8) == EINVAL);
  size_t most = 1;
  CHECK(mallctl("max_background_threads", NULL, NULL, &most, sizeof most) == 0);
  most = 4;
  CHECK(mallctl("max_background_threads", NULL, NULL, &most, sizeof most) == EINVAL);
  bool cached = true;
  CHECK(mallctl("thread.tcache.enabled", NULL, NULL, &cached, sizeof cached) == 0);
  cached = false;
  CHECK(mallctl("thread.tcache.enabled", NULL, NULL, &cached, sizeof cached) == EPERM);
}

/* ---- bad input, threads, forks ---- */

/* Names put together from parts of real ones, cut and spoilt, with places of any size. Actions are not among them. */
static void mistreat(uint64_t seed, int rounds) {
  static const char *const parts[] = {"stats",
                                      "arenas",
                                      "0",
                                      "4096",
                                      "1",
                                      "opt",
                                      "allocated",
                                      "narenas",
                                      "small",
                                      "",
                                      "config",
                                      "thread",
                                      "tcache",
                                      "enabled",
                                      "pdirty",
                                      "version",
                                      "epoch",
                                      "arena",
                                      "99999999999999999999",
                                      "\xe2\x80\x9cstats",
                                      "stats.arenas",
                                      "#",
                                      "-1"};
  uint64_t random = seed;
  for (int i = 0; i < rounds; i++) {
    char name[200] = "", value[64];
    size_t mib[12], length = random_below(&random, COUNT_OF(mib)), room = random_below(&random, 17), given = room;
    for (uint64_t part = random_below(&random, 7); part > 0; part--) {
      strcat(name, parts[random_below(&random, COUNT_OF(parts))]);
      if (random_below(&random, 8) != 0) strcat(name, ".");
    }
    if (random_below(&random, 4) != 0 && name[0] != '\0') name[strlen(name) - 1] = '\0';
    if (random_below(&random, 10) == 0 && name[0] != '\0') {
      name[random_below(&random, strlen(name))] = (char)random_below(&random, 256);
    }
    memset(value, 0x11, sizeof value);
    mallctl(name, value, &room, NULL, 0);
    CHECK(room <= given && value[given] == 0x11);
    size_t had = length;
    memset(mib, 0, sizeof mib);
    if (mallctlnametomib(name, mib, &length) == 0) CHECK(length <= had);
    if (random_below(&random, 2) == 0) mib[random_below(&random, COUNT_OF(mib))] = random_next(&random) >> (i % 64);
    room = given = random_below(&random, 17);
    mallctlbymib(mib, length, value, &room, NULL, 0);
    CHECK(room <= given);
  }
}

TEST(no_name_and_no_mib_crashes) {
  if (!snug_is_active()) SKIP("not snug");
  mistreat(1, 200000);
}

static int stop; /* atomic */

static void *keep_asking(void *context) {
  uint64_t seed = (uint64_t)(uintptr_t)context;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    uint64_t epoch = 1;
    mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
    mistreat(seed++, 20);
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    mallctl("arena.0.purge", NULL, NULL, NULL, 0);
    bool on = seed % 2;
    mallctl("background_thread", NULL, NULL, &on, sizeof on);
    free(hidden(malloc(200 * KIB)));
  }
  return NULL;
}

static void ask_in_child(void) {
  keep_asking((void *)(uintptr_t)1);
  mistreat(7, 200);
}

/* What one thread has asked for when another forks holds nothing up in the child. */
TEST(children_of_threads_that_ask_live) {
  if (!snug_is_active()) SKIP("not snug");
  enum { THREADS = 3, FORKS = 60 };
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) {
    REQUIRE(pthread_create(&threads[i], NULL, keep_asking, (void *)(i * 1000 + 3)) == 0);
  }
  for (int i = 0; i < FORKS; i++) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(60);
      __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
      ask_in_child();
      refresh();
      _exit(test_failed != 0 || read_size("stats.allocated") == 0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    CHECK_THAT(status == 0, "fork %d: wait status 0x%x", i, status);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  bool on = true;
  mallctl("background_thread", NULL, NULL, &on, sizeof on);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
