/* vfork_namespaces: a vfork child, whose memory is the parent's, calls unshare and setns while the parent's helper
 * thread is in the middle of something long. Whatever these two wait for or note is the parent's; a second helper on
 * the first one's stack would be its end.
 *
 * The helper is made slow by ptrace: all threads but the first wait at each madvise. */
#include "tasks.h"

#include <sched.h>
#include <sys/ptrace.h>

enum { ROUNDS = 3, BLOCKS = 3000, BLOCK_BYTES = 20000, MADVISE_US = 3000, IDLE_MS = 600, CHURNS = 60 };

struct call_info { /* of PTRACE_GET_SYSCALL_INFO; libc's own header has it under several names */
  uint8_t op, pad[3];
  uint32_t arch;
  uint64_t instruction_pointer, stack_pointer, number;
};

static size_t count_helpers(void) {
  static struct task others[TASKS_MAX];
  return tasks_others(others, TASKS_MAX);
}

/* Every second block goes, so that there is a piece to give back for each. */
static void leave_pieces(void **blocks) {
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = hidden(malloc(BLOCK_BYTES));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, BLOCK_BYTES);
  }
  for (size_t i = 0; i < BLOCKS; i += 2) free(blocks[i]);
}

static void change_namespaces_in_child(int namespace_fd) {
  pid_t child = vfork();
  if (child == 0) {
    int result = unshare(CLONE_NEWUTS);
    result |= setns(namespace_fd, CLONE_NEWUTS);
    _exit(result != 0);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

static int run_traced(void) {
  static void *blocks[BLOCKS];
  int namespace_fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
  REQUIRE(namespace_fd >= 0);
  size_t met = 0;
  tasks_churn(1); /* a program of one thread gets no helper thread in a sandbox, such as a container's */
  for (int round = 0; round < ROUNDS; round++) {
    leave_pieces(blocks);
    sleep_ms(IDLE_MS);
    met += count_helpers();
    change_namespaces_in_child(namespace_fd);
    for (int i = 0; i < CHURNS; i++) {
      for (int j = 0; j < 50; j++) free(hidden(malloc(40000)));
      CHECK_THAT(count_helpers() <= 1, "two helper threads at once");
      sleep_ms(5);
    }
    for (size_t i = 1; i < BLOCKS; i += 2) free(blocks[i]);
  }
  if (snug_is_active()) CHECK_THAT(met != 0, "no child of vfork met a helper thread");
  return test_failed != 0;
}

/* Lets the first thread run freely, and stops the others at their system calls. Returns the program's wait status. */
static int trace(pid_t program) {
  for (;;) {
    int status = 0;
    pid_t id = waitpid(-1, &status, __WALL);
    if (id < 0) return -1;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (id == program) return status;
      continue;
    }
    int number = WSTOPSIG(status);
    bool is_call = number == (SIGTRAP | 0x80);
    struct call_info info;
    if (is_call && ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info) > 0 &&
        info.op == PTRACE_SYSCALL_INFO_ENTRY && info.number == SYS_madvise)
      usleep(MADVISE_US);
    bool ours = is_call || number == SIGTRAP || number == SIGSTOP;
    ptrace(id == program ? PTRACE_CONT : PTRACE_SYSCALL, id, NULL, ours ? 0 : number);
  }
}

TEST(namespaces_in_a_vfork_child) {
  if (geteuid() != 0) SKIP("needs root");
  pid_t program = fork();
  REQUIRE(program >= 0);
  if (program == 0) {
    alarm(60);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    raise(SIGSTOP);
    _exit(run_traced());
  }
  int status = 0;
  REQUIRE(waitpid(program, &status, 0) == program);
  if (WIFEXITED(status)) SKIP("ptrace is refused here");
  REQUIRE(ptrace(PTRACE_SETOPTIONS, program, NULL, PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD) == 0);
  ptrace(PTRACE_CONT, program, NULL, 0);
  status = trace(program);
  CHECK_THAT(status == 0, "the program's wait status is 0x%x", status);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
