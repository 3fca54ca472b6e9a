/* rights.h: which system calls may be made beyond those of any malloc. Decides; the calls themselves are in sys.c.
 *
 * mmap, munmap, mremap, mprotect, madvise and futex are made always, as glibc's malloc makes them. For any other call a
 * seccomp filter may end the process, and there is none by which one could ask beforehand. So the others are made only
 * while it is known that they do no harm (docs/decisions/0024):
 *
 *   at start     /proc/self/status says whether the process inherited a filter; reading it takes the calls that the
 *                dynamic loader has just made. Without a filter all may be made.
 *   a filter     files may be read, as above; a thread may be started once the program has shown that it may. If the
 *                filter is a container's, the one that its first process has, all may be made: such filters refuse
 *                calls and do not kill, and these they allow.
 *   on entering  a sandbox by libc's prctl or syscall, or when the program says that it will (process.c): nothing any
 *                more, for good.
 *
 *  S1  Calls that need a right are made with the purge, caches or janitor lock held, and rights end with all locks
 *      held: so none is on its way when a filter comes into force. But for those of a process that is about to end:
 *      the handler of a fault sets the action of SIGSEGV (fault.c), and last words ask whose memory it is and set the
 *      action of SIGABRT (fatal.c). And but for three that one thread may make just when another enters a sandbox for
 *      both: signals are blocked before the locks and restored after them (fork.c, process.c), and mlockall asks for
 *      its limit (process.c).
 */
#ifndef SNUG_RIGHTS_H
#define SNUG_RIGHTS_H

#include "base.h"

enum right {
  RIGHT_FILES = 1,  /* open, read and close files of the system */
  RIGHT_THREAD = 2, /* start a thread, with signals blocked, and end it */
  RIGHT_OTHERS = 4, /* all else, such as membarrier, tgkill, close_range, CPU time (docs/decisions/0024) */
  RIGHT_ALL = RIGHT_FILES | RIGHT_THREAD | RIGHT_OTHERS,
};

/* What /proc/PID/status says of a thread. */
struct rights_status {
  bool complete;         /* else nothing below is known */
  bool privileged;       /* as root, with capabilities, or with user ids that differ */
  uint32_t seccomp;      /* mode; 0: none */
  uint32_t filters;      /* of seccomp; 0 also before Linux 5.9, which does not say */
  uint32_t allowed_cpus; /* 0: unknown */
};

HIDDEN struct rights_status rights_parse_status(const char *text);

/* Once, before any other call that needs a right. */
HIDDEN void rights_find(void);

/* Once the environment can be read: a container's filter lets us have all. */
HIDDEN void rights_consider_container(void);

/* The program has a second thread: so threads may be started. */
HIDDEN void rights_saw_thread(void);

/* Takes all rights away, or gives back what was had. All locks held (S1). Returns what was had. */
HIDDEN uint32_t rights_end(void);
HIDDEN void rights_resume(uint32_t rights);

HIDDEN bool rights_have(enum right right);

/* From now on process.c sees how the process drops privileges. */
HIDDEN void rights_drops_are_seen(void);

/* RIGHT_THREAD, in a process that has no privileges, or whose drops are seen: a thread of ours must not keep them.
 * Never in one that was started with more rights than who started it has. */
HIDDEN bool rights_may_start_thread(void);

/* From now on no thread may be started. */
HIDDEN void rights_start_no_thread(void);

/* CPUs that the process may use, by affinity, asked again; where that can't be read, as many as before. At least 1. The
 * purge lock is held. */
HIDDEN uint32_t rights_allowed_cpus(void);

/* Memory of the machine; where nobody may ask, as much as most have at most. */
HIDDEN uint64_t rights_physical_bytes(void);

/* Whose memory the caller looks at. */
enum identity {
  IDENTITY_OWN,      /* its process's own */
  IDENTITY_BORROWED, /* its parent's: it was made by vfork(2) and has not executed a program yet */
  IDENTITY_COPIED,   /* a copy made by clone(2) without our handlers: owned by nobody yet */
};

HIDDEN enum identity rights_identity(void);

/* The same, for a process that is about to end by its mistake: asks in a sandbox, too. */
HIDDEN enum identity rights_identity_at_end(void);

/* The memory is this process's own from now on. Returns its id, 0 when that can't be asked. */
HIDDEN uint32_t rights_own_memory(void);

/* The PID of the process that owns the memory; 0: unknown. */
HIDDEN uint32_t rights_pid(void);

/* Whether the memory is a copy made by clone(2) without our handlers that nobody has claimed yet. */
HIDDEN bool rights_is_copy(void);

/* Whether the memory is such a copy that the caller, alone of all threads, must claim now, by rights_own_memory. */
HIDDEN bool rights_claim_copy(void);

#endif
