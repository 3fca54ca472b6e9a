#include "symbols.h"

#include <link.h>
#include <string.h>

struct search {
  const char *name;  /* NULL: only the library is wanted */
  uintptr_t address; /* in the library that is wanted, or that others are to come after */
  bool is_behind;    /* that library was seen */
  void *found;
  void *found_before; /* in front of it */
  struct symbol_table table;
};

static bool holds(const struct symbol_table *table, uintptr_t address) {
  return symbol_table_segment(table, address, address + 1) != NULL;
}

static struct symbol_table table_of(const struct dl_phdr_info *info) {
  return symbol_table_of(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum);
}

/* A function whose address the loader does not have to ask for first. */
static void *function_in(const struct symbol_table *table, const char *name) {
  const Elf64_Sym *symbol = symbol_table_find(table, name);
  return symbol != NULL && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC ? (void *)(table->base + symbol->st_value) : NULL;
}

static int look_for_first(struct dl_phdr_info *info, size_t size_bytes, void *data) {
  (void)size_bytes;
  struct search *search = data;
  struct symbol_table table = table_of(info);
  search->found = function_in(&table, search->name);
  return search->found != NULL;
}

static int look_for_variable(struct dl_phdr_info *info, size_t size_bytes, void *data) {
  struct search *search = data;
  struct symbol_table table = table_of(info);
  const Elf64_Sym *symbol = symbol_table_find(&table, search->name);
  if (symbol == NULL) return 0;
  unsigned type = ELF64_ST_TYPE(symbol->st_info);
  if (type == STT_OBJECT) search->found = (void *)(table.base + symbol->st_value);
  if (type == STT_TLS && size_bytes >= offsetof(struct dl_phdr_info, dlpi_tls_data) + sizeof info->dlpi_tls_data &&
      info->dlpi_tls_data != NULL)
    search->found = (char *)info->dlpi_tls_data + symbol->st_value;
  return 1;
}

static int look_for_next(struct dl_phdr_info *info, size_t size_bytes, void *data) {
  (void)size_bytes;
  struct search *search = data;
  struct symbol_table table = table_of(info);
  if (!search->is_behind && holds(&table, search->address)) return search->is_behind = true, 0;
  if (search->is_behind) return (search->found = function_in(&table, search->name)) != NULL;
  if (search->found_before == NULL) search->found_before = function_in(&table, search->name);
  return 0;
}

static int look_for_library(struct dl_phdr_info *info, size_t size_bytes, void *data) {
  (void)size_bytes;
  struct search *search = data;
  search->table = table_of(info);
  return holds(&search->table, search->address);
}

void *symbols_first(const char *name) {
  struct search search = {.name = name};
  if (dl_iterate_phdr != NULL) dl_iterate_phdr(look_for_first, &search);
  return search.found;
}

bool symbols_function(void *function, const char *name) {
  void *found = symbols_first(name);
  memcpy(function, &found, sizeof found);
  return found != NULL;
}

void *symbols_variable(const char *name) {
  struct search search = {.name = name};
  if (dl_iterate_phdr != NULL) dl_iterate_phdr(look_for_variable, &search);
  return search.found;
}

void *symbols_next(const char *name) {
  struct search search = {.name = name, .address = (uintptr_t)symbols_next};
  if (dl_iterate_phdr != NULL) dl_iterate_phdr(look_for_next, &search);
  return search.found != NULL ? search.found : search.found_before;
}

bool symbols_of(const void *address, struct symbol_table *table) {
  struct search search = {.address = (uintptr_t)address};
  if (dl_iterate_phdr == NULL || dl_iterate_phdr(look_for_library, &search) == 0) return false;
  *table = search.table;
  return table->symbols != NULL;
}
