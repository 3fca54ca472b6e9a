/* page_size.c: linked into a unit test with -Wl,--wrap=getauxval, tells it of other system pages than the machine
 * has. Larger ones work everywhere: what is a multiple of 64 KiB is one of 4 KiB. */
#include <sys/auxv.h>

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);

unsigned long __wrap_getauxval(unsigned long type) {
  unsigned long value = __real_getauxval(type);
  return type == AT_PAGESZ && value < UNIT_PAGE_BYTES ? UNIT_PAGE_BYTES : value;
}
