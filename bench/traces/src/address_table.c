/* address_table.c: see address_table.h. */
#include "address_table.h"

#include "own_memory.h"

enum { ROWS_AT_START = 1 << 16 };

static uint64_t home_of(const struct address_table *table, uint64_t key) {
  return (key * 0x9e3779b97f4a7c15u >> 20) & table->mask;
}

static void start_with(struct address_table *table, uint64_t row_count) {
  table->rows = own_memory_reserve(row_count * sizeof(struct address_row));
  table->mask = row_count - 1;
  table->count = 0;
}

void address_table_start(struct address_table *table) { start_with(table, ROWS_AT_START); }

void address_table_release(struct address_table *table) {
  own_memory_release(table->rows, (table->mask + 1) * sizeof(struct address_row));
}

static void grow(struct address_table *table) {
  struct address_table old = *table;
  start_with(table, (old.mask + 1) * 2);
  for (uint64_t i = 0; i <= old.mask; i++) {
    if (old.rows[i].address) address_table_add(table, old.rows[i].address - 1, old.rows[i].slot);
  }
  address_table_release(&old);
}

void address_table_add(struct address_table *table, uint64_t address, uint32_t slot) {
  if (table->count >= table->mask / 2) grow(table);
  uint64_t row = home_of(table, address + 1);
  while (table->rows[row].address) row = (row + 1) & table->mask;
  table->rows[row] = (struct address_row){.address = address + 1, .slot = slot};
  table->count++;
}

bool address_table_take(struct address_table *table, uint64_t address, uint32_t *slot) {
  struct address_row *rows = table->rows;
  uint64_t row = home_of(table, address + 1);
  while (rows[row].address && rows[row].address != address + 1) row = (row + 1) & table->mask;
  if (!rows[row].address) return false;
  *slot = rows[row].slot;
  table->count--;
  /* Moves later rows of the same run up, so that no probe stops too early. */
  for (uint64_t next = (row + 1) & table->mask; rows[next].address; next = (next + 1) & table->mask) {
    uint64_t home = home_of(table, rows[next].address);
    if (((next - home) & table->mask) >= ((next - row) & table->mask)) {
      rows[row] = rows[next];
      row = next;
    }
  }
  rows[row].address = 0;
  return true;
}
