/* sys.h: all that snug asks of the operating system. The only module that includes Linux headers.
 *
 * It does not know what the memory is for. Calls are made directly, without libc's wrappers: errno stays as
 * the program left it, and the janitor, which has no libc thread state, may use every function here.
 * Functions return true or a pointer on success, false or NULL when the kernel refuses; refusals are normal (seccomp,
 * limits, old kernels) and callers carry on without. */
#ifndef SNUG_SYS_H
#define SNUG_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory. Addresses and lengths are multiples of the system's page size. */
size_t sys_page_size_bytes(void);
void *sys_reserve(size_t length_bytes);              /* address space without memory */
bool sys_commit(void *start, size_t length_bytes);   /* make a reserved range readable and writable */
bool sys_decommit(void *start, size_t length_bytes); /* and back to address space only; it holds no memory */
void *sys_map(size_t length_bytes);                  /* zeroed memory */
bool sys_map_at(void *start, size_t length_bytes);   /* zeroed memory there, or nothing */
bool sys_unmap(void *start, size_t length_bytes);
void *sys_remap(void *start, size_t old_bytes, size_t new_bytes, bool may_move);
bool sys_purge(void *start, size_t length_bytes); /* give memory back; reads as zero afterwards */
void sys_huge_pages(void *start, size_t length_bytes);
void sys_no_huge_pages(void *start, size_t length_bytes);
void sys_name_mapping(void *start, size_t length_bytes, const char *name);

/* Threads. */
void sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns); /* 0: no timeout */
void sys_sleep(uint64_t duration_ns);
void sys_futex_wait_shared(uint32_t *word, uint32_t expected); /* as the kernel wakes at the end of a thread */
void sys_futex_wake(uint32_t *word, int count);
bool sys_barrier_register(void);
bool sys_barrier_all_threads(void); /* every running thread of the process passes a full memory barrier */
uint32_t sys_thread_id(void);
uint32_t sys_process_id(void);
bool sys_thread_exists(uint32_t process_id, uint32_t thread_id);
bool sys_start_thread(void (*entry)(void), void *stack, size_t stack_bytes, void *thread_block, uint32_t *alive);
bool sys_in_started_thread(void); /* whether the caller is the thread started last */
_Noreturn void sys_exit_thread(void);
uint64_t sys_block_signals(void); /* all, for the calling thread; returns the mask before */
void sys_restore_signals(uint64_t mask);
void sys_drop_capabilities(void);
bool sys_leave_files(void); /* the calling thread shares no file descriptors any more and has none */
void sys_yield(void);
void sys_cpu_relax(void); /* a pause inside a spin */

/* Time, nanoseconds since an arbitrary moment. The coarse clock has a step of 1-4 ms and costs a few ns. */
uint64_t sys_coarse_time_ns(void);
uint64_t sys_time_ns(void);

/* Limits. */
uint64_t sys_address_space_limit_bytes(void); /* UINT64_MAX: none */
uint32_t sys_allowed_cpus(void);              /* by affinity; at least 1 */
uint64_t sys_physical_bytes(void);

/* Calls of the program's own that are passed on (process.c). 0, or -errno. */
int sys_prlimit(int process_id, int resource, const void *new_limit, void *old_limit);
int sys_unshare(int flags);
int sys_setns(int fd, int type);

/* Files. */
size_t sys_read_file(const char *path, char *text, size_t capacity_bytes); /* terminated; 0 when unreadable */
void sys_write(int fd, const char *text, size_t length_bytes);
_Noreturn void sys_abort(void);

#endif
