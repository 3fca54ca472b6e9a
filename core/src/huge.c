#include "huge.h"

#include "map.h"
#include "options.h"
#include "sys.h"

enum {
  HUGE_PAGE_PAGES = 512,        /* 2 MiB, where the system's pages are of 4 KiB */
  HUGE_HEAP_PAGES = 256 * 1024, /* 1 GiB */
};

static struct {
  struct table table;  /* of a byte for each chunk; atomic, not 0: it may have huge pages */
  size_t noted_chunks; /* the table's length; atomic, never less */
  bool has_no_table;
  size_t window_first, window_end; /* where the kernel may make more of them; pages lock */
  size_t chunks;                   /* atomic */
  size_t allowed_breaks;           /* atomic; written under the purge lock */
  size_t breaks;                   /* purge lock */
  bool is_wanted, is_given_up;     /* atomic; written under the purge lock */
} huge;

/* A caller that sees a chunk counted here sees its table, too. */
size_t huge_chunks(void) { return __atomic_load_n(&huge.chunks, __ATOMIC_ACQUIRE); }

bool huge_may_be_at(size_t page) {
  size_t chunk = page / CHUNK_PAGES;
  if (huge_chunks() == 0 || chunk >= __atomic_load_n(&huge.noted_chunks, __ATOMIC_RELAXED)) return false;
  return __atomic_load_n(&huge.table.start[chunk], __ATOMIC_RELAXED) != 0;
}

static void note(size_t chunk, bool may_have) {
  bool before = __atomic_exchange_n(&huge.table.start[chunk], (char)may_have, __ATOMIC_RELAXED) != 0;
  if (before != may_have) __atomic_add_fetch(&huge.chunks, may_have ? 1 : (size_t)-1, __ATOMIC_RELEASE);
}

static void note_all(size_t from, size_t end, bool may_have) {
  size_t count = __atomic_load_n(&huge.noted_chunks, __ATOMIC_RELAXED);
  if (end / CHUNK_PAGES < count) count = end / CHUNK_PAGES;
  for (size_t chunk = from / CHUNK_PAGES; chunk < count; chunk++) note(chunk, may_have);
}

/* Makes the table that notes huge pages up to page `end`. Kernels before 5.4 can't break them: they get no table. */
static bool have_table(size_t end) {
  if (huge.has_no_table || zone.page_bytes != PAGE_BYTES) return false;
  if (huge.table.start == NULL) {
    struct table table = table_reserve(zone.reserved_pages / CHUNK_PAGES, "snug huge pages");
    huge.has_no_table = table.start == NULL || !table_commit(&table, 1) || !sys_break_huge_page(table.start);
    if (huge.has_no_table) return false;
    huge.table = table;
  }
  if (!table_commit(&huge.table, end / CHUNK_PAGES)) return false;
  if (huge.noted_chunks < end / CHUNK_PAGES) __atomic_store_n(&huge.noted_chunks, end / CHUNK_PAGES, __ATOMIC_RELEASE);
  return true;
}

static void close_window(void) {
  size_t count = huge.window_end - huge.window_first;
  if (count != 0) sys_no_huge_pages(page_address(huge.window_first), count * PAGE_BYTES);
  huge.window_first = huge.window_end = 0;
}

bool huge_may_be_wanted(void) {
  return options.thp == THP_GROWTH && zone_pages() >= HUGE_HEAP_PAGES &&
         !__atomic_load_n(&huge.is_given_up, __ATOMIC_RELAXED);
}

void huge_grew(size_t from, size_t end) {
  close_window();
  if (options.thp == THP_ALWAYS && have_table(end)) note_all(from, end, true); /* map.c has told the kernel */
  size_t window_end = end - CHUNK_PAGES;
  bool wanted = huge_may_be_wanted() && __atomic_load_n(&huge.is_wanted, __ATOMIC_RELAXED);
  if (!wanted || window_end <= from || !have_table(window_end)) return;
  note_all(from, window_end, true);
  sys_huge_pages(page_address(from), (window_end - from) * PAGE_BYTES);
  huge.window_first = from;
  huge.window_end = window_end;
}

void huge_shrinks(size_t end) {
  if (huge.window_end > end) close_window(); /* while it is ours; mprotect would leave what the kernel was told */
  note_all(end, SIZE_MAX, false);
}

void huge_start(size_t end) {
  if (options.thp == THP_ALWAYS && have_table(end)) note_all(0, end, true);
}

void huge_want_more(bool more) { __atomic_store_n(&huge.is_wanted, more, __ATOMIC_RELAXED); }

void huge_give_up(void) {
  __atomic_store_n(&huge.is_given_up, true, __ATOMIC_RELAXED);
  note_all(0, SIZE_MAX, false);
}

void huge_allow_breaks(size_t chunks) { __atomic_store_n(&huge.allowed_breaks, chunks, __ATOMIC_RELAXED); }

bool huge_may_break(void) { return __atomic_load_n(&huge.allowed_breaks, __ATOMIC_RELAXED) != 0; }

size_t huge_take_breaks(void) {
  size_t breaks = huge.breaks;
  huge.breaks = 0;
  return breaks;
}

/* No new ones come into a chunk, even in the window. */
static void forgo(size_t first) {
  if (options.thp == THP_GROWTH) sys_no_huge_pages(page_address(first), CHUNK_PAGES * PAGE_BYTES);
}

void huge_went(size_t page) {
  if (options.thp != THP_GROWTH || !huge_may_be_at(page)) return; /* else they come again */
  size_t first = round_down(page, CHUNK_PAGES);
  forgo(first);
  note(first / CHUNK_PAGES, false);
}

bool huge_break(size_t page) {
  if (!huge_may_break()) return false;
  size_t first = round_down(page, CHUNK_PAGES);
  forgo(first);
  for (size_t i = first; i < first + CHUNK_PAGES; i += HUGE_PAGE_PAGES) sys_break_huge_page(page_address(i));
  note(first / CHUNK_PAGES, false);
  huge.breaks++;
  huge_allow_breaks(huge.allowed_breaks - 1);
  return true;
}
