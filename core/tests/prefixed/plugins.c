/* Two plug-ins that were each linked with libsnug-prefixed.a: neither knows of the other's heap. argv: their paths. */
#include "../support/test.h"

#include <dlfcn.h>

struct plugin {
  void *library;
  void *(*make)(size_t bytes);
  void (*drop)(void *block);
  uint64_t (*live_bytes)(void);
};

static struct plugin plugins[2];

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

int main(int argc, char **argv) {
  REQUIRE(argc == 3);
  for (size_t i = 0; i < COUNT_OF(plugins); i++) plugins[i] = opened(argv[i + 1]);
  return run_tests(1, argv);
}
