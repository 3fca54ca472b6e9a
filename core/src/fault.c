#include "fault.h"

#include "cache.h"
#include "rights.h"
#include "sys.h"

enum { ENTRIES_MAX = 8, WATCH_TRIES = 4 };

typedef void handler(int signal, void *info, void *context);

static fault_watcher *watcher; /* atomic */

/* F1. Under the caches lock; next is whole before its handler is set. */
static struct {
  struct sys_action next[ENTRIES_MAX];
  uint32_t count;
} entries;

static bool has_handler(const struct sys_action *action) {
  return action->handler != SYS_DEFAULT && action->handler != SYS_IGNORE;
}

/* For the fault that comes again; not before: other threads that fault meanwhile wait for what the watcher says. */
static void become_default(const struct sys_action *next) {
  if (!rights_have(RIGHT_OTHERS) || !sys_fault_action(next, NULL)) sys_die_of_fault();
}

/* Libc may have set ours again, to return to its own code. */
static bool is_from_kernel(const void *return_to) {
  struct sys_action now;
  if (sys_is_handler_return(return_to)) return true;
  return rights_have(RIGHT_OTHERS) && sys_fault_action(NULL, &now) && (now.flags & SYS_ACTION_TELLS) != 0 &&
         (const void *)now.return_to == return_to;
}

/* F2 */
static void go_on_with(const struct sys_action *next, bool is_fault, int signal, void *info, void *context) {
  if (has_handler(next)) {
    handler *theirs;
    memcpy(&theirs, &next->handler, sizeof theirs);
    theirs(signal, info, context);
  } else if (next->handler == SYS_DEFAULT ? !is_fault : is_fault) {
    sys_die_of_fault(); /* the kernel ignores no fault, and a signal that was sent would not come again */
  } else if (next->handler == SYS_DEFAULT) {
    become_default(next);
  }
  /* By default a fault comes again when the access is repeated: the action is the kernel's own by then. */
}

static ALWAYS_INLINE void enter(unsigned number, int signal, void *info, void *context, const void *return_to) {
  const struct sys_action *next = &entries.next[number];
  const void *address;
  if (!is_from_kernel(return_to)) { /* F3 */
    go_on_with(next, next->handler == SYS_DEFAULT, signal, info, context);
    return;
  }
  bool is_fault = sys_is_fault(info, &address);
  fault_watcher *look = __atomic_load_n(&watcher, __ATOMIC_ACQUIRE);
  if (is_fault) look(address, context);
  go_on_with(next, is_fault, signal, info, context);
}

#define ENTRY(number)                                                              \
  static NEVER_INLINE void enter_##number(int signal, void *info, void *context) { \
    enter(number, signal, info, context, __builtin_return_address(0));             \
  }
ENTRY(0)
ENTRY(1)
ENTRY(2)
ENTRY(3)
ENTRY(4)
ENTRY(5)
ENTRY(6)
ENTRY(7)

static handler *const handlers[ENTRIES_MAX] = {enter_0, enter_1, enter_2, enter_3, enter_4, enter_5, enter_6, enter_7};

/* The entry whose handler it is; ENTRIES_MAX: none. */
static uint32_t own_entry(const struct sys_action *action) {
  for (uint32_t i = 0; i < entries.count; i++) {
    if (action->handler == (void *)handlers[i]) return i;
  }
  return ENTRIES_MAX;
}

static bool is_same(const struct sys_action *a, const struct sys_action *b) {
  return a->handler == b->handler && a->flags == b->flags && a->mask == b->mask;
}

/* F1: the number of the handler for what follows; ENTRIES_MAX: there is none left. */
static uint32_t entry_for(const struct sys_action *next) {
  uint32_t number = 0;
  while (number < entries.count && !is_same(&entries.next[number], next)) number++;
  if (number == entries.count && number < ENTRIES_MAX) {
    entries.next[number] = *next;
    __atomic_store_n(&entries.count, number + 1, __ATOMIC_RELEASE);
  }
  return number;
}

/* F2: the flags of the program's handler; where there is none, none but ours. */
static struct sys_action action_of(uint32_t number) {
  const struct sys_action *next = &entries.next[number];
  struct sys_action action = {.handler = (void *)handlers[number], .flags = SYS_ACTION_TELLS | SYS_ACTION_OWN_STACK};
  if (has_handler(next)) {
    action.flags = next->flags | SYS_ACTION_TELLS;
    action.mask = next->mask;
  }
  sys_return_from_handler_here(&action);
  return action;
}

/* The caches lock is held. */
static bool come_first(void) {
  struct sys_action now;
  if (!sys_fault_action(NULL, &now)) return false;
  for (int i = 0; i < WATCH_TRIES; i++) {
    struct sys_action before;
    uint32_t number = own_entry(&now);
    if (number == ENTRIES_MAX) number = entry_for(&now);
    if (number == ENTRIES_MAX) return false;
    struct sys_action action = action_of(number);
    /* libc may have set it, to return to its own code; signal(3) without what tells of the fault */
    if (is_same(&action, &now) && action.return_to == now.return_to) return true;
    if (!sys_fault_action(&action, &before)) return false;
    if (is_same(&before, &now)) return true;
    now = before; /* the program set another just now, which is to be next */
  }
  return false;
}

bool fault_watch(fault_watcher *wanted) {
  __atomic_store_n(&watcher, wanted, __ATOMIC_RELEASE);
  cache_lock_owners();
  bool first = rights_have(RIGHT_OTHERS) && come_first();
  cache_unlock_owners();
  return first;
}
