/* rights_test.c: what /proc/self/status says of sandboxes and privileges, and what may be called then. */
#include "../../src/sys.c"

static const char *status_file, *status_of_first; /* NULL: unreadable */
static bool container, loaded = true;
static size_t read_status_of_ours(const char *path, char *text, size_t capacity_bytes);
#define sys_read_file read_status_of_ours
#define sys_file_exists(path) (container)
#define sys_was_loaded() (loaded)
static bool secure;
#define sys_is_secure() (secure)
static uint64_t physical_bytes = 64 << 20;
#define sys_physical_bytes() (physical_bytes) /* 0: refused */
#include "../../src/rights.c"
#undef sys_read_file
#include "unit.h"

#include <sys/wait.h>

static size_t read_status_of_ours(const char *path, char *text, size_t capacity_bytes) {
  bool first = strcmp(path, "/proc/1/status") == 0;
  if (!first && strcmp(path, "/proc/self/status") != 0) return sys_read_file(path, text, capacity_bytes);
  const char *content = first ? status_of_first : status_file;
  if (content == NULL) return 0;
  snprintf(text, capacity_bytes, "%s", content);
  return strlen(text);
}

#define STATUS(uid, permitted, seccomp, filters)                                             \
  "Name:\ttest\nUid:\t" uid "\nGroups:\t1 2 3 \nCapPrm:\t" permitted "\nCapEff:\t" permitted \
  "\nNoNewPrivs:\t0\n"                                                                       \
  "Seccomp:\t" seccomp "\nSeccomp_filters:\t" filters "\nCpus_allowed:\tff,00000003\nMems_allowed:\t1\n"
#define USER "1000\t1000\t1000\t1000"
#define ROOT_USER "0\t0\t0\t0"
#define NONE "0000000000000000"
#define SOME "000001ffffffffff"

TEST(a_status_is_understood) {
  struct rights_status status = rights_parse_status(STATUS(USER, NONE, "2", "3"));
  CHECK(status.complete && !status.privileged && status.seccomp == 2 && status.filters == 3);
  CHECK(status.allowed_cpus == 10);
  CHECK(rights_parse_status(STATUS(ROOT_USER, SOME, "0", "0")).privileged);
  CHECK(rights_parse_status(STATUS(ROOT_USER, NONE, "0", "0")).privileged); /* root without capabilities owns files */
  CHECK(rights_parse_status(STATUS(USER, "0000000000000400", "0", "0")).privileged);
  CHECK(rights_parse_status(STATUS("1000\t0\t0\t0", NONE, "0", "0")).privileged);
  CHECK(rights_parse_status(STATUS("1000\t1000\t0\t1000", NONE, "0", "0")).privileged); /* it can go back */
}

TEST(what_is_cut_or_missing_is_not_known) {
  const char *whole = STATUS(USER, NONE, "2", "1");
  char text[512];
  for (size_t length = 0; length < strlen(whole); length++) {
    memcpy(text, whole, length);
    text[length] = '\0';
    struct rights_status status = rights_parse_status(text);
    CHECK_THAT(!status.complete || (status.seccomp == 2 && !status.privileged), "cut after %zu bytes", length);
  }
  /* A kernel without seccomp. */
  struct rights_status status = rights_parse_status("Uid:\t1\t1\t1\t1\nCapPrm:\t0\nCpus_allowed:\t3\n");
  CHECK(status.complete && status.seccomp == 0 && !status.privileged && status.allowed_cpus == 2);
  /* gVisor, which says nothing of CPUs, and nothing of users. */
  status = rights_parse_status("Name:\ta\nCapPrm:\t0\nSeccomp:\t0\nMems_allowed:\t1\n");
  CHECK(status.complete && status.seccomp == 0 && status.privileged && status.allowed_cpus == 0);
  CHECK(!rights_parse_status("Name:\ta\nUid:\t1\t1\t1\t1\nCapPrm:\t0\n").complete);
  CHECK(!rights_parse_status("").complete);
}

static void begin(const char *text) {
  memset(&rights, 0, sizeof rights);
  status_file = text;
  rights_find();
}

TEST(without_a_filter_all_may_be_called) {
  begin(STATUS(USER, NONE, "0", "0"));
  CHECK(rights_have(RIGHT_FILES) && rights_have(RIGHT_THREAD) && rights_have(RIGHT_OTHERS));
  CHECK(rights_may_start_thread() && rights_pid() == sys_process_id());
}

TEST(under_a_filter_only_what_the_program_has_shown) {
  begin(STATUS(USER, NONE, "2", "1"));
  CHECK(rights_have(RIGHT_FILES) && !rights_have(RIGHT_THREAD) && !rights_have(RIGHT_OTHERS));
  CHECK(!rights_may_start_thread());
  CHECK(rights_pid() == sys_process_id()); /* as /proc says */
  rights_saw_thread();
  CHECK(rights_may_start_thread() && !rights_have(RIGHT_OTHERS));
}

TEST(a_container_has_a_filter_that_refuses) {
  container = true;
  status_of_first = STATUS(ROOT_USER, SOME, "2", "1");
  begin(STATUS(USER, NONE, "2", "2")); /* one more, which nobody knows */
  rights_consider_container();
  CHECK(!rights_have(RIGHT_OTHERS));
  const char *others[] = {NULL, "Seccomp:\t2\n", STATUS(ROOT_USER, SOME, "0", "0"), STATUS(ROOT_USER, SOME, "2", "2")};
  for (size_t i = 0; i < COUNT_OF(others); i++) {
    status_of_first = others[i];
    begin(STATUS(USER, NONE, "2", "1"));
    rights_consider_container();
    CHECK_THAT(!rights_have(RIGHT_OTHERS), "first process %zu", i);
  }
  status_of_first = STATUS(ROOT_USER, SOME, "2", "1");
  begin(STATUS(USER, NONE, "2", "1"));
  rights_consider_container();
  CHECK(rights_have(RIGHT_OTHERS) && rights_have(RIGHT_THREAD));
  container = false;
  begin(STATUS(USER, NONE, "2", "1"));
  rights_consider_container();
  CHECK(!rights_have(RIGHT_OTHERS));
}

/* Who starts a program with more rights than his own says what its environment is. */
TEST(the_environment_makes_no_container_of_a_privileged_program) {
  status_of_first = STATUS(ROOT_USER, SOME, "2", "1");
  setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  for (int turn = 0; turn < 2; turn++) {
    secure = turn == 1;
    begin(STATUS("1000\t0\t0\t0", NONE, "2", "1"));
    rights_consider_container();
    CHECK_THAT(rights_have(RIGHT_OTHERS) == !secure, "secure: %d", secure);
  }
  secure = false;
  unsetenv("KUBERNETES_SERVICE_HOST");
}

TEST(where_nobody_can_say_nothing_may_be_called) {
  begin(NULL); /* no /proc */
  CHECK(!rights_have(RIGHT_ALL) && rights_pid() == 0 && rights_identity() == IDENTITY_OWN);
  loaded = false; /* a static program has not opened a file yet */
  begin(STATUS(USER, NONE, "0", "0"));
  CHECK(!rights_have(RIGHT_ALL));
  loaded = true;
}

TEST(a_thread_never_keeps_what_the_program_may_drop_unseen) {
  begin(STATUS(ROOT_USER, SOME, "0", "0"));
  CHECK(!rights_may_start_thread());
  rights_drops_are_seen();
  CHECK(rights_may_start_thread());
}

TEST(rights_end_and_come_back) {
  begin(STATUS(USER, NONE, "0", "0"));
  uint32_t had = rights_end();
  rights_saw_thread();
  CHECK(!rights_have(RIGHT_ALL) && rights_pid() != 0 && rights_identity() == IDENTITY_OWN);
  CHECK(rights_allowed_cpus() == 1);
  rights_resume(had);
  CHECK(rights_have(RIGHT_OTHERS));
}

TEST(what_cannot_be_asked_again_stays_as_it_was) {
  begin(STATUS(USER, NONE, "0", "0"));
  CHECK(rights_allowed_cpus() == 10);
  status_file = NULL; /* no descriptor is left */
  CHECK_THAT(rights_allowed_cpus() == 10, "%u CPUs", rights_allowed_cpus());
  begin(STATUS(USER, NONE, "0", "0"));
  status_file = NULL;
  CHECK_THAT(rights_allowed_cpus() == 10, "%u CPUs, asked for the first time", rights_allowed_cpus());
}

TEST(the_memory_of_the_machine_is_never_none) {
  begin(STATUS(USER, NONE, "0", "0"));
  CHECK(rights_physical_bytes() == physical_bytes);
  physical_bytes = 0;
  CHECK(rights_physical_bytes() > (uint64_t)64 << 30);
  begin(STATUS(USER, NONE, "2", "1"));
  CHECK(rights_physical_bytes() > (uint64_t)64 << 30);
}

/* ---- whose memory ---- */

TEST(a_child_of_vfork_borrows_and_a_copy_belongs_to_nobody) {
  if (is_emulated()) SKIP("the emulator makes a fork of each vfork, and wipes no page");
  begin(STATUS(USER, NONE, "0", "0"));
  CHECK(rights_identity() == IDENTITY_OWN && !rights_claim_copy());
  static volatile enum identity seen;
  pid_t child = vfork();
  if (child == 0) {
    seen = rights_identity();
    _exit(0);
  }
  CHECK(seen == IDENTITY_BORROWED && waitpid(child, NULL, 0) == child);
  child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    bool right = rights_identity() == IDENTITY_COPIED && rights_claim_copy() && !rights_claim_copy();
    rights_own_memory();
    _exit(right && rights_identity() == IDENTITY_OWN && rights_pid() == sys_process_id() ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_THAT(status == 0, "wait status 0x%x", status);
  CHECK(rights_identity() == IDENTITY_OWN);
}
