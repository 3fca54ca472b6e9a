/* refuse_call: runs a program in a sandbox that refuses system calls, as container runtimes do.
 *
 *   refuse_call NAME=ERRNO ... -- PROGRAM ARGS
 *
 * NAME is a system call of the table below, or `threads`: clone for a new thread (processes are still allowed; clone3,
 * whose arguments a filter cannot see, does not exist then, so that the C library falls back to clone). */
#include "../support/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { FILTER_MAX = 128 };

static struct sock_filter filter[FILTER_MAX];
static unsigned short length;

static const struct {
  const char *name;
  long number;
} calls[] = {{"madvise", SYS_madvise},
             {"process_madvise", SYS_process_madvise},
             {"membarrier", SYS_membarrier},
             {"mremap", SYS_mremap},
             {"prctl", SYS_prctl},
             {"sched_getaffinity", SYS_sched_getaffinity},
             {"prlimit64", SYS_prlimit64},
             {"sysinfo", SYS_sysinfo},
             {"openat", SYS_openat},
             {"getrandom", SYS_getrandom},
             {"process_vm_readv", SYS_process_vm_readv},
             {"rseq", SYS_rseq}};

static const struct {
  const char *name;
  unsigned number;
} errors[] = {{"ENOMEM", ENOMEM}, {"EPERM", EPERM},   {"ENOSYS", ENOSYS},
              {"EAGAIN", EAGAIN}, {"EINVAL", EINVAL}, {"EACCES", EACCES}};

static void append(struct sock_filter instruction) {
  REQUIRE(length < FILTER_MAX);
  filter[length++] = instruction;
}

static void load(size_t offset) { append((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset)); }

static void refuse_if_equal(unsigned value, unsigned error) {
  append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
  append((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

static void refuse_threads(unsigned error) {
  refuse_if_equal(SYS_clone3, ENOSYS);
  append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
  load(offsetof(struct seccomp_data, args[0])); /* the low half, on little-endian machines */
  append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
  append((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  load(offsetof(struct seccomp_data, nr));
}

static void refuse(const char *name, size_t name_length, unsigned error) {
  if (name_length == 7 && strncmp(name, "threads", 7) == 0) {
    refuse_threads(error);
    return;
  }
  for (size_t i = 0; i < COUNT_OF(calls); i++) {
    if (strlen(calls[i].name) != name_length || strncmp(calls[i].name, name, name_length) != 0) continue;
    refuse_if_equal((unsigned)calls[i].number, error);
    return;
  }
  test_print(2, "refuse_call: no such call in my table: %s\n", name);
  exit(2);
}

static unsigned error_number(const char *name) {
  for (size_t i = 0; i < COUNT_OF(errors); i++)
    if (strcmp(errors[i].name, name) == 0) return errors[i].number;
  test_print(2, "refuse_call: no such error in my table: %s\n", name);
  exit(2);
}

int main(int argc, char **argv) {
  int i = 1;
  load(offsetof(struct seccomp_data, nr));
  for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
    const char *equals = strchr(argv[i], '=');
    if (equals == NULL) break;
    refuse(argv[i], (size_t)(equals - argv[i]), error_number(equals + 1));
  }
  if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
    test_print(2, "usage: refuse_call NAME=ERRNO ... -- PROGRAM ARGS\n");
    return 2;
  }
  append((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  struct sock_fprog program = {length, filter};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
  execvp(argv[i + 1], argv + i + 1);
  test_print(2, "refuse_call: cannot run %s: %s\n", argv[i + 1], strerror(errno));
  return 127;
}
