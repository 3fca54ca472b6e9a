/* rules.h: seccomp filters from short text files, in plain BPF.
 *
 *   # comment
 *   ACTION CALL [argN[&MASK]=VALUE[,VALUE]...]
 *   default ACTION
 *
 * ACTION is allow, kill (the whole process, with SIGSYS), or errno:NUMBER. The first line that fits a system call
 * decides. A condition compares the low 32 bits of an argument, of those in MASK, with each VALUE. Calls that this
 * architecture does not have are skipped, so that a list of another one serves, too.
 */
#ifndef SNUG_TEST_RULES_H
#define SNUG_TEST_RULES_H

#include "../support/test.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "syscall_names.h" /* made by sandbox.mk from the kernel's headers */

#include "../../src/syscall_raw.h"

#if defined(__x86_64__)
#define RULES_ARCH AUDIT_ARCH_X86_64
#else
#define RULES_ARCH AUDIT_ARCH_AARCH64
#endif

TEST_C_LINKAGE void snug_enter_sandbox(void) __attribute__((weak));

enum { RULES_MAX = 4096 };

static struct sock_filter rules_code[RULES_MAX];
static unsigned rules_length;

__attribute__((format(printf, 1, 2), noreturn)) static inline void rules_fail(const char *format, ...) {
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  test_print(2, "rules: %s\n", what);
  _exit(2);
}

static inline void rules_append(struct sock_filter instruction) {
  if (rules_length == RULES_MAX) rules_fail("too many");
  rules_code[rules_length++] = instruction;
}

static inline void rules_load(size_t offset) {
  rules_append((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static inline long rules_call_number(const char *name) {
  for (size_t i = 0; i < COUNT_OF(syscall_names); i++)
    if (strcmp(syscall_names[i].name, name) == 0) return syscall_names[i].number;
  return -1;
}

static inline unsigned rules_action(const char *text) {
  if (strcmp(text, "allow") == 0) return SECCOMP_RET_ALLOW;
  if (strcmp(text, "kill") == 0) return SECCOMP_RET_KILL_PROCESS;
  if (strncmp(text, "errno:", 6) == 0) return SECCOMP_RET_ERRNO | (unsigned)strtoul(text + 6, NULL, 0);
  rules_fail("unknown action \"%s\"", text);
}

static inline void rules_return(unsigned action) {
  rules_append((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* The call is the right one. Leaves its number loaded for the next line if the condition does not hold. */
static inline void rules_condition(char *text, unsigned action) {
  char *values = strchr(text, '=');
  if (strncmp(text, "arg", 3) != 0 || values == NULL) rules_fail("\"%s\" is no condition", text);
  *values++ = '\0';
  char *mask = strchr(text, '&');
  unsigned long number = strtoul(text + 3, NULL, 10);
  rules_load(offsetof(struct seccomp_data, args) + 8 * number); /* the low half, on little-endian machines */
  if (mask != NULL)
    rules_append((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (unsigned)strtoul(mask + 1, NULL, 0)));
  char *state = NULL;
  for (char *value = strtok_r(values, ",", &state); value != NULL; value = strtok_r(NULL, ",", &state)) {
    unsigned wanted = (unsigned)strtoul(value, NULL, 0);
    rules_append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wanted, 0, 1));
    rules_return(action);
  }
  rules_load(offsetof(struct seccomp_data, nr));
}

static inline void rules_line(char *line) {
  char *state = NULL;
  char *action = strtok_r(line, " \t\n", &state);
  char *call = action != NULL ? strtok_r(NULL, " \t\n", &state) : NULL;
  char *condition = call != NULL ? strtok_r(NULL, " \t\n", &state) : NULL;
  if (action == NULL || action[0] == '#') return;
  if (call == NULL) rules_fail("\"%s\" without a call", action);
  if (strcmp(action, "default") == 0) {
    rules_return(rules_action(call));
    return;
  }
  long number = rules_call_number(call);
  unsigned returned = rules_action(action);
  if (number < 0) return;
  unsigned jump = rules_length;
  rules_append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 0));
  if (condition != NULL) {
    rules_condition(condition, returned);
  } else {
    rules_return(returned);
  }
  if (rules_length - jump - 1 > 255) rules_fail("too many values for %s", call);
  rules_code[jump].jf = (unsigned char)(rules_length - jump - 1);
}

/* Reads the file now, so that nothing is left to do but one call when it is applied. */
static inline void rules_read(const char *path) {
  static char text[65536];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (length < 0 || length == (ssize_t)sizeof text - 1) rules_fail("%s can't be read, or is too long", path);
  close(fd);
  text[length] = '\0';
  rules_length = 0;
  rules_load(offsetof(struct seccomp_data, arch));
  rules_append((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RULES_ARCH, 1, 0));
  rules_return(SECCOMP_RET_KILL_PROCESS);
  rules_load(offsetof(struct seccomp_data, nr));
  for (char *line = text, *end; line != NULL && *line != '\0'; line = end) {
    end = strchr(line, '\n');
    if (end != NULL) *end++ = '\0';
    rules_line(line);
  }
  rules_return(SECCOMP_RET_ALLOW);
}

/* A system call that passes through no library. */
static inline long rules_unseen_call(long number, long a, long b, const void *c) {
  long result = syscall_raw(number, a, b, (long)c, 0, 0, 0);
  if (result < 0) errno = (int)-result;
  return result;
}

/* `by` says through which function: prctl, as most programs do; syscall, as libseccomp does; none, which snug can't see
 * and is told of before. */
static inline void rules_apply(const char *by) {
  struct sock_fprog program = {(unsigned short)rules_length, rules_code};
  bool unseen = strcmp(by, "none") == 0;
  if (unseen && snug_is_active()) snug_enter_sandbox();
  long result =
      unseen ? rules_unseen_call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, NULL) : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (result != 0) rules_fail("no_new_privs: %s", strerror(errno));
  result = -1;
  if (unseen) {
    result = rules_unseen_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
  } else if (strcmp(by, "prctl") == 0) {
    result = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  } else if (strcmp(by, "syscall") == 0) {
    result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  } else {
    rules_fail("unknown way \"%s\"", by);
  }
  if (result != 0) rules_fail("seccomp by %s: %s", by, strerror(errno));
}

#endif
