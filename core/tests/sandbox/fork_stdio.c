/* fork_stdio: three threads, of which each waits for the next if an allocator's fork handlers take its locks before
 * stdio's list of files is locked, which fork(2) does after all handlers ran:
 *
 *   A in fork        holds the allocator's locks, waits for the list of files
 *   B in fflush(0)   holds the list of files, waits for a file
 *   C in getline     holds that file, waits for the allocator
 *
 * A watchdog ends the test as failed. Under glibc's own malloc nothing waits forever. */
#include "../support/test.h"

#include <pthread.h>

enum { SECONDS = 4, WATCHDOG_S = 40, LINE_BYTES = 30000 };

static volatile bool ends;
static FILE *file;

static void *flush_all(void *argument) {
  while (!ends) fflush(NULL);
  return argument;
}

/* A line that is longer than the buffer so far: getline calls realloc while it holds the file. */
static void *read_lines(void *argument) {
  while (!ends) {
    char *line = NULL;
    size_t capacity = 0;
    rewind(file);
    for (int i = 0; i < 4; i++) {
      free(line);
      line = NULL;
      capacity = 0;
      if (getline(&line, &capacity, file) < 0) break;
    }
    free(line);
  }
  return argument;
}

static void *churn(void *argument) {
  while (!ends) free(hidden(malloc(20000)));
  return argument;
}

static void say_stuck(int number) {
  static const char text[] = "not ok fork_flush_and_getline\n";
  (void)number;
  if (write(1, text, sizeof text - 1) < 0) _exit(2);
  _exit(1);
}

TEST(fork_flush_and_getline) {
  signal(SIGALRM, say_stuck);
  alarm(WATCHDOG_S);
  file = tmpfile();
  REQUIRE(file != NULL);
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < LINE_BYTES; j++) fputc('x', file);
    fputc('\n', file);
  }
  pthread_t threads[4];
  REQUIRE(pthread_create(&threads[0], NULL, flush_all, NULL) == 0);
  REQUIRE(pthread_create(&threads[1], NULL, read_lines, NULL) == 0);
  REQUIRE(pthread_create(&threads[2], NULL, read_lines, NULL) == 0);
  REQUIRE(pthread_create(&threads[3], NULL, churn, NULL) == 0);
  unsigned forks = 0;
  for (double end_s = now_s() + SECONDS; now_s() < end_s; forks++) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      free(hidden(malloc(5000)));
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_THAT(status == 0, "the child's wait status is 0x%x", status);
  }
  ends = true;
  for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
  alarm(0);
  fclose(file);
  CHECK_THAT(forks > 20, "only %u forks", forks);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
