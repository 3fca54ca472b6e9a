/* privileges: after a program gave rights up, no thread of its process has more than the program's own.
 *
 * Each kind of drop is done in a child that has first freed enough for a helper thread to run: snug's must. Through
 * libc's own functions nothing may be left the moment they return; of drops by a bare system call, which no library
 * sees, nothing after 1.5 s. Both are watched for 2 s: the former half of the time busy with malloc, the latter all of
 * it. */
#include "tasks.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { NOBODY = 65534, LOOKS = 40, LOOK_MS = 50, CHURN_THREADS = 3, LANDLOCK_CREATE = 444, LANDLOCK_RESTRICT = 446 };

/* A system call without libc's help, so without anybody's who stands in front of libc. */
static long bare(long number, long a, long b, long c) {
  long result;
#if defined(__x86_64__)
  register long r10 __asm__("r10") = 0;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                   : "rcx", "r11", "memory");
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = 0;
  register long x4 __asm__("x4") = 0;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
  result = x0;
#endif
  return result;
}

static struct sock_filter allow_all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
static struct sock_fprog allowing = {1, allow_all};

static const struct __user_cap_header_struct own_capabilities = {_LINUX_CAPABILITY_VERSION_3, 0};
static const struct __user_cap_data_struct no_capabilities[2];
int capset(struct __user_cap_header_struct *, const struct __user_cap_data_struct *); /* libc has it, its headers not */

static bool drop_setuid(void) { return setuid(NOBODY) == 0; }
static bool drop_seteuid(void) { return seteuid(NOBODY) == 0; }
static bool drop_setgid(void) { return setgid(NOBODY) == 0; }
static bool drop_setegid(void) { return setegid(NOBODY) == 0; }
static bool drop_setreuid(void) { return setreuid(NOBODY, NOBODY) == 0; }
static bool drop_setregid(void) { return setregid(NOBODY, NOBODY) == 0; }
static bool drop_setresuid(void) { return setresuid(NOBODY, NOBODY, NOBODY) == 0; }
static bool drop_setresgid(void) { return setresgid(NOBODY, NOBODY, NOBODY) == 0; }
static bool drop_setgroups(void) {
  static const gid_t group = NOBODY;
  return setgroups(1, &group) == 0;
}
static bool drop_initgroups(void) { return initgroups("nobody", NOBODY) == 0; }
static bool drop_as_daemons_do(void) { return drop_setgroups() && drop_setgid() && drop_setuid(); }
static bool drop_capset(void) {
  return capset((struct __user_cap_header_struct *)&own_capabilities, no_capabilities) == 0;
}
static bool drop_bounding(void) { return prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0; }
static bool drop_ambient(void) { return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0; }
static bool drop_securebits(void) { return prctl(PR_SET_SECUREBITS, SECBIT_NOROOT, 0, 0, 0) == 0; }
static bool drop_no_new_privs(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0; }
static bool drop_seccomp_prctl(void) { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &allowing, 0, 0) == 0; }
static bool drop_seccomp(void) { return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &allowing) == 0; }
static bool drop_seccomp_all_threads(void) {
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &allowing) == 0;
}
static bool drop_setuid_by_syscall(void) { return syscall(SYS_setuid, NOBODY) == 0; }
static bool drop_capset_by_syscall(void) { return syscall(SYS_capset, &own_capabilities, no_capabilities) == 0; }

static bool drop_setresuid_bare(void) { return bare(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0; }
static bool drop_setgroups_bare(void) { return bare(SYS_setgroups, 0, 0, 0) == 0; }
static bool drop_capset_bare(void) { return bare(SYS_capset, (long)&own_capabilities, (long)no_capabilities, 0) == 0; }
static bool drop_no_new_privs_bare(void) { return bare(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) == 0; }
static bool drop_seccomp_bare(void) { return bare(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&allowing) == 0; }

static bool drop_unshare(void) { return unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0; }
static bool drop_unshare_user(void) { return unshare(CLONE_NEWUSER) == 0; }
static bool drop_setns(void) {
  int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
  return fd >= 0 && setns(fd, CLONE_NEWUTS) == 0;
}

/* Of this /proc shows nothing; what is forbidden must not be what this test needs. */
static bool drop_landlock(long (*restrict_self)(long)) {
  uint64_t handled = 1u << 6; /* LANDLOCK_ACCESS_FS_MAKE_CHAR */
  long ruleset = syscall(LANDLOCK_CREATE, &handled, sizeof handled, 0);
  return ruleset >= 0 && restrict_self(ruleset) == 0;
}
static long restrict_by_syscall(long ruleset) { return syscall(LANDLOCK_RESTRICT, ruleset, 0); }
static long restrict_bare(long ruleset) { return bare(LANDLOCK_RESTRICT, ruleset, 0, 0); }
static bool drop_landlock_by_syscall(void) { return drop_landlock(restrict_by_syscall); }
static bool drop_landlock_bare(void) { return drop_landlock(restrict_bare); }

/* Other users, fewer bonds, or a capability that the program has not. Less is no harm. */
static bool has_more(const char *other, const char *own) {
  for (size_t i = 0; i < COUNT_OF(rights_lines); i++) {
    const char *theirs = strstr(other, rights_lines[i]), *ours = strstr(own, rights_lines[i]);
    if (theirs == NULL || ours == NULL) continue;
    size_t name = strlen(rights_lines[i]), length = strcspn(theirs, "\n");
    if (strncmp(rights_lines[i], "Cap", 3) == 0) {
      if ((strtoull(theirs + name, NULL, 16) & ~strtoull(ours + name, NULL, 16)) != 0) return true;
    } else if (length != strcspn(ours, "\n") || memcmp(theirs, ours, length) != 0) {
      return true;
    }
  }
  return false;
}

/* Reports the threads that have more rights than this one, once. */
static bool check_rights(const char *when) {
  static struct task others[TASKS_MAX];
  struct task own;
  REQUIRE(task_read(&own, gettid()));
  size_t count = tasks_others(others, TASKS_MAX);
  for (size_t i = 0; i < count; i++) {
    if (!has_more(others[i].rights, own.rights)) continue;
    CHECK_THAT(false, "%s a thread of the process has\n%swhere the program has\n%s", when, others[i].rights,
               own.rights);
    return false;
  }
  return true;
}

/* The program's own threads have ended, but are shown for a moment more. */
static void churn_until_helped(void) {
  static struct task others[TASKS_MAX];
  for (int i = 0; i < 5; i++) {
    tasks_churn(CHURN_THREADS);
    sleep_ms(30);
    if (tasks_others(others, TASKS_MAX) != 0) return;
  }
  CHECK_THAT(!snug_is_active(), "no helper thread runs, so a drop can show nothing");
}

static void watch(int grace_ms) {
  for (int i = 0; i < LOOKS; i++) {
    if (i * LOOK_MS >= grace_ms && !check_rights("later")) return;
    if (grace_ms > 0 || i % 20 < 10) {
      tasks_churn_thread(NULL);
      usleep(LOOK_MS * 500);
    } else {
      usleep(LOOK_MS * 1000);
    }
  }
}

static void watch_drop(bool (*drop)(void), int grace_ms) {
  churn_until_helped();
  if (!drop()) {
    test_skip_reason = "refused here";
    return;
  }
  if (grace_ms == 0 && !check_rights("at once")) return;
  watch(grace_ms);
}

/* Threads that the drop did not reach, as it began in one that lived already: the kernel says nothing about them. */
static void watch_hidden_drop(bool (*drop)(void), int grace_ms) {
  static struct task before[TASKS_MAX], after[TASKS_MAX];
  churn_until_helped();
  size_t lived = tasks_others(before, TASKS_MAX);
  CHECK_THAT(lived != 0 || !snug_is_active(), "the helper thread has ended already");
  if (!drop()) {
    test_skip_reason = "refused here";
    return;
  }
  for (double end_s = now_s() + grace_ms * 1e-3; now_s() < end_s; usleep(LOOK_MS * 500)) tasks_churn_thread(NULL);
  size_t live = tasks_others(after, TASKS_MAX);
  for (size_t i = 0; i < lived; i++)
    for (size_t j = 0; j < live; j++)
      CHECK_THAT(before[i].id != after[j].id, "thread %d from before is still there", (int)before[i].id);
}

/* Each in a process of its own, as there is no way back; what it skips is told by its status. */
static void in_child(void (*watcher)(bool (*)(void), int), bool (*drop)(void), int grace_ms) {
  enum { SKIPPED = 77 };
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(30);
    test_failed = 0;
    watcher(drop, grace_ms);
    _exit(test_failed != 0 ? 1 : test_skip_reason != NULL ? SKIPPED : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
    SKIP("the kernel refuses this here");
  }
  CHECK_THAT(status == 0, "the child's wait status is 0x%x", status);
}

#define DROP(name, grace_ms) \
  TEST(name) { in_child(watch_drop, drop_##name, grace_ms); }
#define HIDDEN_DROP(name, grace_ms) \
  TEST(name) { in_child(watch_hidden_drop, drop_##name, grace_ms); }

enum { AT_ONCE = 0, SOON = 2500 }; /* a second, and what a busy machine adds */

DROP(setuid, AT_ONCE)
DROP(seteuid, AT_ONCE)
DROP(setgid, AT_ONCE)
DROP(setegid, AT_ONCE)
DROP(setreuid, AT_ONCE)
DROP(setregid, AT_ONCE)
DROP(setresuid, AT_ONCE)
DROP(setresgid, AT_ONCE)
DROP(setgroups, AT_ONCE)
DROP(initgroups, AT_ONCE)
DROP(as_daemons_do, AT_ONCE)
DROP(capset, AT_ONCE)
DROP(bounding, AT_ONCE)
HIDDEN_DROP(securebits, AT_ONCE)
HIDDEN_DROP(ambient, AT_ONCE)
DROP(no_new_privs, AT_ONCE)
DROP(seccomp_prctl, AT_ONCE)
DROP(seccomp, AT_ONCE)
DROP(seccomp_all_threads, AT_ONCE)
DROP(setuid_by_syscall, AT_ONCE)
DROP(capset_by_syscall, AT_ONCE)
DROP(unshare_user, AT_ONCE)
DROP(setresuid_bare, SOON)
DROP(setgroups_bare, SOON)
DROP(capset_bare, SOON)
DROP(no_new_privs_bare, SOON)
DROP(seccomp_bare, SOON)
HIDDEN_DROP(unshare, AT_ONCE)
HIDDEN_DROP(setns, AT_ONCE)
HIDDEN_DROP(landlock_by_syscall, AT_ONCE)
HIDDEN_DROP(landlock_bare, SOON)

/* ---- what is looked up for a drop ---- */

enum { LOOK_UP_MS = 600, FORK_MS = 200 }; /* a fork waits for nobody; the rest is what a busy machine adds */

static bool is_looking_up; /* atomic */

static void *look_up(void *unused) {
  initgroups("nobody", NOBODY);
  __atomic_store_n(&is_looking_up, false, __ATOMIC_RELEASE);
  return unused;
}

/* For this process alone /etc/group is a pipe that nobody writes to for a while: a slow directory service. */
static bool make_groups_slow(void) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/privileges-groups-%d", (int)getpid());
  if (mkfifo(path, 0644) != 0) return false;
  bool is_slow = unshare(CLONE_NEWNS) == 0 && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                 mount(path, "/etc/group", NULL, MS_BIND, NULL) == 0;
  unlink(path);
  return is_slow;
}

/* An empty file; whoever reads finds its end while nobody has it open to write. */
static void answer_later(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  for (;;) {
    sleep_ms(LOOK_UP_MS);
    close(open("/etc/group", O_WRONLY | O_CLOEXEC));
  }
}

static void fork_during_look_up(bool (*unused)(void), int unused_ms) {
  (void)unused, (void)unused_ms;
  if (!make_groups_slow()) {
    test_skip_reason = "refused here";
    return;
  }
  churn_until_helped();
  pid_t answering = fork();
  if (answering == 0) answer_later();
  pthread_t thread;
  is_looking_up = true;
  REQUIRE(pthread_create(&thread, NULL, look_up, NULL) == 0);
  sleep_ms(LOOK_UP_MS / 4);
  double begin_s = now_s();
  pid_t child = fork();
  if (child == 0) _exit(0);
  double fork_ms = (now_s() - begin_s) * 1e3;
  bool was_looking_up = __atomic_load_n(&is_looking_up, __ATOMIC_ACQUIRE);
  waitpid(child, NULL, 0);
  pthread_join(thread, NULL);
  kill(answering, SIGKILL);
  CHECK_THAT(was_looking_up, "the look-up had ended before fork returned");
  CHECK_THAT(fork_ms < FORK_MS, "fork took %.0f ms while another thread looked groups up", fork_ms);
}

TEST(fork_waits_for_no_look_up) { in_child(fork_during_look_up, NULL, 0); }

/* ---- forks beside changes of all threads ---- */

enum { FORKS = 300, FORK_MEDIAN_MS = 60 };

static bool is_forking; /* atomic */

/* libc has each thread make the call, by a signal, and waits until all have. */
static void *change_all_threads(void *pause_ms) {
  while (__atomic_load_n(&is_forking, __ATOMIC_ACQUIRE) && setegid(getegid()) == 0) {
    if (*(int *)pause_ms != 0) sleep_ms(*(int *)pause_ms);
  }
  return NULL;
}

static int compare_times(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* The median, as on a busy machine single ones wait for their turn; under libc's own malloc half of them took 15 ms. */
static void fork_beside_changes(bool (*unused)(void), int pause_ms) {
  (void)unused;
  static double fork_ms[FORKS];
  churn_until_helped();
  pthread_t thread;
  is_forking = true;
  REQUIRE(pthread_create(&thread, NULL, change_all_threads, &pause_ms) == 0);
  for (int i = 0; i < FORKS; i++) {
    double begin_s = now_s();
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(0);
    fork_ms[i] = (now_s() - begin_s) * 1e3;
    waitpid(child, NULL, 0);
  }
  __atomic_store_n(&is_forking, false, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  qsort(fork_ms, FORKS, sizeof fork_ms[0], compare_times);
  CHECK_THAT(fork_ms[FORKS / 2] < FORK_MEDIAN_MS, "half of the forks took over %.1f ms", fork_ms[FORKS / 2]);
}

TEST(forks_beside_changes_of_all_threads_end) { in_child(fork_beside_changes, NULL, 1); }
TEST(forks_beside_changes_without_a_pause_are_quick) { in_child(fork_beside_changes, NULL, 0); }

int main(int argc, char **argv) {
  if (geteuid() != 0) {
    test_print(1, "skip privileges: needs root\n");
    return 0;
  }
  return run_tests(argc, argv);
}
