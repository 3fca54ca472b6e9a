/* A running program purges and changes a setting when another process of the same user asks for it by
 * process_vm_writev(2), as core/include/snug_counters.h describes. */
#include "../support/test.h"

#include <dlfcn.h>
#include <sys/uio.h>

#include "../../include/snug_counters.h"

enum { BLOCKS = 300, WAIT_MS = 5000 };

static struct snug_counters page; /* a copy of the other process's */

/* Where a forked child, too, has it. */
static struct snug_counters *counters(void) { return dlsym(RTLD_DEFAULT, "snug_counters"); }

/* Reads the other process's page, without its classes. */
static int read_page(pid_t pid) {
  struct iovec own = {&page, offsetof(struct snug_counters, classes)}, other = {counters(), own.iov_len};
  return process_vm_readv(pid, &own, 1, &other, 1, 0) == (ssize_t)own.iov_len;
}

static int write_request(pid_t pid, uint64_t request, uint64_t from) {
  uint64_t words[3] = {request, from, snug_request_check(request, from, page.pid)};
  struct iovec own = {words, sizeof words}, other = {&counters()->request, sizeof words};
  return process_vm_writev(pid, &own, 1, &other, 1, 0) == (ssize_t)sizeof words;
}

/* Asks, and waits until it is answered; 0 if it is not. */
static uint64_t ask(pid_t pid, uint64_t request, uint64_t count) {
  uint64_t from = (uint64_t)getpid() | count << 32;
  REQUIRE(write_request(pid, request, from));
  for (int i = 0; i < WAIT_MS; i++) {
    REQUIRE(read_page(pid));
    if (page.answer_to == snug_request_check(request, from, page.pid)) return page.answer;
    sleep_ms(1);
  }
  return 0;
}

/* A server without a helper thread: some work every few milliseconds, after a peak that stays dirty. */
static void serve(void) {
  static void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) REQUIRE((blocks[i] = hidden(malloc(100 * KIB))) != NULL);
  for (int i = 0; i < BLOCKS; i++) memset(blocks[i], 1, 100 * KIB);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  for (;;) {
    for (int i = 0; i < 20; i++) free(hidden(malloc(50 * KIB)));
    sleep_ms(2);
  }
}

static pid_t start_server(void (*body)(void)) {
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  sleep_ms(50);
  return child;
}

static void stop_server(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static bool can_reach(pid_t child) { return read_page(child) && page.pid == (uint32_t)child; }

TEST(a_running_process_obeys) {
  if (!snug_is_active()) SKIP("not snug");
  pid_t child = start_server(serve);
  if (!can_reach(child)) {
    stop_server(child);
    SKIP("the system does not let a process read its child");
  }
  uint64_t number = 0;
  for (const char *at = page.settings; strncmp(at, "purge_cpu_percent:", 18) != 0; number++) {
    REQUIRE((at = strchr(at, ',')) != NULL);
    at++;
  }
  CHECK(ask(child, SNUG_REQUEST_SET | number << 8 | (uint64_t)37 << 32, 1) == SNUG_ANSWER_DONE);
  CHECK_THAT(strstr(page.settings, "purge_cpu_percent:37,") != NULL, "%s", page.settings);
  CHECK((ask(child, SNUG_REQUEST_SET | number << 8 | (uint64_t)200 << 32, 2) & 0xff) == SNUG_ANSWER_OUT_OF_RANGE);
  uint64_t purges = page.purges;
  uint64_t answer = ask(child, SNUG_REQUEST_PURGE, 3);
  CHECK_THAT((answer & 0xff) == SNUG_ANSWER_DONE, "answer %llx", (unsigned long long)answer);
  CHECK(page.purges >= purges + (answer >> 8 != 0) || freed_blocks_wait());
  CHECK_THAT(page.dirty_bytes < 2 * MIB, "%llu bytes dirty after a purge", (unsigned long long)page.dirty_bytes);
  stop_server(child);
}

/* Random words, at once and while it works: it lives, and obeys the next real request. */
TEST(garbage_from_outside_does_no_harm) {
  if (!snug_is_active()) SKIP("not snug");
  pid_t child = start_server(serve);
  if (!can_reach(child)) {
    stop_server(child);
    SKIP("the system does not let a process read its child");
  }
  uint64_t random = 3;
  for (int i = 0; i < 20000; i++) {
    uint64_t words[5];
    for (size_t j = 0; j < COUNT_OF(words); j++) words[j] = random_next(&random);
    struct iovec own = {words, sizeof words}, other = {&counters()->request, sizeof words};
    REQUIRE(process_vm_writev(child, &own, 1, &other, 1, 0) == (ssize_t)sizeof words);
    if (i % 3 == 0) write_request(child, random_next(&random) & 0x7f00000703, random_next(&random));
  }
  CHECK((ask(child, SNUG_REQUEST_PURGE, 1) & 0xff) == SNUG_ANSWER_DONE);
  CHECK(waitpid(child, NULL, WNOHANG) == 0);
  stop_server(child);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
