/* A signal handler forks while its own thread may be anywhere in the allocator, under locks, too: as handlers do that
 * start a debugger or restart a worker. Nobody may hang. First with one thread, whose children return from the handler,
 * go on where it was interrupted, and check all; then with several, whose children end at once, as is all they may.
 *
 * musl, and glibc from 2.28 to 2.35, hold a lock of their own over the handlers of a fork. A thread that is
 * interrupted under a lock of ours, and whose handler forks, waits for that lock and never comes to us, while another
 * that forks has it and waits for ours: there only the first part can be. */
#include "stress.h"

#ifdef __GLIBC__
#include <gnu/libc-version.h>
static bool forks_may_meet(void) {
  const char *version = gnu_get_libc_version(); /* "2.36", which need not be the one that this was compiled for */
  int minor = atoi(version + 2);
  return strncmp(version, "2.", 2) != 0 || minor < 28 || minor > 35;
}
#else
static bool forks_may_meet(void) { return false; }
#endif

#include <sys/time.h>

enum { TIMEOUT_S = 60, FORK_SLOTS = 1024, CHILD_STEPS = 300, PERIOD_US = 2000 };

static bool children_go_on = true;
static volatile sig_atomic_t is_child;
static atomic_ullong forks;

static void check_child(pid_t child, int status) {
  STRESS_CHECK(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "child %d hung for %d s", (int)child, TIMEOUT_S);
  STRESS_CHECK(status == 0, "child %d ended with wait status 0x%x", (int)child, status);
}

static void reap(int options_of_wait) {
  int status;
  pid_t child;
  while ((child = waitpid(-1, &status, options_of_wait)) > 0) check_child(child, status);
}

static void fork_here(int signal_number) {
  (void)signal_number;
  int saved = errno;
  reap(WNOHANG);
  pid_t child = fork();
  if (child == 0) {
    alarm(TIMEOUT_S);
    if (!children_go_on) _exit(0);
    is_child = 1;
  } else if (child > 0) {
    atomic_fetch_add(&forks, 1);
  }
  errno = saved;
}

static void end_child(uint64_t *random) {
  for (int step = 0; step < CHILD_STEPS; step++) exchange_step(random, FORK_SLOTS);
  exchange_drain();
  if (snug_check != NULL) snug_check();
  _exit(0);
}

static void fork_as_usual(void) {
  pid_t child = fork();
  STRESS_CHECK(child >= 0, "fork: errno %d", errno);
  if (child == 0) _exit(0); /* reaped with the others */
}

static void *exchange(void *argument) {
  uint64_t random = stream_seed((uintptr_t)argument);
  while (stress_goes_on()) {
    for (int step = 0; step < 20 && !is_child; step++) exchange_step(&random, FORK_SLOTS);
    if (is_child) end_child(&random);
    switch (random_below(&random, 500)) { /* what takes long, and locks */
      case 0: malloc_trim(0); break;
      case 1:
        if (forks_may_meet()) fork_as_usual();
        break;
      case 2:
        if (snug_check != NULL) snug_check();
        break;
    }
  }
  return NULL;
}

/* What the allocator finds wrong it finds under locks; a debugger is started from a handler of SIGABRT, which then goes
 * on allocating. */
static void report(int signal_number) {
  (void)signal_number;
  void *blocks[600];
  pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, NULL, 0);
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = hidden(malloc(64));
  _exit(blocks[0] != NULL ? 0 : 1);
}

static void die_of_a_double_free(void) {
  static void *blocks[5000];
  signal(SIGABRT, report);
  alarm(TIMEOUT_S);
  close(2); /* the message is expected */
  for (size_t i = 0; i < COUNT_OF(blocks); i++) blocks[i] = malloc(64);
  for (size_t i = 0; i < 2 * COUNT_OF(blocks); i++) free(hidden(blocks[i % COUNT_OF(blocks)]));
  _exit(2);
}

static void fork_from_a_handler_of_abort(void) {
  pid_t child = fork();
  if (child == 0) die_of_a_double_free();
  reap(0);
}

static void set_timer(long period_us) {
  struct itimerval timer = {{0, period_us}, {0, period_us}};
  STRESS_CHECK(setitimer(ITIMER_PROF, &timer, NULL) == 0, "setitimer: errno %d", errno);
}

int main(int argc, char **argv) {
  stress_begin(argc, argv);
  struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  alarm((unsigned)options.seconds + 2 * TIMEOUT_S);
  double give_up_s = now_s() + TIMEOUT_S;
  set_timer(PERIOD_US);
  do { /* again where the machine is so busy that this got no 2 ms of it */
    stress_end_s = now_s() + options.seconds / 2;
    exchange(NULL);
  } while (forks == 0 && now_s() < give_up_s);
  set_timer(0);
  reap(0);
  unsigned long long alone = forks;
  children_go_on = false;
  stress_end_s = now_s() + options.seconds / 2;
  set_timer(PERIOD_US);
  if (forks_may_meet()) run_threads(exchange, options.threads);
  set_timer(0);
  reap(0);
  if (snug_is_active()) fork_from_a_handler_of_abort();
  exchange_drain();
  STRESS_CHECK(alone > 0, "no signal came in %d s", (int)TIMEOUT_S);
  test_print(2, "signal_forks: %llu forks by one thread, %llu by several\n", alone, forks - alone);
  return stress_passed("signal_forks");
}
