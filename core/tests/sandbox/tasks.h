/* tasks.h: the threads of this process as the kernel shows them, those included that the program did not start. */
#ifndef SNUG_TEST_TASKS_H
#define SNUG_TEST_TASKS_H

#include "../support/test.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { TASKS_MAX = 64, RIGHTS_BYTES = 512, STATUS_BYTES = 4096, FLAG_ENDING = 0x4 /* PF_EXITING */ };

/* Which lines of /proc/PID/task/TID/status say what a thread may do. */
static const char *const rights_lines[] = {
    "Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"};

struct task {
  pid_t id;
  char rights[RIGHTS_BYTES];
};

/* The start of a file about a thread; false if the thread is gone. */
static inline bool task_file(pid_t id, const char *name, char text[STATUS_BYTES]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)id, name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd >= 0 ? read(fd, text, STATUS_BYTES - 1) : -1;
  if (fd >= 0) close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  return true;
}

/* Whether it does nothing any more but end, which the kernel may need a while for on a busy machine. */
static inline bool task_is_ending(pid_t id) {
  char text[STATUS_BYTES];
  if (!task_file(id, "stat", text)) return true;
  unsigned flags = 0;
  const char *after_name = strrchr(text, ')');
  REQUIRE(after_name != NULL && sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1);
  return flags & FLAG_ENDING;
}

/* False if the thread is gone, or about to be. */
static inline bool task_read(struct task *task, pid_t id) {
  char text[STATUS_BYTES];
  if (task_is_ending(id) || !task_file(id, "status", text)) return false;
  task->id = id;
  size_t used = 0;
  for (size_t i = 0; i < COUNT_OF(rights_lines); i++) {
    const char *line = strstr(text, rights_lines[i]);
    size_t bytes = line != NULL ? strcspn(line, "\n") + 1 : 0;
    if (used + bytes >= RIGHTS_BYTES) bytes = RIGHTS_BYTES - used - 1;
    memcpy(task->rights + used, line != NULL ? line : "", bytes);
    used += bytes;
  }
  task->rights[used] = '\0';
  return true;
}

/* All but the calling thread. Uses no heap: readdir(3) would. */
static inline size_t tasks_others(struct task *tasks, size_t capacity) {
  static __thread char entries[8192] __attribute__((aligned(8)));
  size_t count = 0;
  int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(folder >= 0);
  for (long got; (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
    for (long offset = 0; offset < got;) {
      const struct dirent64 *entry = (const struct dirent64 *)(entries + offset);
      offset += entry->d_reclen;
      pid_t id = (pid_t)atoi(entry->d_name);
      if (id != 0 && id != gettid() && count < capacity && task_read(&tasks[count], id)) count++;
    }
  }
  close(folder);
  return count;
}

static inline void *tasks_churn_thread(void *argument) {
  enum { BLOCKS = 1500, BYTES = 9000 };
  void **blocks = (void **)hidden(malloc(BLOCKS * sizeof *blocks));
  REQUIRE(blocks != NULL);
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = hidden(malloc(BYTES));
    REQUIRE(blocks[i] != NULL);
    memset(blocks[i], 1, BYTES);
  }
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
  free(blocks);
  return argument;
}

/* More than 20 MB are freed by several threads, which then end: enough for a helper thread, if there is one. */
static inline void tasks_churn(unsigned threads) {
  pthread_t others[8];
  REQUIRE(threads <= COUNT_OF(others));
  for (unsigned i = 0; i < threads; i++) REQUIRE(pthread_create(&others[i], NULL, tasks_churn_thread, NULL) == 0);
  for (unsigned i = 0; i < threads; i++) pthread_join(others[i], NULL);
  tasks_churn_thread(NULL);
  for (int i = 0; i < 300; i++) {
    void *first = hidden(malloc(40000)), *second = hidden(malloc(40000));
    free(first);
    free(second);
  }
}

#endif
