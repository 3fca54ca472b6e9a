/* footprint PRELOAD KIB MS PROGRAM [ARG]...: what the preload costs a program that soon ends. Runs it 15 times with and
 * without, in turn, and compares the medians of its largest resident size and the smallest CPU times; prints both, and
 * fails if they differ by more than so many KiB or ms. Linked statically: the size of whoever starts a program is the
 * least that the kernel reports for it. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../support/test.h"

enum { RUNS = 15 };

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
  long resident_kib[2][RUNS];
  double cpu_ms[2] = {1e9, 1e9};
  for (int i = 0; i < RUNS; i++) {
    for (int with = 0; with < 2; with++) {
      struct run one = run(with ? argv[1] : NULL, argv + 4);
      resident_kib[with][i] = one.resident_kib;
      if (one.cpu_ms < cpu_ms[with]) cpu_ms[with] = one.cpu_ms;
    }
  }
  for (int with = 0; with < 2; with++) qsort(resident_kib[with], RUNS, sizeof(long), compare);
  long more_kib = resident_kib[1][RUNS / 2] - resident_kib[0][RUNS / 2];
  double more_ms = cpu_ms[1] - cpu_ms[0];
  printf("%s: %ld KiB resident, %+ld under the preload; %.2f ms CPU time, %+.2f\n", argv[4], resident_kib[0][RUNS / 2],
         more_kib, cpu_ms[0], more_ms);
  return more_kib <= atol(argv[2]) && more_ms <= atof(argv[3]) ? 0 : 1;
}
