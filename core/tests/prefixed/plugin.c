/* A plug-in with a snug of its own, which it uses to its very end. */
#include "../../include/snug.h"
#include "../../include/snug_malloc.h"

__attribute__((visibility("default"))) void *plugin_new(size_t bytes) { return snug_malloc(bytes); }
__attribute__((visibility("default"))) void plugin_delete(void *block) { snug_free(block); }
__attribute__((visibility("default"))) uint64_t plugin_live_bytes(void) {
  struct snug_stats stats;
  return snug_stats(&stats, sizeof stats) == 0 ? stats.live_allocated_bytes : 0;
}

/* Set by who opened it. */
extern int plugin_keeps_a_block;
__attribute__((visibility("default"))) int plugin_keeps_a_block;
static char *volatile kept[100];

static void replace_kept_blocks(void) {
  for (int i = 0; plugin_keeps_a_block != 0 && i < 100; i++) {
    char *block = snug_malloc((size_t)i * 1000 + 1);
    if (kept[i] != NULL && (kept[i][0] != 1 || block == NULL)) __builtin_trap();
    snug_free(kept[i]);
    kept[i] = block;
    block[0] = 1;
  }
}

__attribute__((destructor)) static void end_early(void) { replace_kept_blocks(); }
__attribute__((destructor(101))) static void end_last(void) { replace_kept_blocks(); }
