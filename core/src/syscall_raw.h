/* syscall_raw.h: syscall_raw, one system call, of the architecture that is compiled for. */
#if defined(__x86_64__)
#include "syscall_x86_64.h"
#elif defined(__aarch64__)
#include "syscall_aarch64.h"
#else
#error "snug supports x86-64 and aarch64; a new architecture needs a syscall_<name>.h"
#endif
