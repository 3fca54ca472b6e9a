/* Memory of the program's own mmap is freed. */
#include "misuse.h"

#include <sys/mman.h>

int main(void) {
  *block_of(3 * MIB) = 1;
  char *mapping = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapping != MAP_FAILED);
  expect_foreign_pointer(mapping);
  free(hidden(mapping));
  return 0;
}
