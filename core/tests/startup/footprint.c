/* footprint PRELOAD KIB MS PROGRAM [ARG]...: what the preload costs a program that soon ends. Runs it 15 times with and
 * without, in turn, and compares the medians of its largest resident size and the smallest CPU times; prints both, and
 * fails if they differ by more than so many KiB or ms. Before it fails it looks at up to 60 runs: on a busy machine the
 * smallest time needs a quiet moment. Linked statically: the size of whoever starts a program is the least that the
 * kernel reports for it. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../support/test.h"

enum { RUNS_MIN = 15, RUNS_MAX = 60 };

struct run {
  long resident_kib;
  double cpu_ms;
};

static double milliseconds(struct timeval time) { return (double)time.tv_sec * 1e3 + (double)time.tv_usec / 1e3; }

static struct run run(const char *preload, char **command) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
    execvp(command[0], command);
    _exit(127);
  }
  int status;
  struct rusage usage;
  REQUIRE(wait4(child, &status, 0, &usage) == child);
  REQUIRE(status == 0);
  return (struct run){usage.ru_maxrss, milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime)};
}

static int compare(const void *left, const void *right) {
  long a = *(const long *)left, b = *(const long *)right;
  return (a > b) - (a < b);
}

int main(int argc, char **argv) {
  REQUIRE(argc > 4);
  long resident_kib[2][RUNS_MAX], median_kib[2];
  double cpu_ms[2] = {1e9, 1e9};
  bool fits = false;
  for (int runs = 1; runs <= RUNS_MAX && !fits; runs++) {
    for (int with = 0; with < 2; with++) {
      struct run one = run(with ? argv[1] : NULL, argv + 4);
      if (one.cpu_ms < cpu_ms[with]) cpu_ms[with] = one.cpu_ms;
      resident_kib[with][runs - 1] = one.resident_kib;
      qsort(resident_kib[with], (size_t)runs, sizeof(long), compare);
      median_kib[with] = resident_kib[with][runs / 2];
    }
    fits = runs >= RUNS_MIN && median_kib[1] - median_kib[0] <= atol(argv[2]) && cpu_ms[1] - cpu_ms[0] <= atof(argv[3]);
  }
  printf("%s: %ld KiB resident, %+ld under the preload; %.2f ms CPU time, %+.2f\n", argv[4], median_kib[0],
         median_kib[1] - median_kib[0], cpu_ms[0], cpu_ms[1] - cpu_ms[0]);
  return fits ? 0 : 1;
}
