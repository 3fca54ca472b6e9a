/* mistakes.c: one mistake of a program with the heap, chosen by its arguments, under whatever allocator is preloaded.
 *
 *     mistakes                   lists what there is, a line "kind size" each
 *     mistakes KIND SIZE         makes it; exit status 0: nobody noticed
 *
 * The kind "none" is a right program, which must end with 0 everywhere. See `run` beside it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static const size_t sizes[] = {24, 100, 1000, 5000, 40000, 300000, 3000000};

static size_t size_bytes;
static char *volatile block; /* the compiler knows nothing of where it points */
static char *volatile other;
static char static_bytes[64] = {1};

static char *filled(size_t size) {
  char *volatile made = malloc(size);
  if (made == NULL) exit(0);
  return memset(made, 1, size);
}

static void release(void *pointer) {
  void *volatile hidden = pointer;
  free(hidden);
}

/* What a program does after its mistake, and may notice it by. */
static void go_on(void) {
  char *some[64];
  for (size_t i = 0; i < COUNT_OF(some); i++) some[i] = filled(size_bytes);
  for (size_t i = 0; i < COUNT_OF(some); i++) release(some[i]);
}

static void none(void) { release(block); }

static void double_free(void) {
  release(block);
  release(block);
}

static void double_free_behind_another(void) {
  release(block);
  release(other);
  release(block);
}

static void double_free_after_malloc(void) {
  release(block);
  filled(size_bytes * 2);
  release(block);
}

static void double_free_behind_fifty(void) {
  char *some[50];
  for (size_t i = 0; i < COUNT_OF(some); i++) some[i] = filled(size_bytes);
  release(block);
  for (size_t i = 0; i < COUNT_OF(some); i++) release(some[i]);
  release(block);
}

static void *release_in_thread(void *pointer) {
  release(pointer);
  return NULL;
}

static void double_free_by_a_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, release_in_thread, block) != 0) exit(0);
  pthread_join(thread, NULL);
  release(block);
}

static void interior_1(void) { release(block + 1); }
static void interior_16(void) { release(block + 16); }
static void interior_half(void) { release(block + (size_bytes / 2 + 15) / 16 * 16); }
static void interior_page(void) { release(block + (size_bytes > 4096 ? 4096 : (size_bytes / 3 + 15) / 16 * 16)); }
static void free_of_the_end(void) { release(block + (size_bytes + 15) / 16 * 16); }
static void realloc_freed(void) {
  release(block);
  block = realloc(block, size_bytes * 2);
}
static void realloc_interior(void) { block = realloc(block + 16, size_bytes * 2); }
static void usable_size_freed(void) {
  release(block);
  printf("%zu\n", malloc_usable_size(block));
}
static void usable_size_interior(void) { printf("%zu\n", malloc_usable_size(block + 16)); }

static void delete_as(size_t given_bytes) {
  dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
  void *(*make)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "_Znwm");
  void (*delete_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "_ZdlPvm");
  if (make == NULL || delete_sized == NULL) exit(0);
  delete_sized(make(size_bytes), given_bytes);
}

static void delete_as_half(void) { delete_as(size_bytes / 2); }
static void delete_as_double(void) { delete_as(size_bytes * 2); }

static void write_a_byte_after_free(void) {
  release(block);
  block[size_bytes / 2] = 0;
  go_on();
}

static void write_all_after_free(void) {
  release(block);
  memset(block, 2, size_bytes);
  go_on();
}

/* Behind what may be used of the block, and then all as it should be. */
static void overflow(size_t count) {
  memset(block + size_bytes, 0, count);
  release(block);
  go_on();
}

static void overflow_1(void) { overflow(1); }
static void overflow_8(void) { overflow(8); }
static void overflow_32(void) { overflow(32); }

static void underflow(size_t count) {
  memset(block - count, 0, count);
  release(block);
  go_on();
}

static void underflow_1(void) { underflow(1); }
static void underflow_8(void) { underflow(8); }

static void free_of_stack(void) {
  char bytes[64] = {1};
  release(bytes + 16);
}
static void free_of_static(void) { release(static_bytes + 16); }
static void free_of_mapping(void) {
  release((char *)mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096);
}
static void free_of_number(void) { release((void *)0x123450); }

static const struct mistake {
  const char *kind;
  void (*make)(void);
  int sized;
} mistakes[] = {
    {"none", none, 1},
    {"double-free", double_free, 1},
    {"double-free-behind-another", double_free_behind_another, 1},
    {"double-free-after-malloc", double_free_after_malloc, 1},
    {"double-free-behind-fifty", double_free_behind_fifty, 1},
    {"double-free-by-a-thread", double_free_by_a_thread, 1},
    {"interior-free-1", interior_1, 1},
    {"interior-free-16", interior_16, 1},
    {"interior-free-half", interior_half, 1},
    {"interior-free-page", interior_page, 1},
    {"free-of-the-end", free_of_the_end, 1},
    {"realloc-of-freed", realloc_freed, 1},
    {"realloc-of-interior", realloc_interior, 1},
    {"usable-size-of-freed", usable_size_freed, 1},
    {"usable-size-of-interior", usable_size_interior, 1},
    {"delete-as-half", delete_as_half, 1},
    {"delete-as-double", delete_as_double, 1},
    {"write-byte-after-free", write_a_byte_after_free, 1},
    {"write-all-after-free", write_all_after_free, 1},
    {"overflow-1", overflow_1, 1},
    {"overflow-8", overflow_8, 1},
    {"overflow-32", overflow_32, 1},
    {"underflow-1", underflow_1, 1},
    {"underflow-8", underflow_8, 1},
    {"free-of-stack", free_of_stack, 0},
    {"free-of-static", free_of_static, 0},
    {"free-of-mapping", free_of_mapping, 0},
    {"free-of-number", free_of_number, 0},
};

int main(int argc, char **argv) {
  for (size_t i = 0; i < COUNT_OF(mistakes); i++) {
    if (argc < 3) {
      for (size_t k = 0; k < (mistakes[i].sized ? COUNT_OF(sizes) : 1); k++)
        printf("%s %zu\n", mistakes[i].kind, sizes[k]);
    } else if (strcmp(argv[1], mistakes[i].kind) == 0) {
      size_bytes = strtoul(argv[2], NULL, 10);
      filled(size_bytes);
      block = filled(size_bytes);
      other = filled(size_bytes);
      filled(size_bytes);
      mistakes[i].make();
      return 0;
    }
  }
  return argc < 3 ? 0 : 99;
}
