/* A library to open and close: allocates in its constructor, in its functions, in thread-specific data, and frees in
 * its destructor and in an exit handler of its own. */
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 200 };
static unsigned char *blocks[BLOCKS];
static unsigned char *exit_block;
static __thread unsigned char thread_bytes[64];

static void free_exit_block(void) {
  if (exit_block[4999] != 7) abort();
  free(exit_block);
}

__attribute__((constructor)) static void open_library(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = malloc(1 + i * 37);
    if (blocks[i] == NULL) abort();
    memset(blocks[i], (int)i, 1 + i * 37);
  }
  exit_block = malloc(5000);
  if (exit_block == NULL) abort();
  memset(exit_block, 7, 5000);
  atexit(free_exit_block); /* glibc runs it at dlclose */
}

/* Called by the program between open and close: gives a block away that the program frees. */
unsigned char *plugin_work(size_t size_bytes);
unsigned char *plugin_work(size_t size_bytes) {
  thread_bytes[0]++;
  for (size_t i = 0; i < BLOCKS; i += 3) {
    blocks[i] = realloc(blocks[i], 1 + i * 37 + size_bytes % 5000);
    if (blocks[i] == NULL || blocks[i][0] != (unsigned char)i) abort();
  }
  unsigned char *given = malloc(size_bytes);
  if (given != NULL) memset(given, thread_bytes[0], size_bytes);
  return given;
}

__attribute__((destructor)) static void close_library(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i][i * 37] != (unsigned char)i && i % 3 != 0) abort();
    free(blocks[i]);
  }
}
