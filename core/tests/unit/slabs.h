/* slabs.h: slabs alone, without caches or policies, for the tests of slab.c and slab_purge.c. */
#ifndef SNUG_UNIT_SLABS_H
#define SNUG_UNIT_SLABS_H

#include "../../src/sys.c"
#include "../../src/fatal.c"
#include "../../src/rights.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/map.c"
#include "../../src/huge.c"
#include "../../src/pages.c"
#include "../../src/arena.c"
#include "../../src/slab_record.c"
#include "../../src/slab_join.c"
#include "../../src/slab.c"
#include "../../src/slab_purge.c"
#include "unit.h"

struct snug_counters snug_counters; /* stats.c has the real one */

enum { ARENAS = 3 };

static inline void init_once(void) {
  if (zone.base != NULL) return;
  REQUIRE(map_init() && slab_init());
  for (unsigned i = 0; i < ARENAS; i++) arena_join(i);
}

static inline uint32_t slab_number(const void *block) { return zone.owner[page_index(block)]; }

/* The class of blocks of exactly this size. */
static inline unsigned class_holding(size_t size_bytes) {
  unsigned class_index = 1;
  while (class_index < CLASS_COUNT && class_shapes[class_index].size_bytes != size_bytes) class_index++;
  REQUIRE(class_index < CLASS_COUNT);
  return class_index;
}

/* Takes whole slabs of a class; blocks[i] in the order of their addresses within a slab. */
static inline void take_slabs(unsigned class_index, size_t count, char **blocks) {
  bool contended;
  for (size_t i = 0; i < count * class_shapes[class_index].slots; i++) {
    REQUIRE(slab_take(0, class_index, (void **)&blocks[i], 1, 1, &contended) == 1);
  }
}

#endif
