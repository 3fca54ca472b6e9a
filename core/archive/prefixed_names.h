/* prefixed_names.h: the names that libsnug-prefixed.a gives to malloc and its relatives (prefixed.c). Before the first
 * system header: what stdlib.h declares as malloc is snug_malloc then. */
#ifndef SNUG_PREFIXED_NAMES_H
#define SNUG_PREFIXED_NAMES_H

#define malloc snug_malloc
#define free snug_free
#define calloc snug_calloc
#define realloc snug_realloc
#define reallocarray snug_reallocarray
#define posix_memalign snug_posix_memalign
#define aligned_alloc snug_aligned_alloc
#define memalign snug_memalign
#define valloc snug_valloc
#define pvalloc snug_pvalloc
#define malloc_usable_size snug_malloc_usable_size
#define malloc_trim snug_malloc_trim
#define free_sized snug_free_sized
#define free_aligned_sized snug_free_aligned_sized

#define mallocx snug_mallocx
#define rallocx snug_rallocx
#define xallocx snug_xallocx
#define sallocx snug_sallocx
#define nallocx snug_nallocx
#define dallocx snug_dallocx
#define sdallocx snug_sdallocx
#define mallctl snug_mallctl
#define mallctlnametomib snug_mallctlnametomib
#define mallctlbymib snug_mallctlbymib
#define malloc_stats_print snug_malloc_stats_print
#define malloc_message snug_malloc_message

#endif
