/* Opens an interpreter's library, begins and ends it, twice where it can, closes the library, opens and closes it again,
 * and allocates in between, in two threads: embeds python|ruby LIBRARY. Once it has begun it says "ready" and reads a
 * byte. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate(void *argument) {
  static __thread void *kept[64];
  for (int i = 0; i < 5000; i++) {
    free(kept[i % 64]);
    kept[i % 64] = memset(malloc(800), 1, 800);
  }
  return argument;
}

static void allocate_in_two_threads(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, allocate, NULL);
  allocate(NULL);
  pthread_join(thread, NULL);
}

static void *library;

static void *function(const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) exit(2);
  return found;
}

static void use_python(int ask) {
  ((void (*)(int))function("Py_InitializeEx"))(0);
  if (ask) puts("ready"), fflush(stdout), getchar();
  ((int (*)(const char *))function("PyRun_SimpleString"))("x = [bytearray(700) for _ in range(5000)]");
  allocate_in_two_threads();
  ((int (*)(void))function("Py_FinalizeEx"))();
  allocate_in_two_threads();
}

static void use_ruby(int ask) {
  ((void (*)(void))function("ruby_init"))();
  if (ask) puts("ready"), fflush(stdout), getchar();
  ((unsigned long (*)(const char *))function("rb_eval_string"))(
      "Fiber.new { $x = (1..5000).map { 'x' * 700 } }.resume");
  allocate_in_two_threads();
  ((int (*)(int))function("ruby_cleanup"))(0);
  allocate_in_two_threads();
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  int is_ruby = strcmp(arguments[1], "ruby") == 0;
  void (*use)(int) = is_ruby ? use_ruby : use_python;
  for (int i = 0; i < 2; i++) {
    library = dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) return fputs(dlerror(), stderr), 2;
    if (!is_ruby || i == 0) use(i == 0);
    if (!is_ruby) use(0);
    dlclose(library);
    allocate_in_two_threads();
  }
  puts("ended");
  return 0;
}
