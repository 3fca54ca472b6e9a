/* fail_each: runs a program again and again, and makes the 1st, 2nd, 3rd ... call of one system call fail.
 *
 *   fail_each --call NAME --errno NAME [--from-start] [--forever] [--limit N] [--name NAME] -- PROGRAM ARGS
 *
 * The kernel asks this supervisor about every such call (seccomp user notification, Linux 5.5); it refuses the Nth and
 * lets all others continue. With --forever it refuses the Nth and all later ones. The call "commit" is each one by
 * which a process may write to more memory: with --forever, what vm.overcommit_memory=2 does when all is promised.
 * Counting begins when the program calls personality(0xffffffff), which changes nothing, or with --from-start at its
 * exec. The program must exit with 0, however its calls fail; with --from-start, where the loader may refuse to start
 * it, with any status. Death by a signal and hanging are failures always.
 * Ends after the first run that made fewer than N calls. Prints "ok NAME ..." or "not ok NAME ...". */
#include "../support/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { TIMEOUT_S = 60, CALLS_MAX = 4 };

struct call {
  const char *name;
  long numbers[CALLS_MAX];                           /* alternatives that count as one */
  bool (*is_meant)(const struct seccomp_data *data); /* NULL: all of them are */
};

static bool adds_writable_memory(const struct seccomp_data *data) {
  if (data->nr == SYS_mremap) return data->args[2] > data->args[1];
  bool counts_for_us = data->nr != SYS_mmap || (data->args[3] & MAP_PRIVATE) != 0;
  return counts_for_us && (data->args[2] & PROT_WRITE) != 0;
}

static const struct call calls[] = {
    {"commit", {SYS_mmap, SYS_mprotect, SYS_mremap, -1}, adds_writable_memory},
    {"mmap", {SYS_mmap, -1}, NULL},
    {"munmap", {SYS_munmap, -1}, NULL},
    {"mprotect", {SYS_mprotect, -1}, NULL},
    {"madvise", {SYS_madvise, SYS_process_madvise, -1}, NULL},
    {"mremap", {SYS_mremap, -1}, NULL},
    {"membarrier", {SYS_membarrier, -1}, NULL},
    {"clone", {SYS_clone, SYS_clone3, -1}, NULL},
    {"prctl", {SYS_prctl, -1}, NULL},
};

static struct {
  const struct call *call;
  int error;
  bool from_start, forever;
  unsigned long limit;
  const char *name;
  char **program;
} options = {.limit = 2000};

static bool counts(const struct seccomp_data *data) {
  for (int i = 0; options.call->numbers[i] >= 0; i++)
    if (options.call->numbers[i] == data->nr) return options.call->is_meant == NULL || options.call->is_meant(data);
  return false;
}

static unsigned short append_notification(struct sock_filter *filter, unsigned short length, long number) {
  filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1);
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
  return length;
}

/* In the child: asks for notifications and sends their descriptor to the supervisor. */
static void install_filter(int socket_descriptor) {
  struct sock_filter filter[2 * CALLS_MAX + 4];
  unsigned short length = 0;
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  length = append_notification(filter, length, SYS_personality);
  for (int i = 0; options.call->numbers[i] >= 0; i++)
    length = append_notification(filter, length, options.call->numbers[i]);
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog description = {length, filter};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &description);
  REQUIRE(listener >= 0);
  char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
  struct iovec piece = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &listener, sizeof(int));
  REQUIRE(sendmsg(socket_descriptor, &message, 0) == 1);
  close(listener);
  close(socket_descriptor);
}

static int receive_listener(int socket_descriptor) {
  char control[CMSG_SPACE(sizeof(int))], byte;
  struct iovec piece = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  if (recvmsg(socket_descriptor, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  int listener = -1;
  if (header != NULL) memcpy(&listener, CMSG_DATA(header), sizeof(int));
  return listener;
}

struct run {
  unsigned long counted; /* calls seen since counting began */
  int status;            /* of the program, as waitpid gives it */
  bool hung;
};

/* Answers one notification. The kernel forgets those whose thread died meanwhile: errors do not matter. */
static void answer(int listener, unsigned long nth, bool *armed, struct run *run) {
  struct seccomp_notif notification;
  memset(&notification, 0, sizeof notification);
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notification) != 0) return;
  struct seccomp_notif_resp response = {.id = notification.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
  if (notification.data.nr == SYS_personality) {
    *armed = true;
  } else if (*armed && counts(&notification.data)) {
    run->counted++;
    if (run->counted == nth || (options.forever && run->counted > nth)) {
      response.flags = 0;
      response.error = -options.error;
    }
  }
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static struct run run_once(unsigned long nth) {
  int sockets[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    setpgid(0, 0);
    install_filter(sockets[1]);
    execvp(options.program[0], options.program);
    test_print(2, "fail_each: cannot run %s: %s\n", options.program[0], strerror(errno));
    _exit(127);
  }
  close(sockets[1]);
  int listener = receive_listener(sockets[0]);
  close(sockets[0]);
  REQUIRE(listener >= 0);
  struct run run = {0, 0, false};
  bool armed = options.from_start, ended = false;
  double end_s = now_s() + TIMEOUT_S;
  while (!ended) {
    struct pollfd wait_for = {listener, POLLIN, 0};
    poll(&wait_for, 1, 100);
    if (wait_for.revents & POLLIN)
      answer(listener, nth, &armed, &run);
    else
      ended = waitpid(child, &run.status, WNOHANG) == child;
    if (!ended && now_s() > end_s) {
      run.hung = true;
      kill(-child, SIGKILL);
      waitpid(child, &run.status, 0);
      ended = true;
    }
  }
  close(listener);
  return run;
}

static const struct {
  const char *name;
  int number;
} errors[] = {{"ENOMEM", ENOMEM}, {"EPERM", EPERM}, {"ENOSYS", ENOSYS}, {"EAGAIN", EAGAIN}, {"EINVAL", EINVAL}};

static void usage(void) {
  test_print(
      2,
      "usage: fail_each --call NAME --errno NAME [--from-start] [--forever] [--limit N] [--name NAME] -- PROGRAM "
      "ARGS\n");
  exit(2);
}

static void read_options(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "--") == 0) {
      options.program = argv + i + 1;
      break;
    } else if (strcmp(argv[i], "--from-start") == 0) {
      options.from_start = true;
      continue;
    } else if (strcmp(argv[i], "--forever") == 0) {
      options.forever = true;
      continue;
    } else if (strcmp(argv[i], "--call") == 0) {
      for (size_t k = 0; k < COUNT_OF(calls); k++)
        if (strcmp(calls[k].name, value) == 0) options.call = &calls[k];
    } else if (strcmp(argv[i], "--errno") == 0) {
      for (size_t k = 0; k < COUNT_OF(errors); k++)
        if (strcmp(errors[k].name, value) == 0) options.error = errors[k].number;
    } else if (strcmp(argv[i], "--limit") == 0) {
      options.limit = strtoul(value, NULL, 0);
    } else if (strcmp(argv[i], "--name") == 0) {
      options.name = value;
    } else {
      usage();
    }
    i++;
  }
  if (options.call == NULL || options.error == 0 || options.program == NULL || options.program[0] == NULL) usage();
  if (options.name == NULL) options.name = options.call->name;
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  unsigned long nth = 1, failures = 0;
  for (; nth <= options.limit; nth++) {
    struct run run = run_once(nth);
    bool passed = !run.hung && WIFEXITED(run.status) && (options.from_start || WEXITSTATUS(run.status) == 0);
    if (!passed) {
      failures++;
      test_print(2, "fail_each: %s number %lu%s failing with error %d: %s (wait status 0x%x, %lu calls)\n",
                 options.call->name, nth, options.forever ? " and all later ones" : "", options.error,
                 run.hung ? "the program hung" : "the program failed", run.status, run.counted);
      if (failures == 5) break;
    }
    if (run.counted < nth) break;
  }
  if (failures > 0)
    test_print(1, "not ok %s: %lu runs failed\n", options.name, failures);
  else
    test_print(1, "ok %s (%lu calls failed in turn)\n", options.name, nth - 1);
  return failures > 0;
}
