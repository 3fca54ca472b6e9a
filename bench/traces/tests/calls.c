/* calls.c: makes known allocations, for the recorder to write down. See `run` for what is expected of each mode. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEPT_BYTES = 1000, SHORT_THREADS = 300, MAILBOXES = 64, RACERS = 4 };

static void *volatile sink; /* keeps the compiler from dropping pairs of malloc and free */

static void *keep(void *block) {
  if (!block) exit(3);
  sink = block;
  return block;
}

/* Six calls that free all they get, and one that keeps KEPT_BYTES: 4 allocations, 1 realloc, 3 frees; 8 calls. */
static void one_round(void) {
  void *aligned;
  char *grown = keep(malloc(100));
  free(keep(calloc(10, 20)));
  grown = keep(realloc(grown, 5000));
  if (posix_memalign(&aligned, 256, 300) != 0) exit(3);
  free(keep(aligned));
  free(grown);
  keep(malloc(KEPT_BYTES));
}

static void rounds(int count) {
  for (int i = 0; i < count; i++) one_round();
}

static void *thread_rounds(void *count) {
  rounds((int)(intptr_t)count);
  return NULL;
}

static void run_threads(int thread_count, int round_count) {
  pthread_t threads[64];
  for (int i = 0; i < thread_count; i++)
    pthread_create(&threads[i], NULL, thread_rounds, (void *)(intptr_t)round_count);
  for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
}

static void run_short_threads(void) {
  for (int i = 0; i < SHORT_THREADS; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, thread_rounds, (void *)1);
    pthread_join(thread, NULL);
  }
}

/* Threads that take each other's blocks out of mailboxes, grow or free them, and put new ones in, truly at the same
 * time: if the order of a recording broke causality anywhere, frees of unknown blocks would show it. */
static void *_Atomic mailboxes[MAILBOXES];

static void *race(void *argument) {
  uint64_t state = (uintptr_t)argument * 2654435761u + 1;
  for (int i = 0; i < 200000; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    size_t size_bytes = 1 + (state >> 33) % 200;
    void *block = atomic_exchange(&mailboxes[(state >> 50) % MAILBOXES], NULL);
    if (block && (state >> 20) % 3 == 0)
      block = keep(realloc(block, size_bytes * 5));
    else if (block) {
      free(block);
      block = NULL;
    }
    if (!block) block = keep(malloc(size_bytes));
    free(atomic_exchange(&mailboxes[(state >> 40) % MAILBOXES], block));
  }
  return NULL;
}

static void run_race(void) {
  pthread_t threads[RACERS];
  for (intptr_t i = 0; i < RACERS; i++) pthread_create(&threads[i], NULL, race, (void *)(i + 1));
  for (int i = 0; i < RACERS; i++) pthread_join(threads[i], NULL);
}

/* The child frees what it inherited, allocates on its own, and forks again; the parent goes on meanwhile. */
static void run_fork(int round_count) {
  void *inherited = keep(malloc(77));
  pid_t child = fork();
  if (child == 0) {
    free(inherited);
    rounds(round_count);
    if (fork() == 0) {
      rounds(round_count);
      _exit(0);
    }
    wait(NULL);
    _exit(0);
  }
  rounds(round_count);
  waitpid(child, NULL, 0);
  free(inherited);
}

/* Closes every descriptor it does not know, opens a file of its own, and goes on. */
static void run_closed(int round_count) {
  closefrom(3);
  FILE *own = tmpfile();
  rounds(round_count);
  fseek(own, 0, SEEK_END);
  if (ftell(own) != 0) {
    fprintf(stderr, "somebody wrote into the program's own file\n");
    exit(4);
  }
  fclose(own);
}

int main(int argument_count, char **arguments) {
  const char *mode = argument_count > 1 ? arguments[1] : "";
  int count = argument_count > 2 ? atoi(arguments[2]) : 0;
  if (strcmp(mode, "rounds") == 0)
    rounds(count);
  else if (strcmp(mode, "threads") == 0)
    run_threads(8, count);
  else if (strcmp(mode, "short") == 0)
    run_short_threads();
  else if (strcmp(mode, "race") == 0)
    run_race();
  else if (strcmp(mode, "fork") == 0)
    run_fork(count);
  else if (strcmp(mode, "closed") == 0)
    run_closed(count);
  else if (strcmp(mode, "killed") == 0) {
    rounds(count);
    raise(SIGKILL);
  } else if (strcmp(mode, "exec") == 0) {
    rounds(count);
    execl("/proc/self/exe", arguments[0], "rounds", arguments[2], (char *)NULL);
    return 3;
  } else {
    fprintf(stderr, "usage: calls rounds|threads|short|race|fork|closed|killed|exec [COUNT]\n");
    return 2;
  }
  return 0;
}
