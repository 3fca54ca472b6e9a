/* cgroup_test.c: control groups as the kernel shows them, of version 1, 2, both, and inside containers. */
#include "../../src/sys.c"

static size_t read_fake_file(const char *path, char *text, size_t capacity_bytes);
static unsigned long long physical_bytes = 64ull << 30;
#define sys_read_file read_fake_file
#include "../../src/rights.c"
#define rights_physical_bytes() physical_bytes
#include "../../src/cgroup.c"
#include "../../src/fatal.c"
#include "../../src/lock.c"
#include "unit.h"

/* As ticks look, most of them, and one each second. */
static bool memory_is_nearly_full(void) {
  struct cgroup_memory reading;
  return cgroup_memory(&reading, false) && cgroup_is_near_limit(&reading);
}

static bool memory_is_nearly_full_by_the_second(void) {
  struct cgroup_memory reading;
  return cgroup_memory(&reading, true) && cgroup_is_near_limit(&reading);
}

/* A file system of a few files. */
struct file {
  const char *path, *content; /* NULL: it can't be opened */
};
static const struct file *files; /* up to one without a path */
static int reads;

static size_t read_fake_file(const char *path, char *text, size_t capacity_bytes) {
  reads++;
  for (const struct file *file = files; file->path != NULL; file++) {
    if (strcmp(file->path, path) != 0 || file->content == NULL) continue;
    size_t length = strlen(file->content) < capacity_bytes - 1 ? strlen(file->content) : capacity_bytes - 1;
    memcpy(text, file->content, length);
    text[length] = '\0';
    return length;
  }
  return 0;
}

static void use_files(const struct file *these) {
  files = these;
  memset(limits, 0, sizeof limits); /* not asked yet */
  is_searched = false;
  failed_searches = 0;
  quota_cpus = 0;
}

#define V1_CGROUP                                                                                              \
  "12:pids:/user.slice\n11:memory:/docker/4f1c\n10:cpuset:/docker/4f1c\n9:net_cls,net_prio:/\n4:cpu,cpuacct:/" \
  "docker/4f1c\n"                                                                                              \
  "1:name=systemd:/docker/4f1c\n0::/docker/4f1c\n"

static void check_path(const char *text, const char *controller, const char *expected) {
  char path[64] = "untouched";
  bool found = cgroup_path_of(text, controller, path, sizeof path);
  CHECK_THAT(found == (expected != NULL), "controller \"%s\"", controller);
  if (expected != NULL) CHECK_THAT(strcmp(path, expected) == 0, "controller \"%s\": %s", controller, path);
}

TEST(the_path_is_found_by_its_controller) {
  check_path("0::/user.slice/user-0.slice/session-1.scope\n", "", "/user.slice/user-0.slice/session-1.scope");
  check_path("0::/\n", "", "/");
  check_path("0::/without/newline", "", "/without/newline");
  check_path(V1_CGROUP, "memory", "/docker/4f1c");
  check_path(V1_CGROUP, "cpu", "/docker/4f1c");
  check_path(V1_CGROUP, "cpuacct", "/docker/4f1c");
  check_path(V1_CGROUP, "net_prio", "/");
  check_path(V1_CGROUP, "", "/docker/4f1c");
  check_path(V1_CGROUP, "blkio", NULL);
  check_path(V1_CGROUP, "acct", NULL);
  check_path(V1_CGROUP, "net", NULL);
  check_path("4:cpuset:/a\n5:cpu:/b:c\n", "cpu", "/b:c");
  check_path("10::/x\n", "", NULL); /* starts with "1" */
  check_path("", "", NULL);
  check_path("\n\n", "memory", NULL);
  check_path("garbage\n0::/a\n", "", "/a");
}

TEST(long_paths_are_cut) {
  char path[8];
  CHECK(cgroup_path_of("0::/0123456789\n", "", path, sizeof path));
  CHECK_THAT(strcmp(path, "/012345") == 0, "%s", path);
}

TEST(values_of_memory_stat) {
  const char *stat =
      "anon 1234\nfile 99\ninactive_file 4096\nactive_file 8192\nslab_inactive_file 7\nempty \nlast "
      "18446744073709551615";
  CHECK(cgroup_stat_value(stat, "anon") == 1234);
  CHECK(cgroup_stat_value(stat, "file") == 99);
  CHECK(cgroup_stat_value(stat, "inactive_file") == 4096);
  CHECK(cgroup_stat_value(stat, "active_file") == 8192);
  CHECK(cgroup_stat_value(stat, "last") == UINT64_MAX);
  CHECK(cgroup_stat_value(stat, "empty") == 0 && cgroup_stat_value(stat, "none") == 0 &&
        cgroup_stat_value("", "anon") == 0);
}

TEST(near_is_above_nine_tenths) {
  struct cgroup_memory reading = {.limit_bytes = 1000 << 20};
  for (uint64_t used = 0; used <= reading.limit_bytes / 10 * 11; used += reading.limit_bytes / 100) {
    if (used == reading.limit_bytes / 10 * 9) continue; /* rounding may decide */
    reading.held_bytes = used;
    CHECK_THAT(cgroup_is_near_limit(&reading) == (used > reading.limit_bytes / 10 * 9), "%llu",
               (unsigned long long)used);
  }
  reading = (struct cgroup_memory){UINT64_MAX, UINT64_MAX};
  CHECK(cgroup_is_near_limit(&reading));
  reading.held_bytes /= 2;
  CHECK(!cgroup_is_near_limit(&reading));
}

#define OWN_V2 {"/proc/self/cgroup", "0::/a/b\n"}

TEST(the_tightest_cpu_quota_of_version_2) {
  use_files((const struct file[]){OWN_V2, {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {NULL, NULL}});
  CHECK(cgroup_cpus() == 0);
  use_files((const struct file[]){OWN_V2, {"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}, {NULL, NULL}});
  CHECK(cgroup_cpus() == 4);
  use_files((const struct file[]){OWN_V2,
                                  {"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
                                  {"/sys/fs/cgroup/a/cpu.max", "150000 100000\n"},
                                  {NULL, NULL}});
  CHECK(cgroup_cpus() == 2); /* one and a half, rounded up */
  use_files((const struct file[]){OWN_V2, {"/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n"}, {NULL, NULL}});
  CHECK(cgroup_cpus() == 1);
  use_files((const struct file[]){OWN_V2, {"/sys/fs/cgroup/a/b/cpu.max", "1000 0\n"}, {NULL, NULL}});
  CHECK(cgroup_cpus() == 0);
  use_files((const struct file[]){OWN_V2, {"/sys/fs/cgroup/a/b/cpu.max", ""}, {NULL, NULL}});
  CHECK(cgroup_cpus() == 0);
}

/* In a container with its own mount the path is the host's: only the mount point can be read. */
TEST(a_containers_own_group_is_the_mount_point) {
  use_files((const struct file[]){{"/proc/self/cgroup", "0::/system.slice/docker-4f1c.scope\n"},
                                  {"/sys/fs/cgroup/cpu.max", "300000 100000\n"},
                                  {"/sys/fs/cgroup/memory.max", "1000000000\n"},
                                  {"/sys/fs/cgroup/memory.current", "950000000\n"},
                                  {"/sys/fs/cgroup/memory.stat", "inactive_file 0\nactive_file 0\n"},
                                  {NULL, NULL}});
  CHECK(cgroup_cpus() == 3);
  CHECK(memory_is_nearly_full());
}

TEST(the_cpu_quota_of_version_1) {
  use_files((const struct file[]){{"/proc/self/cgroup", V1_CGROUP},
                                  {"/sys/fs/cgroup/cpu/docker/4f1c/cpu.cfs_quota_us", "-1\n"},
                                  {"/sys/fs/cgroup/cpu/docker/4f1c/cpu.cfs_period_us", "100000\n"},
                                  {NULL, NULL}});
  CHECK(cgroup_cpus() == 0);
  use_files((const struct file[]){{"/proc/self/cgroup", V1_CGROUP},
                                  {"/sys/fs/cgroup/cpu/docker/4f1c/cpu.cfs_quota_us", "250000\n"},
                                  {"/sys/fs/cgroup/cpu/docker/4f1c/cpu.cfs_period_us", "50000\n"},
                                  {NULL, NULL}});
  CHECK(cgroup_cpus() == 5);
}

TEST(no_files_no_limits) {
  use_files((const struct file[]){{NULL, NULL}});
  CHECK(cgroup_cpus() == 0 && !memory_is_nearly_full());
  use_files((const struct file[]){OWN_V2, {NULL, NULL}});
  CHECK(cgroup_cpus() == 0 && !memory_is_nearly_full());
}

static struct file limited_v2[] = {
    OWN_V2,
    {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
    {"/sys/fs/cgroup/a/b/memory.high", "max\n"},
    {"/sys/fs/cgroup/a/memory.max", "2000000000\n"},
    {"/sys/fs/cgroup/a/memory.high", "1000000000\n"},
    {"/sys/fs/cgroup/a/memory.current", "500000000\n"},
    {"/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100000000\nactive_file 10\n"},
    {"/sys/fs/cgroup/memory.max", "9000000000\n"},
    {NULL, NULL}};

TEST(the_tightest_memory_limit_of_version_2) {
  use_files(limited_v2);
  CHECK(!memory_is_nearly_full());
  CHECK_THAT(strcmp(memory->directory, "/sys/fs/cgroup/a") == 0 && memory->limit_bytes == 1000000000, "%s",
             memory->directory);
  reads = 0;
  CHECK(!memory_is_nearly_full());
  CHECK_THAT(reads == 1, "far from the limit a look reads %d files", reads);
  limited_v2[5].content = "950000000\n"; /* of which 100 MB are file cache */
  CHECK(!memory_is_nearly_full());
  limited_v2[5].content = "1001000000\n";
  struct cgroup_memory reading;
  CHECK(cgroup_memory(&reading, false) && cgroup_is_near_limit(&reading));
  CHECK(reading.held_bytes == 900999990 && reading.limit_bytes == 1000000000);
  limited_v2[6].content = "inactive_file 2000000000\nactive_file 10\n"; /* more than usage: read at another moment */
  CHECK(cgroup_memory(&reading, false) && reading.held_bytes == 0);
  limited_v2[6].content = "anon 1\ninactive_file 100000000\nactive_file 10\n";
}

TEST(the_memory_limit_of_version_1) {
  struct file v1[] = {{"/proc/self/cgroup", V1_CGROUP},
                      {"/sys/fs/cgroup/memory/docker/4f1c/memory.limit_in_bytes", "536870912\n"},
                      {"/sys/fs/cgroup/memory/docker/4f1c/memory.usage_in_bytes", "530000000\n"},
                      {"/sys/fs/cgroup/memory/docker/4f1c/memory.stat",
                       "inactive_file 1\nactive_file 1\ntotal_inactive_file 0\ntotal_active_file 0\n"},
                      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                      {NULL, NULL}};
  use_files(v1);
  CHECK(memory_is_nearly_full() && strcmp(memory->directory, "/sys/fs/cgroup/memory/docker/4f1c") == 0);
  v1[3].content = "inactive_file 1\nactive_file 1\ntotal_inactive_file 300000000\ntotal_active_file 0\n";
  CHECK(!memory_is_nearly_full());
}

TEST(a_limit_beyond_the_machine_is_none) {
  physical_bytes = 500000000;
  limited_v2[5].content = "2000000000\n";
  use_files(limited_v2);
  CHECK(!memory_is_nearly_full() && memory->directory[0] == '\0');
  physical_bytes = 64ull << 30;
}

/* ---- what changes ---- */

/* One group with a limit by these files: where it is at once, and files 1 to 3: limit, usage, memory.stat. */
struct limited {
  struct file files[6];
};

static struct limited limited_by(int kind) {
  return kind == 0   ? (struct limited){{{"/proc/self/cgroup", "0::/a\n"},
                                         {"/sys/fs/cgroup/a/memory.max", "1000000000\n"},
                                         {"/sys/fs/cgroup/a/memory.current", "950000000\n"},
                                         {"/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 0\nactive_file 0\n"},
                                         {"/sys/fs/cgroup/memory.max", "max\n"}}}
         : kind == 1 ? (struct limited){{{"/proc/self/cgroup", "0::/a\n"},
                                         {"/sys/fs/cgroup/a/memory.high", "1000000000\n"},
                                         {"/sys/fs/cgroup/a/memory.current", "950000000\n"},
                                         {"/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 0\nactive_file 0\n"},
                                         {"/sys/fs/cgroup/a/memory.max", "8000000000\n"}}}
                     : (struct limited){{{"/proc/self/cgroup", "3:memory:/a\n"},
                                         {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000000\n"},
                                         {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "950000000\n"},
                                         {"/sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 0\n"},
                                         {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}}};
}

enum { LIMIT_FILE = 1, USAGE_FILE, STAT_FILE, KINDS = 3 };

/* As by a resize of a pod in place. */
TEST(a_limit_that_changes_is_seen) {
  for (int kind = 0; kind < KINDS; kind++) {
    struct limited limited = limited_by(kind);
    use_files(limited.files);
    CHECK_THAT(memory_is_nearly_full(), "kind %d", kind);
    limited.files[LIMIT_FILE].content = "2000000000\n";
    CHECK_THAT(!memory_is_nearly_full(), "kind %d: raised while it is near", kind);
    limited.files[LIMIT_FILE].content = "1000000000\n";
    CHECK_THAT(memory_is_nearly_full_by_the_second(), "kind %d: lowered while it is far", kind);
    CHECK(memory_is_nearly_full());
    limited.files[LIMIT_FILE].content = kind == 2 ? "9223372036854771712\n" : "max\n";
    CHECK_THAT(!memory_is_nearly_full() && !memory_is_nearly_full_by_the_second(), "kind %d: taken away", kind);
  }
}

/* As services in a slice: the own limit is lower, and that of the group above, which holds others, too, is near. */
TEST(the_limit_counts_that_leaves_the_least_room) {
  struct file slice[] = {OWN_V2,
                         {"/sys/fs/cgroup/a/b/memory.max", "1000000000\n"},
                         {"/sys/fs/cgroup/a/b/memory.current", "300000000\n"},
                         {"/sys/fs/cgroup/a/b/memory.stat", "inactive_file 0\n"},
                         {"/sys/fs/cgroup/a/memory.max", "4000000000\n"},
                         {"/sys/fs/cgroup/a/memory.current", "3900000000\n"},
                         {"/sys/fs/cgroup/a/memory.stat", "inactive_file 0\n"},
                         {"/sys/fs/cgroup/memory.max", "9000000000\n"},
                         {NULL, NULL}};
  use_files(slice);
  CHECK(memory_is_nearly_full() && memory->limit_bytes == 4000000000);
  slice[6].content = "inactive_file 3000000000\n"; /* most of it is cache */
  use_files(slice);
  CHECK(!memory_is_nearly_full() && memory->limit_bytes == 1000000000);
  slice[2].content = "950000000\n";
  slice[6].content = "inactive_file 100000000\n"; /* the own one is nearer again, a minute later */
  cgroup_search_memory_limit();
  CHECK(memory_is_nearly_full() && memory->limit_bytes == 1000000000);
  slice[2].content = slice[5].content = NULL; /* where nothing is said of usage, the lowest */
  use_files(slice);
  CHECK(!memory_is_nearly_full() && memory->limit_bytes == 1000000000);
}

TEST(where_a_limit_was_raised_another_may_be_the_tightest) {
  struct file nested[] = {OWN_V2,
                          {"/sys/fs/cgroup/a/b/memory.max", "1000000000\n"},
                          {"/sys/fs/cgroup/a/b/memory.current", "950000000\n"},
                          {"/sys/fs/cgroup/a/b/memory.stat", "inactive_file 0\n"},
                          {"/sys/fs/cgroup/a/memory.max", "2000000000\n"},
                          {"/sys/fs/cgroup/a/memory.current", "1900000000\n"},
                          {"/sys/fs/cgroup/a/memory.stat", "inactive_file 0\n"},
                          {NULL, NULL}};
  use_files(nested);
  CHECK(memory_is_nearly_full() && memory->limit_bytes == 1000000000);
  nested[1].content = "4000000000\n";
  CHECK(memory_is_nearly_full() && memory->limit_bytes == 2000000000);
}

TEST(a_look_reads_few_files) {
  for (int kind = 0; kind < KINDS; kind++) {
    struct limited limited = limited_by(kind);
    limited.files[USAGE_FILE].content = "500000000\n";
    use_files(limited.files);
    CHECK(!memory_is_nearly_full());
    reads = 0;
    CHECK(!memory_is_nearly_full());
    CHECK_THAT(reads == 1, "kind %d: %d files, far", kind, reads);
    reads = 0;
    CHECK(!memory_is_nearly_full_by_the_second());
    CHECK_THAT(reads == 2, "kind %d: %d files, far, by the second", kind, reads);
    limited.files[USAGE_FILE].content = "950000000\n";
    reads = 0;
    CHECK(memory_is_nearly_full());
    CHECK_THAT(reads == 3, "kind %d: %d files, near", kind, reads);
  }
}

/* ---- files that can't be opened, where the program uses up all descriptors for a while ---- */

TEST(without_descriptors_what_was_known_stands) {
  for (int kind = 0; kind < KINDS; kind++) {
    for (size_t file = 0; file <= LIMIT_FILE; file++) {
      struct limited limited = limited_by(kind);
      use_files(limited.files);
      CHECK(memory_is_nearly_full());
      const char *content = limited.files[file].content;
      limited.files[file].content = NULL;
      if (file == 0) cgroup_search_memory_limit();
      CHECK_THAT(memory_is_nearly_full() && memory_is_nearly_full_by_the_second(), "kind %d, without %s", kind,
                 limited.files[file].path);
      limited.files[file].content = content;
      CHECK(memory_is_nearly_full());
    }
  }
}

TEST(without_descriptors_the_first_question_is_asked_again) {
  struct limited limited = limited_by(0);
  limited.files[0].content = NULL;
  use_files(limited.files);
  CHECK(!memory_is_nearly_full());
  limited.files[0].content = "0::/a\n";
  cgroup_search_memory_limit();
  CHECK(memory_is_nearly_full());
}

/* After chroot(2), say. Asked by the second, too, and for another search once a minute. */
static int reads_of_a_minute(void) {
  reads = 0;
  cgroup_search_memory_limit();
  for (int i = 0; i < 600; i++) {
    CHECK(!(i % 10 == 0 ? memory_is_nearly_full_by_the_second() : memory_is_nearly_full()));
  }
  return reads;
}

TEST(what_cannot_be_read_any_more_is_given_up) {
  static const struct file none[] = {{NULL, NULL}};
  for (int kind = 0; kind < KINDS; kind++) {
    struct limited limited = limited_by(kind);
    use_files(limited.files);
    CHECK(memory_is_nearly_full());
    files = none;
    int first = reads_of_a_minute();
    CHECK_THAT(cgroup_has_memory_limit() && first <= 600 + 60 + 1, "kind %d: %d files", kind, first);
    for (int minute = 1; minute < 4; minute++) {
      int next = reads_of_a_minute();
      CHECK_THAT(!cgroup_has_memory_limit() && next == 1, "kind %d: %d files in minute %d", kind, next, minute);
    }
    files = limited.files;
    CHECK(!memory_is_nearly_full());
    cgroup_search_memory_limit();
    CHECK(memory_is_nearly_full());
    files = none; /* a minute in between counts */
    reads_of_a_minute();
    CHECK(cgroup_has_memory_limit());
  }
}

/* Nearly all of it may be file cache. */
TEST(without_descriptors_nothing_is_said_of_usage) {
  for (int kind = 0; kind < KINDS; kind++) {
    for (size_t file = USAGE_FILE; file <= STAT_FILE; file++) {
      struct limited limited = limited_by(kind);
      limited.files[file].content = NULL;
      use_files(limited.files);
      CHECK_THAT(!memory_is_nearly_full(), "kind %d, without %s", kind, limited.files[file].path);
    }
  }
}

TEST(without_descriptors_the_quota_stands) {
  struct file files_of_cpu[] = {OWN_V2, {"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}, {NULL, NULL}};
  use_files(files_of_cpu);
  CHECK(cgroup_cpus() == 4);
  files_of_cpu[0].content = NULL;
  CHECK(cgroup_cpus() == 4);
  files_of_cpu[0].content = "0::/a/b\n";
  files_of_cpu[1].content = "max 100000\n";
  CHECK(cgroup_cpus() == 0);
}
