/* address_table.h: which slot lives at an address. Open addressing with linear probing, at most half full. */
#ifndef SNUG_TRACES_ADDRESS_TABLE_H
#define SNUG_TRACES_ADDRESS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct address_row {
  uint64_t address; /* 0: no row; stored as address + 1 */
  uint32_t slot;
};

struct address_table {
  struct address_row *rows;
  uint64_t mask; /* rows - 1 */
  uint64_t count;
};

void address_table_start(struct address_table *table);
void address_table_release(struct address_table *table);

/* Adds an address that is not there. */
void address_table_add(struct address_table *table, uint64_t address, uint32_t slot);

/* Removes an address and tells its slot; false if it is not there. */
bool address_table_take(struct address_table *table, uint64_t address, uint32_t *slot);

#endif
