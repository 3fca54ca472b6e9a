/* deepbind.c: dlopen(..., RTLD_DEEPBIND), in the shared library only (docs/decisions/0023).
 *
 * A library opened so looks for symbols in its own dependencies first, and libc is one of them: what it frees would go
 * to glibc's free, what the program gave it comes from ours. So before the first such dlopen, the entries of malloc and
 * its relatives in libc's table of symbols get our addresses. Who looks there finds us; who is bound already stays so.
 *
 * D1  Processes that open nothing with that flag keep libc's table as it is, shared with all others.
 * D2  If libc is laid out in another way than this knows, nothing is written: then such libraries go to glibc's malloc.
 * D3  The call itself is passed on by a jump: dlopen goes by its caller's address (RUNPATH, namespace), so it must see
 *     the program's, not ours. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../src/symbols.h"
#include "../src/sys.h"

#if defined(__x86_64__)
#include "dlopen_x86_64.h"
#elif defined(__aarch64__)
#include "dlopen_aarch64.h"
#endif

enum { DEEPBIND_FLAG = 8, NAMES = 16 };
enum { WRITE_NEVER, WRITE_BEGINS, WRITE_DONE };

#define NAP_NS UINT64_C(20000)

__attribute__((weak)) const char *gnu_get_libc_version(void);

typedef void *open_function(const char *, int);

/* Called by dlopen in dlopen_*.h, which jumps to what it returns. */
__attribute__((visibility("hidden"), used)) open_function *deepbind_next_dlopen(int flags);

/* What all other libraries of this process are bound to. */
static const char *const names[NAMES] = {
    "malloc",      "free",          "calloc",         "realloc",         "reallocarray",       "memalign",
    "valloc",      "aligned_alloc", "pvalloc",        "posix_memalign",  "malloc_usable_size", "__libc_malloc",
    "__libc_free", "__libc_calloc", "__libc_realloc", "__libc_memalign",
};

/* libc's symbols. musl ignores the flag. */
static bool describe(struct symbol_table *table) {
  const void *known = gnu_get_libc_version != NULL ? symbols_next("__libc_start_main") : NULL;
  return known != NULL && symbols_of(known, table);
}

static bool protect(uintptr_t begin, uintptr_t end, int protection) {
  return sys_call(SYS_mprotect, (long)begin, (long)(end - begin), protection, 0, 0, 0) == 0;
}

/* Makes the pages from begin to end writable. False if that cannot be, or if code of libc may be in them. */
static bool open_pages(const struct symbol_table *table, uintptr_t begin, uintptr_t end, uint32_t *flags) {
  const Elf64_Phdr *segment = symbol_table_segment(table, begin, end);
  if (segment == NULL) return false;
  *flags = segment->p_flags;
  /* Where one segment holds symbols, their names and code, in this order, the names must reach beyond these pages. */
  bool before_code = (uintptr_t)table->symbols <= (uintptr_t)table->names && end <= (uintptr_t)table->names_end;
  if (*flags != PF_R && !(*flags == (PF_R | PF_X) && before_code)) return false;
  return protect(begin, end, PROT_READ | PROT_WRITE);
}

/* Pages that may not become executable again, by a policy of the system, need not: there is no code in them. */
static void close_pages(uintptr_t begin, uintptr_t end, uint32_t flags) {
  if ((flags & PF_X) == 0 || !protect(begin, end, PROT_READ | PROT_EXEC)) protect(begin, end, PROT_READ);
}

/* Writes our addresses. Nobody is locked out: a look-up meanwhile finds the old address or the new one. */
static void write_addresses(void) {
  struct symbol_table table;
  if (!describe(&table)) return;
  Elf64_Sym *symbols[NAMES];
  void *ours[NAMES];
  uintptr_t begin = UINTPTR_MAX, end = 0, page_mask = sys_page_size_bytes() - 1;
  for (size_t i = 0; i < NAMES; i++) {
    symbols[i] = symbol_table_find(&table, names[i]);
    ours[i] = symbols_first(names[i]);
    if (symbols[i] == NULL) continue;
    uintptr_t first = (uintptr_t)symbols[i], last = first + sizeof *symbols[i] - 1;
    if (first < begin) begin = first & ~page_mask;
    if (last >= end) end = (last | page_mask) + 1;
  }
  uint32_t flags;
  if (begin >= end || !open_pages(&table, begin, end, &flags)) return;
  for (size_t i = 0; i < NAMES; i++) {
    if (symbols[i] == NULL || ours[i] == NULL) continue;
    __atomic_store_n(&symbols[i]->st_value, (uintptr_t)ours[i] - table.base, __ATOMIC_RELAXED);
  }
  close_pages(begin, end, flags);
}

static void write_addresses_once(void) {
  static uint32_t state; /* atomic */
  uint32_t never = WRITE_NEVER;
  if (__atomic_compare_exchange_n(&state, &never, WRITE_BEGINS, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    write_addresses();
    __atomic_store_n(&state, WRITE_DONE, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != WRITE_DONE) sys_sleep(NAP_NS);
}

static void *no_dlopen(const char *path, int flags) {
  (void)path, (void)flags;
  return NULL;
}

open_function *deepbind_next_dlopen(int flags) {
  static open_function *next;
  open_function *found = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (found == NULL) {
    *(void **)&found = symbols_next("dlopen");
    if (found == NULL) found = no_dlopen;
    __atomic_store_n(&next, found, __ATOMIC_RELAXED);
  }
  if ((flags & DEEPBIND_FLAG) != 0) write_addresses_once();
  return found;
}
