/* Two plug-ins that were each linked with libsnug-prefixed.a: neither knows of the other's heap. argv: their paths. */
#include "../support/test.h"

#include <dlfcn.h>
#include <pthread.h>

struct plugin {
  void *library;
  void *(*make)(size_t bytes);
  void (*drop)(void *block);
  uint64_t (*live_bytes)(void);
};

static struct plugin plugins[2];
static pthread_barrier_t before_and_after;

static struct plugin opened(const char *path) {
  struct plugin plugin = {.library = dlopen(path, RTLD_NOW | RTLD_GLOBAL)};
  if (plugin.library == NULL) test_print(2, "%s\n", dlerror());
  REQUIRE(plugin.library != NULL);
  *(void **)&plugin.make = dlsym(plugin.library, "plugin_new");
  *(void **)&plugin.drop = dlsym(plugin.library, "plugin_delete");
  *(void **)&plugin.live_bytes = dlsym(plugin.library, "plugin_live_bytes");
  REQUIRE(plugin.make != NULL && plugin.drop != NULL && plugin.live_bytes != NULL);
  return plugin;
}

TEST(each_has_a_heap_of_its_own) {
  uint64_t others = plugins[1].live_bytes();
  void *block = plugins[0].make(3000000);
  memset(block, 1, 3000000);
  CHECK(plugins[0].live_bytes() >= 3000000 && plugins[1].live_bytes() == others);
  void *other = plugins[1].make(100);
  plugins[0].drop(block);
  plugins[1].drop(other);
}

TEST(nobody_else_sees_their_names) {
  const char *const names[] = {"snug_malloc", "snug_counters", "snug_version"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    for (size_t j = 0; j < COUNT_OF(plugins); j++)
      CHECK_THAT(dlsym(plugins[j].library, names[i]) == NULL, "plug-in %zu shows %s", j, names[i]);
}

/* Threads that were there before the plug-ins, and others. */
enum { THREADS = 4, BLOCKS = 300 };

static void *use_both(void *opened_already) {
  if (opened_already == NULL) pthread_barrier_wait(&before_and_after), pthread_barrier_wait(&before_and_after);
  void *blocks[BLOCKS];
  for (int turn = 0; turn < 40; turn++) {
    for (size_t i = 0; i < BLOCKS; i++) {
      blocks[i] = plugins[i % 2].make(i * 37);
      REQUIRE(blocks[i] != NULL);
      memset(blocks[i], (int)i, i * 37);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
      CHECK(i == 0 || ((unsigned char *)blocks[i])[i * 37 - 1] == (unsigned char)i);
      plugins[i % 2].drop(blocks[i]);
    }
  }
  return NULL;
}

static pthread_t early[THREADS];

TEST(threads_of_before_and_after_use_both) {
  pthread_t late[THREADS];
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&late[i], NULL, use_both, early) == 0);
  pthread_barrier_wait(&before_and_after);
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_join(late[i], NULL) == 0 && pthread_join(early[i], NULL) == 0);
}

TEST(a_child_uses_both) {
  pid_t child = fork();
  if (child == 0) use_both(early), _exit(0);
  int status;
  REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

int main(int argc, char **argv) {
  REQUIRE(argc == 3);
  REQUIRE(pthread_barrier_init(&before_and_after, NULL, THREADS + 1) == 0);
  for (size_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&early[i], NULL, use_both, NULL) == 0);
  pthread_barrier_wait(&before_and_after);
  for (size_t i = 0; i < COUNT_OF(plugins); i++) plugins[i] = opened(argv[i + 1]);
  return run_tests(1, argv);
}
