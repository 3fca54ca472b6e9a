/* above_sys.h: all sources of the core above sys.c, in the order of snug.c (unit.mk makes sources_above_sys.h of it).
 * A test includes sys.c, may then put its own function in place of one of sys.h's (#define sys_coarse_time_ns
 * own_clock), and includes this. */
#include "large_pages.h"

#define mallinfo core_mallinfo /* <malloc.h>, which test.h includes, has these types as well */
#define mallinfo2 core_mallinfo2
#include "sources_above_sys.h"
#undef mallinfo
#undef mallinfo2

/* Tests drop no privileges behind the janitor's back; run as root it would not start without knowing. */
__attribute__((constructor)) static void tests_drop_nothing(void) { rights_drops_are_seen(); }
