/* footprint PRELOAD KIB MS PROGRAM [ARG]...: what the preload costs a program that soon ends. Runs it 15 times with
 * and without, in turn, and compares the medians of its anonymous memory at its exit and the smallest CPU times;
 * prints both, and fails if they differ by more than so many KiB or ms. Before it fails it looks at up to 60 runs: on
 * a busy machine the smallest time needs a quiet moment. Pages of files are left out: how many a fault maps depends
 * on how they lie in the page cache, and all processes share them. */
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../support/test.h"

enum { RUNS_MIN = 15, RUNS_MAX = 60 };

struct run {
  long anonymous_kib;
  double cpu_ms;
};

static double milliseconds(struct timeval time) { return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3; }

/* The sum of all lines "Anonymous:" of a stopped process, in KiB. */
static long anonymous_kib(pid_t process) {
  char path[32], line[512];
  snprintf(path, sizeof path, "/proc/%d/smaps", process);
  FILE *file = fopen(path, "r");
  REQUIRE(file != NULL);
  long sum = 0, kib;
  while (fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Anonymous: %ld", &kib) == 1) sum += kib;
  fclose(file);
  REQUIRE(sum > 0);
  return sum;
}

static struct run run(const char *preload, char **command) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
    REQUIRE(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    execvp(command[0], command);
    _exit(127);
  }
  int status;
  REQUIRE(waitpid(child, &status, 0) == child && WIFSTOPPED(status)); /* it has executed the program */
  REQUIRE(ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)) == 0);
  struct rusage usage;
  long anonymous = 0;
  for (int passed_on = 0;;) {
    REQUIRE(ptrace(PTRACE_CONT, child, NULL, (void *)(long)passed_on) == 0);
    REQUIRE(wait4(child, &status, 0, &usage) == child);
    if (!WIFSTOPPED(status)) break;
    bool exits = status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8);
    if (exits) anonymous = anonymous_kib(child);
    passed_on = exits ? 0 : WSTOPSIG(status);
  }
  REQUIRE(status == 0);
  return (struct run){anonymous, milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime)};
}

static int compare(const void *left, const void *right) {
  long a = *(const long *)left, b = *(const long *)right;
  return (a > b) - (a < b);
}

int main(int argc, char **argv) {
  REQUIRE(argc > 4);
  long anonymous_kib[2][RUNS_MAX], median_kib[2];
  double cpu_ms[2] = {1e9, 1e9};
  bool fits = false;
  for (int runs = 1; runs <= RUNS_MAX && !fits; runs++) {
    for (int with = 0; with < 2; with++) {
      struct run one = run(with ? argv[1] : NULL, argv + 4);
      if (one.cpu_ms < cpu_ms[with]) cpu_ms[with] = one.cpu_ms;
      anonymous_kib[with][runs - 1] = one.anonymous_kib;
      qsort(anonymous_kib[with], (size_t)runs, sizeof(long), compare);
      median_kib[with] = anonymous_kib[with][runs / 2];
    }
    fits = runs >= RUNS_MIN && median_kib[1] - median_kib[0] <= atol(argv[2]) && cpu_ms[1] - cpu_ms[0] <= atof(argv[3]);
  }
  printf("%s: %ld KiB of anonymous memory, %+ld under the preload; %.2f ms CPU time, %+.2f\n", argv[4], median_kib[0],
         median_kib[1] - median_kib[0], cpu_ms[0], cpu_ms[1] - cpu_ms[0]);
  return fits ? 0 : 1;
}
