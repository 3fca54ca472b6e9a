/*   bloats MILLISECONDS
 *
 * A program whose memory grows by 4 MB each time that they have passed, 18 times, while what it keeps stays the same. Of
 * every page of blocks one block stays, in one size class after the other, and a ballast shrinks by as much. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUND_BYTES = 4 << 20, PAGE_BYTES = 4096, BALLAST_BYTES = 8 << 20 };

static size_t keep_one_per_page(size_t size_bytes) {
  size_t count = ROUND_BYTES / size_bytes, kept_bytes = 0;
  uintptr_t page = 0;
  char **blocks = malloc(count * sizeof *blocks);
  for (size_t i = 0; i < count; i++) blocks[i] = memset(malloc(size_bytes), 1, size_bytes);
  for (size_t i = 0; i < count; i++) {
    if ((uintptr_t)blocks[i] / PAGE_BYTES == page) {
      free(blocks[i]);
    } else {
      page = (uintptr_t)blocks[i] / PAGE_BYTES;
      kept_bytes += size_bytes;
    }
  }
  free(blocks);
  return kept_bytes;
}

/* Allocators have four classes per doubling, all of them multiples of 16. */
static size_t next_class(size_t size_bytes) {
  size_t step_bytes = size_bytes / 4 & ~(size_t)15;
  return size_bytes + (step_bytes > 0 ? step_bytes : 16);
}

int main(int count, char **arguments) {
  useconds_t pause_us = count > 1 ? (useconds_t)atoi(arguments[1]) * 1000 : 250000;
  size_t ballast_bytes = BALLAST_BYTES;
  char *ballast = memset(malloc(ballast_bytes), 1, ballast_bytes);
  for (size_t size_bytes = 64; size_bytes <= 2048; size_bytes = next_class(size_bytes)) {
    size_t kept_bytes = keep_one_per_page(size_bytes), most_bytes = ballast_bytes / 4;
    ballast = realloc(ballast, ballast_bytes -= kept_bytes < most_bytes ? kept_bytes : most_bytes);
    usleep(pause_us);
  }
  return 0;
}
