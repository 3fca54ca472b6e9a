/* above_sys.h: all sources of the core above sys.c, as in snug.c. A test includes sys.c, may then put its own function in
 * place of one of sys.h's (#define sys_coarse_time_ns own_clock), and includes this. */
#include "large_pages.h"

#define mallinfo core_mallinfo /* test.h has other declarations of these three */
#define mallinfo2 core_mallinfo2
#define snug_version core_snug_version
#include "../../src/fatal.c"
#include "../../src/lock.c"
#include "../../src/options.c"
#include "../../src/map.c"
#include "../../src/pages.c"
#include "../../src/run.c"
#include "../../src/large.c"
#include "../../src/slab.c"
#include "../../src/cache.c"
#include "../../src/cgroup.c"
#include "../../src/janitor.c"
#include "../../src/purge.c"
#include "../../src/block.c"
#include "../../src/fork.c"
#include "../../src/stats.c"
#include "../../src/start.c"
#include "../../src/api.c"
#include "../../src/glibc.c"
#include "../../src/cxx.c"
#undef mallinfo
#undef mallinfo2
#undef snug_version
