/* classes_test.c: the table of size classes, proven over every size and every offset. */
#include "../../src/block.h"
#include "../../src/pages.h"
#include "unit.h"

static size_t slab_bytes(const struct class_shape *shape) { return (size_t)shape->pages * PAGE_BYTES; }

/* The first offset of a slab whose slot the reciprocal gets wrong, or SIZE_MAX. */
static size_t wrong_offset(const struct class_shape *shape) {
  for (size_t offset = 0; offset < slab_bytes(shape); offset++) {
    if (((uint64_t)offset * shape->reciprocal >> CLASS_RECIPROCAL_SHIFT) != offset / shape->size_bytes) return offset;
  }
  return SIZE_MAX;
}

TEST(every_size_has_the_smallest_class_that_fits) {
  for (size_t size = 0; size <= CLASS_MAX_BYTES; size++) {
    unsigned class_index = class_of(size);
    size_t wanted = size != 0 ? size : 1;
    REQUIRE(class_index >= 1 && class_index < CLASS_COUNT);
    CHECK_THAT(class_shapes[class_index].size_bytes >= wanted, "size %zu, class %u", size, class_index);
    CHECK_THAT(class_shapes[class_index - 1].size_bytes < wanted, "size %zu, class %u", size, class_index);
    if (size <= CLASS_SMALL_MAX_BYTES) CHECK(bin_offset_of(size) == class_index * CLASS_STRIDE_BYTES);
  }
}

TEST(neighbours_are_at_most_an_eighth_apart) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    size_t size = class_shapes[i].size_bytes, below = class_shapes[i - 1].size_bytes;
    CHECK_THAT(size % 16 == 0, "class of %zu", size);
    CHECK_THAT(size > below && (size - below <= 16 || (size - below) * 8 <= below), "%zu after %zu", size, below);
  }
  CHECK(class_shapes[CLASS_COUNT - 1].size_bytes == CLASS_MAX_BYTES);
  CHECK(class_shapes[CLASS_SMALL_LAST].size_bytes == CLASS_SMALL_MAX_BYTES);
}

TEST(the_reciprocal_divides_exactly) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    size_t wrong = wrong_offset(&class_shapes[i]);
    CHECK_THAT(wrong == SIZE_MAX, "class of %u, offset %zu", class_shapes[i].size_bytes, wrong);
  }
}

TEST(a_wrong_reciprocal_is_found) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    struct class_shape broken = class_shapes[i];
    broken.reciprocal--;
    CHECK_THAT(wrong_offset(&broken) != SIZE_MAX, "class of %u", broken.size_bytes);
  }
}

TEST(buckets_are_in_range_and_rise_with_the_free_slots) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    const struct class_shape *shape = &class_shapes[i];
    uint32_t last = 0;
    for (uint32_t free_slots = 1; free_slots <= shape->slots; free_slots++) {
      uint32_t bucket = (free_slots - 1) * shape->bucket_scale >> 16;
      CHECK_THAT(bucket < 8 && bucket >= last && bucket <= last + (shape->slots >= 8 ? 1 : 2),
                 "class of %u, %u free: bucket %u", shape->size_bytes, free_slots, bucket);
      last = bucket;
    }
    CHECK_THAT(last >= 6, "an empty slab of %u is in bucket %u", shape->size_bytes, last);
  }
}

TEST(slabs_fit_their_records_and_waste_little) {
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    const struct class_shape *shape = &class_shapes[i];
    size_t used = (size_t)shape->slots * shape->size_bytes;
    CHECK_THAT(shape->slots <= 256 && shape->pages <= 64 && shape->pages <= PAGES_RUN_MAX, "class %u", i);
    CHECK_THAT(used <= slab_bytes(shape), "class of %u", shape->size_bytes);
    CHECK_THAT((slab_bytes(shape) - used) * 100 < 3 * slab_bytes(shape), "class of %u wastes %zu of %zu bytes",
               shape->size_bytes, slab_bytes(shape) - used, slab_bytes(shape));
    CHECK_THAT(shape->slots == 256 || slab_bytes(shape) - used < shape->size_bytes, "class of %u: room for one more",
               shape->size_bytes);
  }
}

/* block_take_aligned counts on both: a slab begins at a page, and its slots follow without gaps. */
TEST(powers_of_two_are_classes_and_aligned) {
  for (size_t power = 16; power <= 32768; power *= 2) {
    CHECK_THAT(class_shapes[class_of(power)].size_bytes == power, "%zu is no class", power);
  }
  for (size_t power = 256; power <= 32768; power *= 2) { /* buffers that double and end in a zero */
    CHECK_THAT(class_shapes[class_of(power + 1)].size_bytes == power + 16, "%zu", power);
  }
}
