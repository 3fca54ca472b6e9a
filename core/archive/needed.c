/* needed.c: what libsnug.a asks of libc by force. The library refers to all of it weakly (core/src/libc.h); a weak
 * reference takes no member out of libc.a, so in a static program nothing would be there. Linked into the same member as
 * the core, where the strong reference wins. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>

typedef void function(void);

#define NEEDED(name) (function *)name

__attribute__((used)) static function *const needed[] = {
    NEEDED(abort),
    NEEDED(fwrite),
    NEEDED(getauxval),
    NEEDED(unsetenv),
    NEEDED(pthread_atfork),
    NEEDED(pthread_key_create),
    NEEDED(pthread_key_delete),
    NEEDED(pthread_setspecific),
};

/* errno is a call here, as it is for the core. */
__attribute__((used)) static int needed_errno(void) { return errno; }
