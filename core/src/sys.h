/* sys.h: all that snug asks of the kernel. The only module that includes Linux headers.
 *
 * It does not know what the memory is for. Calls are made directly, without libc's wrappers: errno stays as
 * the program left it, and the janitor, which has no libc thread state, may use every function here.
 * Functions return true or a pointer on success, false or NULL when the kernel refuses; refusals are normal (seccomp,
 * limits, old kernels) and callers carry on without. A seccomp filter may also end the process for a call: those marked
 * with a right need it (rights.h). */
#ifndef SNUG_SYS_H
#define SNUG_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory. Addresses and lengths are multiples of the system's page size. */
size_t sys_page_size_bytes(void);
void *sys_reserve(size_t length_bytes);              /* address space without memory */
bool sys_commit(void *start, size_t length_bytes);   /* make a reserved range readable and writable */
bool sys_decommit(void *start, size_t length_bytes); /* and back; the system charges for it still, as for memory */
bool sys_make_read_only(void *start, size_t length_bytes);
bool sys_reserve_again(void *start, size_t length_bytes); /* and back as it was reserved: charged no more, zeros next */
void *sys_map(size_t length_bytes);                       /* zeroed memory */
bool sys_map_at(void *start, size_t length_bytes);        /* zeroed memory there, or nothing */
bool sys_unmap(void *start, size_t length_bytes);
void *sys_remap(void *start, size_t old_bytes, size_t new_bytes, bool may_move);
bool sys_purge(void *start, size_t length_bytes); /* give memory back; reads as zero afterwards */
void sys_try_purge(void *page); /* once, at start, with a page that nobody needs; else sys_purge is not to be trusted */
void sys_set_dumped(void *start, size_t length_bytes, bool dumped); /* in core files. RIGHT_OTHERS */
void sys_huge_pages(void *start, size_t length_bytes);
void sys_no_huge_pages(void *start, size_t length_bytes);
bool sys_break_huge_page(
    void *page); /* the one that holds this page, if any, into small ones; false before Linux 5.4 */
bool sys_find_resident(void *start, size_t length_bytes, unsigned char resident[]); /* bit 0, by page. RIGHT_OTHERS */
bool sys_wipe_on_fork(void *start, size_t length_bytes);                   /* copies of the process find zeros there */
void sys_name_mapping(void *start, size_t length_bytes, const char *name); /* RIGHT_OTHERS */

/* Threads. */
void sys_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns); /* 0: no timeout */
void sys_sleep(uint64_t duration_ns);
bool sys_can_read(const void *word); /* four bytes at a multiple of 4: whether reading them would not fault */
void sys_futex_wait_shared(uint32_t *word, uint32_t expected); /* as the kernel wakes at the end of a thread */
void sys_futex_wake(uint32_t *word, int count);
bool sys_leave_files(void); /* the calling thread shares no file descriptors any more and has none. RIGHT_OTHERS, */
bool sys_barrier_register(void);    /* as the five below */
bool sys_barrier_all_threads(void); /* every running thread of the process passes a full memory barrier */
uint32_t sys_thread_id(void);
uint32_t sys_process_id(void);
bool sys_thread_exists(uint32_t process_id, uint32_t thread_id);
uint64_t sys_physical_bytes(void); /* 0: refused */
bool sys_is_glibc(void);           /* whether the program's C library is glibc */
/* Returns the thread's id, 0 if it can't be had; *alive holds it while it runs. RIGHT_THREAD, as the three below. */
uint32_t sys_start_thread(void (*entry)(void), void *stack, size_t stack_bytes, void *thread_block, uint32_t *alive);
_Noreturn void sys_exit_thread(void);
/* All for the calling thread but that by which libc reaches every thread: who sends it waits for each, and may hold
 * what this one waits for. Returns the mask before. */
uint64_t sys_block_signals(void);
void sys_restore_signals(uint64_t mask);
bool sys_in_started_thread(void); /* whether the caller is the thread started last: it runs on that one's stack */
void sys_cpu_relax(void);         /* a pause inside a spin */

/* What is done on SIGSEGV, as the kernel keeps it. */
struct sys_action {
  void *handler; /* SYS_DEFAULT, SYS_IGNORE, or a function */
  unsigned long flags;
  void (*return_to)(void); /* where the kernel has handlers return to */
  uint64_t mask;
};
#define SYS_DEFAULT ((void *)0)
#define SYS_IGNORE ((void *)1)
enum sys_action_flag {
  SYS_ACTION_TELLS = 0x4,         /* the handler takes three arguments */
  SYS_ACTION_RETURNS = 0x4000000, /* return_to is set */
  SYS_ACTION_OWN_STACK = 0x8000000,
};
#define SYS_ACTION_ONCE 0x80000000ul

/* Asks for the action, and sets one unless `action` is NULL. RIGHT_OTHERS. */
bool sys_fault_action(const struct sys_action *action, struct sys_action *before);
bool sys_is_handler_return(const void *address);              /* where the functions below have the kernel return to */
void sys_return_from_handler_here(struct sys_action *action); /* sets return_to */
bool sys_is_fault(const void *info, const void **address);    /* of what a handler is told: else somebody sent it */
const uint64_t *sys_interrupted_registers(const void *context); /* in the platform's order */
const char *sys_kind_of_access(const void *context);            /* "write", "read", or "access" where nobody says */
_Noreturn void sys_die_of_fault(void);                          /* in its handler: the kernel ends the process */

/* Time, nanoseconds since an arbitrary moment. The coarse clock has a step of 1-4 ms and costs a few ns. */
uint64_t sys_coarse_time_ns(void);
uint64_t sys_ticks(void);          /* of a counter that rises evenly, in a unit of its own; no system call */
uint64_t sys_process_cpu_ns(void); /* CPU time of all threads so far; 0: unknown. RIGHT_OTHERS */

/* What the process was started with. */
uint64_t sys_address_space_limit_bytes(void); /* UINT64_MAX: none */
uint64_t sys_lock_limit_bytes(void);          /* of memory that may be locked; UINT64_MAX: none. RIGHT_OTHERS */
uint64_t sys_start_number(void);              /* differs from start to start, not from fork to fork */
bool sys_is_in_program(void);                 /* this object is the program, and no library that it loaded */
bool sys_was_loaded(void);                    /* by a dynamic loader, which opens and reads files */
bool sys_is_secure(void); /* with rights that who started it does not have: the environment is not to be trusted */
char *sys_environment(const char *name); /* as getenv, but also before libc has read its environment */

/* A call of the program's own that is passed on (process.c). What the kernel returns: a value, or -errno. */
long sys_call(long number, long a, long b, long c, long d, long e, long f);

/* Files. */
size_t sys_read_file(const char *path, char *text,
                     size_t capacity_bytes); /* terminated; 0 when unreadable. RIGHT_FILES */
size_t sys_read_link(const char *path, char *text, size_t capacity_bytes); /* the same of a link; RIGHT_OTHERS */
/* Calls line() with each line of a file, cut to the capacity of `text`, until it returns false. RIGHT_FILES */
void sys_each_line(const char *path, char *text, size_t capacity_bytes, bool (*line)(const char *line, void *data),
                   void *data);
bool sys_file_exists(const char *path); /* and can be read; RIGHT_FILES */
/* To write to, for its owner alone. Emptied if it is there; or else is_new: then it is an error, as is a link. Below 0:
 * -errno; that it is a pipe that nobody reads, too. RIGHT_FILES */
int sys_create_file(const char *path, bool is_new);
bool sys_copy_file(const char *path, int fd); /* writes all that a file has; RIGHT_FILES */
bool sys_close_file(int fd);
/* False, too: it is a pipe that takes no more for a second. */
bool sys_write_whole(int fd, const char *text, size_t length_bytes);
void sys_write(int fd, const char *text, size_t length_bytes);
_Noreturn void sys_abort(void);
_Noreturn void sys_abort_without_libc(void); /* by a signal to the process */
_Noreturn void sys_abort_unhandled(void);    /* the same, and no handler runs */

#endif
