/* slots.h: hands out the lowest-numbered names of live blocks, the one given back last first. */
#ifndef SNUG_TRACES_SLOTS_H
#define SNUG_TRACES_SLOTS_H

#include <stdint.h>

#include "own_memory.h"

struct slots {
  uint32_t *free;
  uint64_t capacity; /* most that can be given back */
  uint32_t free_count;
  uint32_t count; /* slots ever in use */
};

static inline void slots_start(struct slots *slots, uint64_t capacity) {
  *slots = (struct slots){.free = own_memory_reserve(capacity * sizeof(uint32_t)), .capacity = capacity};
}

static inline uint32_t slots_take(struct slots *slots) {
  return slots->free_count ? slots->free[--slots->free_count] : slots->count++;
}

static inline void slots_give_back(struct slots *slots, uint32_t slot) { slots->free[slots->free_count++] = slot; }

static inline void slots_release(struct slots *slots) {
  own_memory_release(slots->free, slots->capacity * sizeof(uint32_t));
}

#endif
