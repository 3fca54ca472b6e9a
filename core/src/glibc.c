/* glibc.c: the rest of what glibc's malloc offers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/snug.h"
#include "arena.h"
#include "base.h"
#include "block.h"
#include "cache.h"
#include "options.h"
#include "stats.h"
#include "sys.h"
#include "text.h"

/* As <malloc.h> of glibc declares them; declared here because musl has no such header. */
struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

EXPORT struct mallinfo2 mallinfo2(void);
EXPORT struct mallinfo mallinfo(void);
EXPORT int mallopt(int parameter, int value);
EXPORT void malloc_stats(void);
EXPORT COLD int malloc_info(int options_word, FILE *stream);

/* arena: heap bytes resident or in use; hblkhd: bytes of own mappings; uordblks: live; fordblks: free in the heap;
 * keepcost: what malloc_trim could give back. */
struct mallinfo2 mallinfo2(void) {
  struct snug_stats stats;
  snug_stats(&stats, sizeof stats);
  struct mallinfo2 info;
  memset(&info, 0, sizeof info);
  size_t large_bytes = stats_large_bytes(&info.hblks);
  info.hblkhd = large_bytes;
  info.arena = stats.resident_bytes > large_bytes ? stats.resident_bytes - large_bytes : 0;
  info.uordblks = stats.live_allocated_bytes > large_bytes ? stats.live_allocated_bytes - large_bytes : 0;
  info.fordblks = info.arena > info.uordblks ? info.arena - info.uordblks : 0;
  info.keepcost = stats.dirty_bytes;
  return info;
}

static int to_int(size_t bytes) { return bytes > INT32_MAX ? INT32_MAX : (int)bytes; }

/* The old form, whose fields are too small: they stop at INT_MAX rather than wrap. */
struct mallinfo mallinfo(void) {
  struct mallinfo2 wide = mallinfo2();
  struct mallinfo info;
  memset(&info, 0, sizeof info);
  info.arena = to_int(wide.arena);
  info.hblks = to_int(wide.hblks);
  info.hblkhd = to_int(wide.hblkhd);
  info.uordblks = to_int(wide.uordblks);
  info.fordblks = to_int(wide.fordblks);
  info.keepcost = to_int(wide.keepcost);
  return info;
}

/* Accepts glibc's parameters. Only the number of arenas means something here; the others tune what snug does by itself.
 */
int mallopt(int parameter, int value) {
  enum { ARENA_MAX_PARAMETER = -8, LOWEST_PARAMETER = -8, HIGHEST_PARAMETER = 1 };
  if (parameter < LOWEST_PARAMETER || parameter > HIGHEST_PARAMETER || parameter == 0) return 0;
  if (parameter == ARENA_MAX_PARAMETER && value > 0) {
    uint32_t count = value < ARENA_MAX ? (uint32_t)value : ARENA_MAX;
    __atomic_store_n(&options.arenas_max, count, __ATOMIC_RELAXED);
  }
  return 1;
}

static void line(struct text *text, const char *name, uint64_t number) {
  text_string(text, name);
  for (size_t i = strlen(name); i < 20; i++) text_char(text, ' ');
  text_string(text, " = ");
  text_number(text, number);
  text_char(text, '\n');
}

void malloc_stats(void) {
  struct snug_stats stats;
  char buffer[1024];
  struct text text = text_in(buffer, sizeof buffer);
  snug_stats(&stats, sizeof stats);
  text_string(&text, "snug " SNUG_VERSION "\n");
  line(&text, "requested bytes", stats.live_requested_bytes);
  line(&text, "in use bytes", stats.live_allocated_bytes);
  line(&text, "system bytes", stats.resident_bytes);
  line(&text, "thread cache bytes", stats.cached_bytes);
  line(&text, "free slab bytes", stats.slab_free_bytes);
  line(&text, "dirty page bytes", stats.dirty_bytes);
  line(&text, "metadata bytes", stats.metadata_bytes);
  line(&text, "given back bytes", stats.purged_bytes);
  sys_write(2, buffer, text.length_bytes);
}

/* before NUMBER after */
static void element(struct text *text, const char *before, uint64_t number, const char *after) {
  text_string(text, before);
  text_number(text, number);
  text_string(text, after);
}

/* XML with the elements of glibc that have a meaning here. Returns 0, or -1 with errno EINVAL. */
int malloc_info(int options_word, FILE *stream) {
  if (options_word != 0 || stream == NULL) return errno = EINVAL, -1;
  char buffer[1024];
  struct text text = text_in(buffer, sizeof buffer);
  struct mallinfo2 info = mallinfo2();
  text_string(&text, "<malloc version=\"snug " SNUG_VERSION "\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n");
  element(&text, "<total type=\"rest\" count=\"0\" size=\"", info.fordblks, "\"/>\n");
  element(&text, "<system type=\"current\" size=\"", info.arena, "\"/>\n</heap>\n");
  element(&text, "<total type=\"live\" size=\"", info.uordblks, "\"/>\n");
  element(&text, "<total type=\"mmap\" count=\"", info.hblks, "\"");
  element(&text, " size=\"", info.hblkhd, "\"/>\n");
  element(&text, "<system type=\"current\" size=\"", info.arena + info.hblkhd, "\"/>\n</malloc>\n");
  fwrite(buffer, 1, text.length_bytes, stream);
  return 0;
}
