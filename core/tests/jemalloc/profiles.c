/* profiles.c: prof.* of a program that asks for profiles by jemalloc's variable malloc_conf: what is in the files, what
 * they are called, and what the names answer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "../../include/jemalloc/jemalloc.h"
#include "../../include/snug.h"
#include "../../include/snug_counters.h"
#include "../../include/snug_profile.h"
#include "../support/writable.h"

extern struct snug_counters snug_counters __attribute__((weak));

enum { KEPT = 20000, KEPT_BYTES = 2000, LINE_BYTES = 4096 };

const char *malloc_conf = "prof:true,lg_prof_sample:12";

static void *kept[KEPT];

__attribute__((noinline)) static void *keep(void) {
  void *block = malloc(KEPT_BYTES);
  REQUIRE(block != NULL);
  memset(block, 1, KEPT_BYTES); /* it is no tail call */
  return block;
}

__attribute__((noinline)) static void keep_all(void) {
  for (size_t i = 0; i < KEPT; i++) kept[i] = hidden(keep());
}

static void drop_all(void) {
  for (size_t i = 0; i < KEPT; i++) free(kept[i]);
}

static bool read_bool(const char *name) {
  bool value = false;
  size_t bytes = sizeof value;
  CHECK_THAT(mallctl(name, &value, &bytes, NULL, 0) == 0, "%s", name);
  return value;
}

static size_t read_size(const char *name) {
  size_t value = 0, bytes = sizeof value;
  CHECK_THAT(mallctl(name, &value, &bytes, NULL, 0) == 0, "%s", name);
  return value;
}

static void switch_on(bool on) { CHECK(mallctl("prof.active", NULL, NULL, &on, sizeof on) == 0); }

static int dump_to(const char *path) { return mallctl("prof.dump", NULL, NULL, &path, sizeof path); }

/* Where the files go, which nobody else uses: prof_prefix is a name in the current folder. */
static void enter_own_folder(void) {
  static char folder[] = "/tmp/snug-profiles-XXXXXX";
  static bool entered;
  if (!entered) REQUIRE(mkdtemp(folder) != NULL && chdir(folder) == 0);
  entered = true;
}

struct counts {
  unsigned long long live_blocks, live_bytes, blocks, bytes;
};

struct profile {
  struct counts sum; /* of the stacks */
  size_t stacks;
  struct counts here; /* of those with keep as their innermost function */
};

static bool parse_counts(const char *line, struct counts *counts) {
  int end = 0;
  return sscanf(line, " t*: %llu: %llu [%llu: %llu]\n%n", &counts->live_blocks, &counts->live_bytes, &counts->blocks,
                &counts->bytes, &end) == 4 &&
         line[end] == '\0';
}

static void add(struct counts *into, const struct counts *counts) {
  into->live_blocks += counts->live_blocks;
  into->live_bytes += counts->live_bytes;
  into->blocks += counts->blocks;
  into->bytes += counts->bytes;
}

/* Checks every line of a file, and that it is whole. */
static struct profile read_profile(const char *path) {
  static char line[LINE_BYTES];
  struct profile profile = {0};
  struct counts total, counts;
  FILE *file = fopen(path, "r");
  REQUIRE(file != NULL);
  CHECK(fgets(line, sizeof line, file) != NULL && strcmp(line, "heap_v2/1\n") == 0);
  CHECK_THAT(fgets(line, sizeof line, file) != NULL && parse_counts(line, &total), "%s", line);
  while (fgets(line, sizeof line, file) != NULL && line[0] == '@') {
    uintptr_t innermost = 0;
    CHECK_THAT(sscanf(line, "@ 0x%zx", &innermost) == 1, "%s", line);
    CHECK_THAT(fgets(line, sizeof line, file) != NULL && parse_counts(line, &counts), "%s", line);
    add(&profile.sum, &counts);
    profile.stacks++;
    if (innermost - (uintptr_t)keep < 200) add(&profile.here, &counts);
  }
  CHECK(memcmp(&profile.sum, &total, sizeof total) == 0);
  CHECK(line[0] == '\n' && fgets(line, sizeof line, file) != NULL && strcmp(line, "MAPPED_LIBRARIES:\n") == 0);
  bool has_program = false, has_stack = false;
  while (fgets(line, sizeof line, file) != NULL) {
    has_program = has_program || strstr(line, "profiles") != NULL;
    has_stack = has_stack || strstr(line, "[stack]") != NULL; /* among the last */
  }
  CHECK(has_program && has_stack);
  fclose(file);
  return profile;
}

static struct profile profile_now(void) {
  enter_own_folder();
  REQUIRE(dump_to("now.heap") == 0);
  return read_profile("now.heap");
}

TEST(what_was_asked_for_is_read_back) {
  if (!snug_is_active()) SKIP("not snug");
  CHECK(read_bool("config.prof") && read_bool("opt.prof") && read_bool("opt.prof_active") && read_bool("prof.active"));
  CHECK(!read_bool("opt.prof_final") && read_bool("opt.prof_accum") && !read_bool("opt.prof_gdump"));
  CHECK(read_size("opt.lg_prof_sample") == 12 && read_size("prof.lg_sample") >= 12);
  CHECK(read_size("prof.interval") == 0 && read_size("opt.lg_prof_interval") == (size_t)-1);
  const char *prefix = NULL;
  size_t bytes = sizeof prefix;
  CHECK(mallctl("opt.prof_prefix", &prefix, &bytes, NULL, 0) == 0 && strcmp(prefix, "jeprof") == 0);
}

/* The error is about one in twenty: a hundred samples a second at every distance. */
TEST(a_profile_says_who_holds_how_much) {
  if (!snug_is_active()) SKIP("not snug");
  CHECK(mallctl("prof.reset", NULL, NULL, NULL, 0) == 0);
  keep_all();
  double truth = (double)KEPT * KEPT_BYTES;
  struct profile held = profile_now();
  CHECK_THAT(held.here.live_bytes > 0.6 * truth && held.here.live_bytes < 1.4 * truth, "%llu", held.here.live_bytes);
  CHECK(held.here.bytes == held.here.live_bytes && held.here.blocks == held.here.live_blocks);
  unsigned long long mean_bytes = held.here.live_bytes / held.here.live_blocks;
  CHECK_THAT(mean_bytes > KEPT_BYTES - 20 && mean_bytes < KEPT_BYTES + 20, "%llu", mean_bytes);
  drop_all();
  struct profile dropped = profile_now();
  CHECK(dropped.here.live_bytes == 0 && dropped.here.live_blocks == 0 && dropped.here.bytes >= held.here.bytes);
}

TEST(off_means_that_nothing_is_counted) {
  if (!snug_is_active()) SKIP("not snug");
  bool old = false, off = false;
  size_t bytes = sizeof old;
  CHECK(mallctl("prof.active", &old, &bytes, &off, sizeof off) == 0 && old && !read_bool("prof.active"));
  struct profile before = profile_now();
  keep_all();
  struct profile after = profile_now();
  CHECK(after.here.live_bytes == before.here.live_bytes && after.here.bytes == before.here.bytes);
  drop_all();
  switch_on(true);
  switch_on(true);
  keep_all();
  CHECK(profile_now().here.live_bytes > 0);
  drop_all();
}

TEST(a_reset_begins_anew) {
  if (!snug_is_active()) SKIP("not snug");
  size_t lg = 14, bytes = sizeof lg;
  keep_all();
  CHECK(profile_now().here.live_bytes > 0);
  CHECK(mallctl("prof.reset", NULL, NULL, &lg, sizeof lg) == 0 && read_size("prof.lg_sample") == 14);
  struct profile profile = profile_now();
  CHECK(profile.here.live_bytes == 0 && profile.here.bytes == 0);
  CHECK(read_size("opt.lg_prof_sample") == 12 && snug_check() > 0);
  drop_all();
  keep_all();
  CHECK(profile_now().here.live_bytes > 0);
  drop_all();
  CHECK(mallctl("prof.reset", &lg, &bytes, NULL, 0) == EPERM);
  CHECK(mallctl("prof.reset", NULL, NULL, &lg, 4) == EINVAL && mallctl("prof.reset", NULL, NULL, NULL, 4) == EINVAL);
  switch_on(false);
  lg = 64;
  CHECK(mallctl("prof.reset", NULL, NULL, &lg, sizeof lg) == 0 && read_size("prof.lg_sample") == 30);
  lg = 12;
  CHECK(mallctl("prof.reset", NULL, NULL, &lg, sizeof lg) == 0 && read_size("prof.lg_sample") == 12);
  switch_on(true);
  CHECK(read_size("prof.lg_sample") == 12);
}

TEST(files_are_called_as_jemalloc_calls_them) {
  if (!snug_is_active()) SKIP("not snug");
  enter_own_folder();
  CHECK(mallctl("prof.dump", NULL, NULL, NULL, 0) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(mallctl("prof.dump", NULL, NULL, NULL, 0));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  size_t own = 0, childs = 0;
  for (unsigned number = 0; number < 50; number++) {
    char name[64];
    snprintf(name, sizeof name, "jeprof.%d.%u.m%u.heap", (int)getpid(), number, number);
    own += access(name, F_OK) == 0;
    snprintf(name, sizeof name, "jeprof.%d.%u.m%u.heap", (int)child, number, number);
    if (access(name, F_OK) != 0) continue;
    read_profile(name);
    childs++;
  }
  CHECK_THAT(own == 1 && childs == 1, "%zu and %zu files", own, childs);
}

/* It says where everything lies in the process, which the kernel tells nobody else either. */
TEST(a_profile_is_for_its_owner_alone) {
  if (!snug_is_active()) SKIP("not snug");
  enter_own_folder();
  struct stat state;
  mode_t before = umask(0);
  CHECK(dump_to("own.heap") == 0 && stat("own.heap", &state) == 0);
  CHECK_THAT((state.st_mode & 0777) == 0600, "mode %o", (unsigned)state.st_mode);
  umask(before);
}

enum { PLANTED = 100 };

/* As whoever may write to the folder would: the names of this process's next files lead to another file. */
static void dump_among_planted_names(void) {
  char name[64], text[16] = "";
  size_t files = 0;
  enter_own_folder();
  int victim = open("victim", O_RDWR | O_CREAT | O_TRUNC, 0644);
  REQUIRE(victim >= 0 && write(victim, "untouched", 9) == 9);
  for (unsigned number = 0; number < PLANTED; number++) {
    for (unsigned asked_for = 0; asked_for < 4; asked_for++) {
      snprintf(name, sizeof name, "jeprof.%d.%u.m%u.heap", (int)getpid(), number, asked_for);
      int result = number % 3 == 0 ? link("victim", name) : symlink(number % 3 == 1 ? "victim" : "nobody", name);
      REQUIRE(result == 0);
    }
  }
  CHECK(mallctl("prof.dump", NULL, NULL, NULL, 0) == 0);
  CHECK(pread(victim, text, sizeof text, 0) == 9 && strcmp(text, "untouched") == 0 && access("nobody", F_OK) != 0);
  for (unsigned number = PLANTED; number < 2 * PLANTED; number++) {
    for (unsigned asked_for = 0; asked_for < 4; asked_for++) {
      snprintf(name, sizeof name, "jeprof.%d.%u.m%u.heap", (int)getpid(), number, asked_for);
      files += access(name, F_OK) == 0;
    }
  }
  CHECK_THAT(files == 1, "%zu files", files);
}

TEST(no_file_that_is_there_is_written_to_by_a_name_that_can_be_guessed) {
  if (!snug_is_active()) SKIP("not snug");
  run_in_child(dump_among_planted_names);
}

TEST(beside_the_table_of_samples_nothing_can_be_written) {
  if (!snug_is_active() || &snug_counters == NULL) SKIP("not snug");
  switch_on(true);
  keep_all();
  const struct snug_profile *head = (const struct snug_profile *)(uintptr_t)snug_counters.profile_address;
  REQUIRE(head != NULL);
  uintptr_t end = head->names_address + head->names_capacity_bytes, page_bytes = snug_counters.page_size_bytes;
  void *before = hidden(malloc(MIB)), *after = hidden(malloc(MIB));
  read_mappings();
  CHECK(is_writable(head) && is_writable((const void *)(end - 1)));
  const char *behind = (const char *)((end + page_bytes - 1) / page_bytes * page_bytes); /* or a page further on */
  CHECK(!is_writable((const char *)head - 1) && !(is_writable(behind) && is_writable(behind + page_bytes)));
  free(before);
  free(after);
  drop_all();
}

TEST(what_can_not_be_written_is_an_error) {
  if (!snug_is_active()) SKIP("not snug");
  const char *path = "ignored.heap";
  size_t bytes = sizeof path;
  CHECK(dump_to("/nowhere/a.heap") == EFAULT && dump_to("") == EFAULT && dump_to("/") == EFAULT);
  CHECK(dump_to("/dev/full") == EFAULT && dump_to((const char *)16) == EFAULT);
  CHECK(mallctl("prof.dump", NULL, NULL, &path, 3) == EINVAL && mallctl("prof.dump", NULL, NULL, NULL, 8) == EINVAL);
  CHECK(mallctl("prof.dump", &path, &bytes, NULL, 0) == EPERM);
  enter_own_folder();
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    snug_enter_sandbox();
    _exit(dump_to("sandbox.heap") == EFAULT && access("sandbox.heap", F_OK) != 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

/* ---- pipes ---- */

static void *read_all(void *path) {
  static char text[1 << 20];
  size_t length = 0;
  int fd = open(path, O_RDONLY);
  REQUIRE(fd >= 0);
  for (ssize_t got = 1; got > 0 && length < sizeof text; length += (size_t)got) {
    got = read(fd, text + length, sizeof text - length);
    REQUIRE(got >= 0);
  }
  close(fd);
  CHECK_THAT(length > 100 && memcmp(text, "heap_v2/1\n", 10) == 0 && text[length - 1] == '\n', "%zu bytes", length);
  return NULL;
}

/* Forks wait for a profile that is being written: it must not wait for others without an end. */
TEST(a_pipe_that_nobody_reads_is_no_place_for_a_profile) {
  if (!snug_is_active()) SKIP("not snug"); /* jemalloc waits */
  enter_own_folder();
  switch_on(true);
  keep_all();
  REQUIRE(mkfifo("pipe", 0600) == 0);
  CHECK(dump_to("pipe") == EFAULT);
  static const char filling[4096];
  int both = open("pipe", O_RDWR | O_NONBLOCK); /* a reader that does not read */
  REQUIRE(both >= 0);
  while (write(both, filling, sizeof filling) > 0) continue;
  CHECK(dump_to("pipe") == EFAULT);
  close(both);
  drop_all();
}

TEST(a_pipe_with_a_reader_has_the_whole_profile) {
  if (!snug_is_active()) SKIP("not snug");
  enter_own_folder();
  switch_on(true);
  REQUIRE(mkfifo("read-pipe", 0600) == 0);
  pthread_t reader;
  REQUIRE(pthread_create(&reader, NULL, read_all, "read-pipe") == 0);
  int result;
  for (int i = 0; i < 60000 && (result = dump_to("read-pipe")) == EFAULT; i++) usleep(1000); /* until it has opened */
  CHECK(result == 0);
  pthread_join(reader, NULL);
}

/* ---- while others work ---- */

static bool ended; /* atomic */

static void *work(void *argument) {
  static __thread void *mine[100];
  for (size_t i = 0; !__atomic_load_n(&ended, __ATOMIC_RELAXED); i++) {
    free(mine[i % COUNT_OF(mine)]);
    mine[i % COUNT_OF(mine)] = hidden(malloc(i % 5000));
  }
  for (size_t i = 0; i < COUNT_OF(mine); i++) free(mine[i]);
  return argument;
}

TEST(profiles_are_whole_while_others_allocate) {
  if (!snug_is_active()) SKIP("not snug");
  enum { THREADS = 3, TURNS = 30 };
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, work, NULL) == 0);
  for (int turn = 0; turn < TURNS; turn++) {
    switch_on(turn % 4 != 3);
    profile_now();
    if (turn % 5 == 4) CHECK(mallctl("prof.reset", NULL, NULL, NULL, 0) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(dump_to("child.heap"));
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    read_profile("child.heap");
  }
  __atomic_store_n(&ended, true, __ATOMIC_RELAXED);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  switch_on(true);
  CHECK(snug_check() > 0);
}

int main(int argc, char **argv) {
  int status = run_tests(argc, argv);
  char folder[64];
  if (getcwd(folder, sizeof folder) != NULL && strncmp(folder, "/tmp/snug-profiles-", 19) == 0) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) status = 1;
  }
  return status;
}
