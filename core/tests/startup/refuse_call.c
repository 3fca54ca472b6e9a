/* refuse_call: runs a program in a sandbox that refuses system calls, as container runtimes do.
 *
 *   refuse_call NAME=ERRNO ... -- PROGRAM ARGS
 *   refuse_call --linux 4.4 -- PROGRAM ARGS         what came after that version of the kernel, as it does itself
 *
 * NAME is a system call of the table below, or `threads`: clone for a new thread (processes are still allowed; clone3,
 * whose arguments a filter cannot see, does not exist then, so that the C library falls back to clone). */
#include "../support/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { FILTER_MAX = 256, NEWEST_CALL = 450 /* set_mempolicy_home_node, of 5.17 */ };

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

#define VERSION_OF(major, minor) ((major) * 1000 + (minor))

/* Since which version there are calls: refused with ENOSYS before. */
static const struct {
  unsigned since;
  long number;
} newer_calls[] = {{VERSION_OF(3, 14), SYS_sched_setattr},
                   {VERSION_OF(3, 15), SYS_renameat2},
                   {VERSION_OF(3, 17), SYS_seccomp},
                   {VERSION_OF(3, 17), SYS_getrandom},
                   {VERSION_OF(3, 17), SYS_memfd_create},
                   {VERSION_OF(3, 18), SYS_bpf},
                   {VERSION_OF(3, 19), SYS_execveat},
                   {VERSION_OF(4, 3), SYS_userfaultfd},
                   {VERSION_OF(4, 3), SYS_membarrier},
                   {VERSION_OF(4, 4), SYS_mlock2},
                   {VERSION_OF(4, 5), SYS_copy_file_range},
                   {VERSION_OF(4, 6), SYS_preadv2},
                   {VERSION_OF(4, 6), SYS_pwritev2},
                   {VERSION_OF(4, 9), SYS_pkey_mprotect},
                   {VERSION_OF(4, 9), SYS_pkey_alloc},
                   {VERSION_OF(4, 9), SYS_pkey_free},
                   {VERSION_OF(4, 11), SYS_statx},
                   {VERSION_OF(4, 18), SYS_rseq},
                   {VERSION_OF(5, 1), SYS_pidfd_send_signal},
                   {VERSION_OF(5, 1), SYS_io_uring_setup},
                   {VERSION_OF(5, 3), SYS_pidfd_open},
                   {VERSION_OF(5, 3), SYS_clone3},
                   {VERSION_OF(5, 6), SYS_openat2},
                   {VERSION_OF(5, 6), SYS_pidfd_getfd},
                   {VERSION_OF(5, 8), SYS_faccessat2},
                   {VERSION_OF(5, 9), SYS_close_range},
                   {VERSION_OF(5, 10), SYS_process_madvise},
                   {VERSION_OF(5, 11), SYS_epoll_pwait2},
                   {VERSION_OF(5, 14), SYS_memfd_secret},
                   {VERSION_OF(5, 15), SYS_process_mrelease},
                   {VERSION_OF(5, 16), SYS_futex_waitv}};

/* The same of operations and flags, a whole argument of a call: refused with EINVAL before. */
static const struct {
  unsigned since;
  long number;
  unsigned argument, value;
} newer_values[] = {{VERSION_OF(4, 5), SYS_madvise, 2, 8},          /* MADV_FREE */
                    {VERSION_OF(4, 14), SYS_madvise, 2, 18},        /* MADV_WIPEONFORK */
                    {VERSION_OF(4, 14), SYS_madvise, 2, 19},        /* MADV_KEEPONFORK */
                    {VERSION_OF(5, 4), SYS_madvise, 2, 20},         /* MADV_COLD */
                    {VERSION_OF(5, 4), SYS_madvise, 2, 21},         /* MADV_PAGEOUT */
                    {VERSION_OF(5, 14), SYS_madvise, 2, 22},        /* MADV_POPULATE_READ */
                    {VERSION_OF(5, 14), SYS_madvise, 2, 23},        /* MADV_POPULATE_WRITE */
                    {VERSION_OF(5, 18), SYS_madvise, 2, 24},        /* MADV_DONTNEED_LOCKED */
                    {VERSION_OF(6, 1), SYS_madvise, 2, 25},         /* MADV_COLLAPSE */
                    {VERSION_OF(4, 14), SYS_membarrier, 0, 8},      /* PRIVATE_EXPEDITED */
                    {VERSION_OF(4, 14), SYS_membarrier, 0, 16},     /* REGISTER_PRIVATE_EXPEDITED */
                    {VERSION_OF(5, 17), SYS_prctl, 0, 0x53564d41}}; /* PR_SET_VMA */

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

static void refuse_newer_values(unsigned version) {
  for (size_t i = 0; i < COUNT_OF(newer_values); i++) {
    if (newer_values[i].since <= version) continue;
    append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)newer_values[i].number, 0, 4));
    load(offsetof(struct seccomp_data, args[newer_values[i].argument])); /* the low half */
    refuse_if_equal(newer_values[i].value, EINVAL);
    load(offsetof(struct seccomp_data, nr));
  }
}

/* All that is not in a version of the kernel, such as 4.4. */
static void refuse_newer(const char *text) {
  char *end;
  unsigned long major = strtoul(text, &end, 10);
  REQUIRE(*end == '.');
  unsigned version = (unsigned)VERSION_OF(major, strtoul(end + 1, &end, 10));
  REQUIRE(*end == '\0');
  append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST_CALL, 0, 1));
  append((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
  for (size_t i = 0; i < COUNT_OF(newer_calls); i++)
    if (newer_calls[i].since > version) refuse_if_equal((unsigned)newer_calls[i].number, ENOSYS);
  refuse_newer_values(version);
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
  if (argc > 2 && strcmp(argv[1], "--linux") == 0) {
    refuse_newer(argv[2]);
    i = 3;
  }
  for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
    const char *equals = strchr(argv[i], '=');
    if (equals == NULL) break;
    refuse(argv[i], (size_t)(equals - argv[i]), error_number(equals + 1));
  }
  if (i + 1 >= argc || strcmp(argv[i], "--") != 0) {
    test_print(2, "usage: refuse_call [--linux MAJOR.MINOR] NAME=ERRNO ... -- PROGRAM ARGS\n");
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
