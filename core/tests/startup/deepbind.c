/* deepbind: under the library, blocks go both ways between a program and a library opened with RTLD_DEEPBIND, whose
 * malloc would be glibc's otherwise. The library is found by this program's RUNPATH alone, so dlopen must have seen
 * that it is the program that calls. Last it looks whether libc's table of symbols was left alone until needed. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) {                                        \
      printf("deepbind: line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                 \
    }                                                          \
  } while (0)

enum { WAYS = 8 };

/* Bytes of libc before its code, where its symbols are, that this process has of its own. */
static long own_bytes(void) {
  FILE *maps = fopen("/proc/self/smaps", "r");
  char line[512];
  long kilobytes = 0;
  int in_libc = 0, in_symbols = 0;
  CHECK(maps != NULL);
  while (fgets(line, sizeof line, maps) != NULL) {
    long more = 0;
    char mode[8] = "";
    if (sscanf(line, "%*x-%*x %7s", mode) == 1 && strlen(mode) == 4) {
      int is_libc = strstr(line, "/libc.so.6") != NULL;
      in_symbols = is_libc && mode[2] != 'x' && (in_symbols || !in_libc);
      in_libc = is_libc;
    } else if (in_symbols && sscanf(line, "Private_Dirty: %ld", &more) == 1) {
      kilobytes += more;
    }
  }
  fclose(maps);
  return kilobytes * 1024;
}

static void exchange(void *library) {
  void (*give)(void *) = (void (*)(void *))dlsym(library, "give");
  void *(*grow)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "grow");
  void *(*make)(int, size_t) = (void *(*)(int, size_t))dlsym(library, "make");
  size_t (*usable)(void *) = (size_t (*)(void *))dlsym(library, "usable");
  char **made_early = (char **)dlsym(library, "made_early");
  CHECK(give != NULL && grow != NULL && make != NULL && usable != NULL && made_early != NULL);
  free(*made_early);
  for (size_t size_bytes = 1; size_bytes < 3000000; size_bytes = size_bytes * 3 / 2 + 1) {
    for (int way = 0; way < WAYS; way++) {
      char *block = make(way, size_bytes);
      CHECK(block != NULL && malloc_usable_size(block) == usable(block));
      memset(block, way, size_bytes);
      block = realloc(block, size_bytes * 2);
      CHECK(block != NULL && block[size_bytes - 1] == way);
      block = grow(block, size_bytes * 3);
      CHECK(block != NULL && block[size_bytes - 1] == way);
      if (way % 2 == 0) {
        free(block);
      } else {
        give(block);
      }
    }
    give(malloc(size_bytes));
  }
}

int main(void) {
  void *plain = dlopen("deepbind_library.so", RTLD_NOW | RTLD_LOCAL);
  CHECK(plain != NULL);
  exchange(plain);
  dlclose(plain);
  long before = own_bytes();
  void *library = dlopen("deepbind_library.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CHECK(library != NULL);
  exchange(library);
  CHECK(before == 0); /* D1 */
  CHECK(own_bytes() > 0);
  dlclose(library);
  printf("deepbind: fine\n");
  return 0;
}
