/* A plug-in that was linked with libsnug-prefixed.a goes away: nothing calls its code any more, at a fork, at the end
 * of a thread or by itself. musl keeps what was opened. argv: the plug-in's path. */
#include "../support/test.h"

#include <dlfcn.h>
#include <pthread.h>

enum { BLOCKS = 300, RELOADS = 12 };

static const char *path;
static void *library;
static void *(*make)(size_t bytes);
static void (*drop)(void *block);
static int *ends_seen; /* in the plug-in: set by it for what its own destructors are to do */

static void load(void) {
  library = dlopen(path, RTLD_NOW);
  if (library == NULL) test_print(2, "%s\n", dlerror());
  REQUIRE(library != NULL);
  *(void **)&make = dlsym(library, "plugin_new");
  *(void **)&drop = dlsym(library, "plugin_delete");
  ends_seen = (int *)dlsym(library, "plugin_keeps_a_block");
  REQUIRE(make != NULL && drop != NULL && ends_seen != NULL);
  *ends_seen = 1;
}

static void unload(void) {
  REQUIRE(dlclose(library) == 0);
#ifdef __GLIBC__
  CHECK_THAT(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL, "it is still there: nothing was tested");
#endif
}

static void use(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) REQUIRE((blocks[i] = make(i * 37)) != NULL);
  for (size_t i = 0; i < BLOCKS; i++) memset(blocks[i], 1, i * 37);
  for (size_t i = 0; i < BLOCKS; i++) drop(blocks[i]);
}

static void fork_once(void) {
  pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_THAT(status == 0, "wait status 0x%x", status);
}

static void fork_without_it(void) {
  load();
  use();
  unload();
  fork_once();
}

TEST(a_fork_after_it_is_gone) { run_in_child(fork_without_it); }

static pthread_barrier_t used, gone;

static void *use_and_outlive(void *argument) {
  use();
  pthread_barrier_wait(&used);
  pthread_barrier_wait(&gone);
  return argument;
}

static void end_threads_without_it(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  REQUIRE(pthread_barrier_init(&used, NULL, THREADS + 1) == 0 && pthread_barrier_init(&gone, NULL, THREADS + 1) == 0);
  load();
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, use_and_outlive, NULL) == 0);
  pthread_barrier_wait(&used);
  unload();
  pthread_barrier_wait(&gone);
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_join(threads[i], NULL) == 0);
}

TEST(threads_that_used_it_end_after_it_is_gone) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator starts no thread in a child of a process with threads");
  run_in_child(end_threads_without_it);
}

/* A worker's last work is in the plug-in, and who waited for that closes it: the thread is about to end just then. */
static uint32_t work_is_done; /* atomic */

static void *use_and_end(void *argument) {
  use();
  __atomic_store_n(&work_is_done, 1, __ATOMIC_RELEASE);
  return argument;
}

static void end_a_thread_beside(void) {
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    load();
    __atomic_store_n(&work_is_done, 0, __ATOMIC_RELEASE);
    REQUIRE(pthread_create(&thread, NULL, use_and_end, NULL) == 0);
    while (__atomic_load_n(&work_is_done, __ATOMIC_ACQUIRE) == 0) continue;
    for (volatile int spins = i * 500; spins > 0; spins--) continue;
    unload();
    REQUIRE(pthread_join(thread, NULL) == 0);
  }
}

TEST(a_thread_ends_while_it_goes) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator starts no thread in a child of a process with threads");
  run_in_child(end_a_thread_beside);
}

/* Root's processes have no helper thread: nobody sees how they drop privileges. */
static void unload_beside_its_thread(void) {
  static void *blocks[BLOCKS];
  if (getuid() == 0) REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
  setenv("SNUG", "background:1", 1);
  for (int round = 0; round < 3; round++) {
    load();
    for (size_t i = 0; i < BLOCKS; i++) memset(blocks[i] = make(50000), 1, 50000);
    for (size_t i = 0; i < BLOCKS; i++) drop(blocks[i]);
#ifdef __GLIBC__
    CHECK_THAT(status_number("Threads:") == 2, "%zu threads", status_number("Threads:"));
#endif
    unload();
    sleep_ms(300); /* so long it would look */
#ifdef __GLIBC__
    CHECK_THAT(status_number("Threads:") == 1, "%zu threads", status_number("Threads:"));
#endif
  }
}

TEST(its_helper_thread_ends_with_it) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator has threads of its own");
  run_in_child(unload_beside_its_thread);
}

static void *use_in_thread(void *argument) {
  use();
  return argument;
}

/* What it reserved would fill the address space in 512 of them. What others still hold stays. */
static void reload(void) {
  size_t before_kib = 0;
  char *kept[RELOADS];
  for (size_t i = 0; i < RELOADS; i++) {
    load();
    use();
    kept[i] = memset(make(100), (int)i, 100);
    pthread_t thread;
    bool has_thread = !getenv("TEST_EMULATED") && pthread_create(&thread, NULL, use_in_thread, NULL) == 0;
    if (has_thread) REQUIRE(pthread_join(thread, NULL) == 0);
    unload();
    fork_once();
    if (i == 0) before_kib = status_number("VmSize:");
  }
  size_t grown_kib = status_number("VmSize:") - before_kib;
  CHECK_THAT(grown_kib / KIB < 20 * RELOADS, "%zu MiB for %d reloads", grown_kib / KIB, RELOADS - 1);
  for (size_t i = 0; i < RELOADS; i++) CHECK(kept[i][0] == (char)i && kept[i][99] == (char)i);
}

TEST(it_comes_and_goes) {
  if (getenv("TEST_EMULATED")) SKIP("the emulator keeps a record of every page of the addresses that each looks at");
  run_in_child(reload);
}

/* ---- exit ---- */

static void *use_on_and_on(void *argument) {
  for (;;) use();
  return argument;
}

static void exit_beside_a_thread(void) {
  pthread_t thread;
  load();
  if (!getenv("TEST_EMULATED")) REQUIRE(pthread_create(&thread, NULL, use_on_and_on, NULL) == 0);
  use();
  atexit(use);
  sleep_ms(2);
  exit(0);
}

TEST(it_serves_on_while_the_process_exits) {
  for (int i = 0; i < 20; i++) run_in_child(exit_beside_a_thread);
}

int main(int argc, char **argv) {
  REQUIRE(argc == 2);
  path = argv[1];
  return run_tests(1, argv);
}
