/* xmalloc:true, by jemalloc's way for a program to bring its own settings: no memory ends the process. */
#include "misuse.h"

const char *malloc_conf = "xmalloc:true";

int main(void) {
  expect(
      "no memory, and MALLOC_CONF has xmalloc:true; usual cause: the system has no memory left, or the size is wrong");
  free(hidden(malloc(hidden_size(PTRDIFF_MAX - 4096))));
  return 0;
}
