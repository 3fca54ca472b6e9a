/* code_begins.c: linked into the archive's member before all else, so that code_ends.c can say where its code lies. */
#include "code.h"

void archive_code_begins(void) {}
void archive_rare_code_begins(void) {}
