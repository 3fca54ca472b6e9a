#!/usr/bin/env python3
"""Writes core/src/classes.h: the size classes and the shape of their slabs.

Classes: 16-byte steps to 128, then eight per doubling to 32 KiB, plus 2^k + 16 from 256 up, because a buffer that
doubles and keeps one terminating byte asks for 2^k + 1, and 4368, what SQLite asks for to cache a page of 4 KiB
(docs/decisions/0029). A slab has at most 256 slots (its bitmap is four words) and at
most 64 pages (its mask of purged pages is one word); among those the smallest with under 3 % of tail waste is taken.

Run: tools/generate_classes.py > core/src/classes.h   (`make check` compares)
"""

PAGE_BYTES = 4096
CLASS_MAX_BYTES = 32768
SMALL_MAX_BYTES = 1024
STRIDE_BYTES = 16  # of a bin (core/src/cache.h)
SQLITE_PAGE_BYTES = 4096 + 272  # a page and its headers, on every 64-bit system
SLOTS_MAX = 256
PAGES_MAX = 64
RECIPROCAL_SHIFT = 35  # exact for all offsets of a slab: an error below 2^16 times an offset below 2^18 stays below 2^35


def sizes():
    result = list(range(16, 129, 16))
    base = 128
    while base < CLASS_MAX_BYTES:
        result += [base + base // 8 * i for i in range(1, 9)]
        base *= 2
    result += [2**k + 16 for k in range(8, 16)] + [SQLITE_PAGE_BYTES]
    return sorted(result)


def slab_shape(size):
    """Pages and slots of a slab of blocks of `size` bytes."""
    big = size >= 2048
    pages_min = 1 if size < 64 else (1 if big else 4)
    best = None
    for pages in range(pages_min, PAGES_MAX + 1):
        slots = min(SLOTS_MAX, pages * PAGE_BYTES // size)
        if big and slots < 7:
            continue
        if not big and size >= 64 and pages > 8:
            break
        waste = 1 - slots * size / (pages * PAGE_BYTES)
        if best is None or waste < best[0] - 1e-9:
            best = (waste, pages, slots)
        if waste < 0.03 and (size >= 64 or slots == SLOTS_MAX):
            return pages, slots
    return best[1], best[2]


def rows(values, per_line=16):
    lines = []
    for start in range(0, len(values), per_line):
        lines.append("  " + ", ".join(str(v) for v in values[start:start + per_line]) + ",")
    return "\n".join(lines)


def main():
    classes = sizes()
    small_index = []
    for granule in range(SMALL_MAX_BYTES // 16 + 1):
        wanted = max(granule * 16, 1)
        small_index.append(next(i + 1 for i, s in enumerate(classes) if s >= wanted))
    big_index = []
    for granule in range((classes[-1] + 127) // 128):
        wanted = granule * 128 + 1
        big_index.append(next(i + 1 for i, s in enumerate(classes) if s >= wanted))
    small_last = small_index[-1]
    print("/* classes.h: the size classes and the shape of their slabs. Written by tools/generate_classes.py, which says")
    print(" * how; do not edit. core/tests/unit/classes_test.c proves it over every size and offset. */")
    print("#ifndef SNUG_CLASSES_H\n#define SNUG_CLASSES_H\n\n#include <stdint.h>\n")
    print("enum {")
    print(f"  CLASS_COUNT = {len(classes) + 1},      /* row 0 is no class: a page that belongs to no block */")
    print(f"  CLASS_SMALL_LAST = {small_last}, /* last class of the fast path */")
    print(f"  CLASS_STRIDE_BYTES = {STRIDE_BYTES}, /* class_offset_small is in rows of this size: saves the fast path a shift */")
    print(f"  CLASS_SMALL_MAX_BYTES = {SMALL_MAX_BYTES},")
    print(f"  CLASS_MAX_BYTES = {classes[-1]},")
    print("  CLASS_LARGE_GRANULE_BYTES = 128, /* class_index_large has a row for each */")
    print(f"  CLASS_RECIPROCAL_SHIFT = {RECIPROCAL_SHIFT},")
    print("};\n")
    print("/* One class. slot = offset * reciprocal >> CLASS_RECIPROCAL_SHIFT; bucket = (free - 1) * bucket_scale >> 16. */")
    print("struct class_shape {")
    print("  uint32_t size_bytes;\n  uint16_t slots;\n  uint16_t pages;\n  uint32_t reciprocal;\n  uint32_t bucket_scale;\n};\n")
    print("static const struct class_shape class_shapes[CLASS_COUNT] = {")
    print("  {0, 1, 1, 0, 0},")
    for size in classes:
        pages, slots = slab_shape(size)
        reciprocal = (2**RECIPROCAL_SHIFT + size - 1) // size
        print(f"  {{{size}, {slots}, {pages}, {reciprocal}u, {8 * 65536 // slots}}},")
    print("};\n")
    print("/* Class of a size of at most CLASS_SMALL_MAX_BYTES, times CLASS_STRIDE_BYTES, by (size + 15) / 16. */")
    small_offset = [index * STRIDE_BYTES for index in small_index]
    print(f"static const uint16_t class_offset_small[{len(small_offset)}] = {{\n{rows(small_offset)}\n}};\n")
    print("/* Smallest class a size can have, by (size - 1) / 128; the size may be one class above. */")
    print(f"static const uint8_t class_index_large[{len(big_index)}] = {{\n{rows(big_index)}\n}};\n")
    print("#endif")


if __name__ == "__main__":
    main()
