/* A plug-in with a snug of its own. */
#include "../../include/snug.h"
#include "../../include/snug_malloc.h"

__attribute__((visibility("default"))) void *plugin_new(size_t bytes) { return snug_malloc(bytes); }
__attribute__((visibility("default"))) void plugin_delete(void *block) { snug_free(block); }
__attribute__((visibility("default"))) uint64_t plugin_live_bytes(void) {
  struct snug_stats stats;
  return snug_stats(&stats, sizeof stats) == 0 ? stats.live_allocated_bytes : 0;
}
