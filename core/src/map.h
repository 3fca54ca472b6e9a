/* map.h: the zone, one range of address space that holds the heap, and what each of its pages is.
 *
 * It does not know slabs or runs, only the two flat arrays that name them:
 *
 *      zone.base                                   zone.base + zone.pages * 4 KiB     a little more: reserved
 *      | page 0 | page 1 | page 2 | ...            |                                     |
 *      kind[0]    kind[1]  kind[2]     16 bits: 0 no block begins; joints << 15 | arena << 8 | class; KIND_RUN
 *      owner[0]   owner[1] owner[2]    32 bits: number of the slab record; of a run's first page its length and slack
 *
 * Flat, because a free then needs one compare (ours?) and one load (class), and a foreign pointer is certain to be
 * found. Price: 6 bytes per 4 KiB page (docs/decisions/0001). At start addresses are looked for where nobody else comes
 * near, for a heap of 256 GiB or more and the arrays beside it. They are not kept: all is lengthened in place as it is
 * needed, and the process has hardly more addresses mapped than it uses (docs/decisions/0052).
 *
 *  M1  zone.base (a multiple of 4 MiB), kind, owner never change after map_init; zone.pages grows after the pages below
 *      it are usable, those of the first chunk by map_reach, and shrinks only past pages in which no block lives.
 *  M2  kind and owner of a page are written by whoever holds the pages (they are allocated to it), before a pointer
 *      into them is given out. Of a page with live blocks only the arena and the bit of joints change (B6).
 *  M3  While the heap is reserved, at least a page beyond zone.pages is. mremap lengthens it, which keeps what was said
 *      of it: name, huge pages, core files. Where it can't, the heap is reserved no more, and mapped as it grows.
 */
#ifndef SNUG_MAP_H
#define SNUG_MAP_H

#include "base.h"

enum {
  KIND_RUN = 0xfe,    /* first page of a run; the others have 0, as free pages do */
  CHUNK_PAGES = 1024, /* the zone grows by whole chunks of 4 MiB */
};

struct zone {
  char *base;
  size_t pages; /* usable; atomic, written under the map lock */
  uint16_t *kind;
  uint32_t *owner;
  uint64_t *free_bits;   /* module pages, under its lock */
  uint64_t *dirty_bits;  /* the same */
  uint64_t *aged_bits;   /* the same */
  size_t reserved_pages; /* so large may the zone become: addresses were looked for, and tables have room */
  size_t page_bytes;     /* of the system; at least PAGE_BYTES */
};

HIDDEN extern struct zone zone;

/* A table that grows in place. */
struct table {
  char *start;
  size_t reserved_bytes;
  size_t committed_bytes;
  bool unreserved; /* beyond committed_bytes nothing is mapped: it grows while the addresses behind it are free */
  const char *name;
};

/* Finds a place for the zone and its arrays. Called once, before any other thread can be here.
 * Returns false when not even a minimal zone can be had: then every block gets a mapping of its own. */
HIDDEN bool map_init(void);

/* After the settings were read: huge pages on the heap, if asked for; core files without what is only reserved. */
HIDDEN void map_apply_options(void);

/* Makes at least `pages` more pages usable. Returns the new zone.pages, or 0 when there is no more. */
HIDDEN size_t map_grow(size_t pages);

/* Before pages below this one are taken: they can be written to. False: the system refuses. */
HIDDEN bool map_reach(size_t pages);

/* A table of at most max_bytes. Its memory reads as zero. start is NULL when it can't be had. */
HIDDEN struct table table_reserve(size_t max_bytes, const char *name);
HIDDEN bool table_commit(struct table *table, size_t bytes);

/* Lets map_release_reservations reach the table, which stays where it is for good. */
HIDDEN void table_register(struct table *table);

/* Memory that reads as zero, between two pages that can't be touched: so it is no neighbour of a block. NULL: none. */
HIDDEN void *map_apart(size_t bytes);
HIDDEN void map_unmap_apart(void *start, size_t bytes);

/* Releases the address space that the table has not committed. It grows as long as nobody else takes that. */
HIDDEN void table_release_rest(struct table *table);

/* Releases all address space that is reserved and not used, before the program limits its address space. All locks
 * held. */
HIDDEN void map_release_reservations(void);

/* Whether core files have a range. What is reserved and unused they need not: gcore(1) writes every page of it. What
 * becomes usable they have again. Not for the kernel's own, but it leaves untouched pages out anyway. */
HIDDEN void map_set_dumped(void *start, size_t bytes, bool dumped);

/* The same for who waits for no lock (aside.h): not said while another one has the lock, as who enters a sandbox. */
HIDDEN void map_try_set_dumped(void *start, size_t bytes, bool dumped);

/* The same of all that is reserved: true before a sandbox, in which no such call can be made. The map lock is held. */
HIDDEN void map_dump_reservations(bool dumped);

/* Whether some address space is reserved for the heap to grow into; else it is limited, or was. No lock is held. */
HIDDEN bool map_heap_is_reserved(void);

/* Makes the zone end after `pages`; nothing above may be in use, dirty or not. The system charges for it no more. */
HIDDEN bool map_shrink(size_t pages);

/* For fork: every module with locks has these three. */
HIDDEN void map_lock_all(void);
HIDDEN void map_unlock_all(void);
HIDDEN void map_reset_locks(void);

/* Index of the page that holds p; at least zone.pages when p is not in the usable zone. */
static ALWAYS_INLINE size_t page_index(const void *p) { return (size_t)((const char *)p - zone.base) >> PAGE_SHIFT; }

static ALWAYS_INLINE size_t zone_pages(void) { return __atomic_load_n(&zone.pages, __ATOMIC_RELAXED); }

static ALWAYS_INLINE char *page_address(size_t page) { return zone.base + (page << PAGE_SHIFT); }

/* kind is read by frees of any thread while a slab is adopted (slab.c) or gets joints (slab_join.c), hence atomic. */
static ALWAYS_INLINE unsigned page_kind(size_t page) { return __atomic_load_n(&zone.kind[page], __ATOMIC_RELAXED); }

static inline void page_set_kind(size_t page, unsigned kind) {
  __atomic_store_n(&zone.kind[page], (uint16_t)kind, __ATOMIC_RELAXED);
}

#endif
