/* door.pml: the door of a cache (cache.h: C1, C4, C6; steal.c). Can an owner and a thief be in it at once? Is a
 * block ever lost, or given twice? Is a call to its owner forgotten?
 *
 * One cache of two bins. A thread has it, which does OPERATIONS mallocs and frees of any class and then stays, or
 * ends (ENDS) with or without a word. A thief comes ROUNDS times. There may be, too, a thread that takes the cache
 * over when it is free (SUCCESSOR), a signal handler at any instant of the first (HANDLER), and one that calls
 * owners in (CALLER). Blocks are counted, not told apart: one that is lost or given twice makes the sum wrong. The
 * handler is in another bin than the fast path that it interrupted, for its own class is a limit, and amid a slow
 * path it allocates beside the heap (docs/decisions/0048). What happens under a lock of slabs is one step.
 *
 * Each of these leaves out what the real one has, and must fail: WITHOUT_BARRIER (in the thief), WITHOUT_RELEASE
 * (when an owner leaves a bin), WITHOUT_C6, ONE_BUSY (for all bins), OPENS_ALL_DOORS (the thief, also one that it
 * has not shut). */
#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define BLOCKS 12 /* of each class, one of them with the program at first */

/* Words of the cache. */
#define DOOR 0 /* 1: its own cache, 0: the empty one */
#define DOOR_BUSY 1
#define TOP(bin) (2 + (bin))
#ifdef ONE_BUSY
#define BUSY(bin) 4
#else
#define BUSY(bin) (4 + (bin))
#endif
#define WORDS 6

#define FIRST 0
#define SECOND 1
#define THIEF 2
#define CALLS 3
#define THREADS 4

#include "memory.pml"

#define NOBODY 255
byte owners_lock = NOBODY; /* the caches lock */
bool in_use;
byte slab[2] = { 11, 11 };
byte with_program[2] = { 1, 1 }; /* blocks; what is being freed is not */
bool is_gone;                    /* the first thread, without a word */
bool is_called;                  /* and has not come in */

/* How many are in the cache, as far as they know. */
byte owners_in;
bool thief_in;

/* What a thread knows of itself (struct thread), and its handler. */
bool own[2]; /* it has the cache */
bool without[2];
bool door_is_own[2]; /* this_thread.door */
byte inside[2];
byte fast_bin = NOBODY; /* the one in which the first thread's fast path is */
bool handler_runs;
byte running; /* threads and handlers */

inline lock_take(thread) { atomic { owners_lock == NOBODY -> owners_lock = thread } }
inline lock_give(thread) { atomic { IS_EMPTY(thread) -> owners_lock = NOBODY } }

inline goes_in() { owners_in++; assert(!thief_in) }

/* Takes a block of the bin or puts one in, if that can be; the bin is busy. */
inline change_top(thread, bin, takes, done) {
  LOAD(thread, TOP(bin), top);
  if
  :: takes && top > 0 -> RELEASE(thread, TOP(bin), top - 1); with_program[bin]++; done = true
  :: !takes && top < 2 -> RELEASE(thread, TOP(bin), top + 1); done = true
  :: else -> done = false
  fi;
  top = 0
}

inline leave_bin(thread, bin) {
  if
  :: !door_is_own[thread] /* it is the empty cache's, which nobody asks */
#ifdef WITHOUT_RELEASE
  :: else -> STORE(thread, BUSY(bin), 0)
#else
  :: else -> RELEASE(thread, BUSY(bin), 0)
#endif
  fi
}

/* cache_pop_at, cache_push_at */
inline fast_path(thread, bin, takes, done) {
  done = false;
  if
  :: !door_is_own[thread]
  :: atomic { else -> STORE(thread, BUSY(bin), 1) };
     atomic { LOAD(thread, DOOR, door); if :: door -> goes_in() :: else fi };
     if
     :: atomic { door -> change_top(thread, bin, takes, done) };
        atomic { door = 0; owners_in--; leave_bin(thread, bin) }
     :: atomic { else -> leave_bin(thread, bin) }
     fi
  fi
}

/* cache_attach, find_unused */
inline attach(thread) {
  lock_take(thread);
  atomic {
    if
    :: !own[thread] && !in_use ->
       in_use = true;
       STORE(thread, BUSY(0), 0);
       STORE(thread, BUSY(1), 0);
       STORE(thread, DOOR, 0);
       own[thread] = true
    :: else -> goto has_none
    fi
  };
  door_is_own[thread] = true;
has_none:
  atomic {
    if
    :: own[thread] -> STORE(thread, DOOR, 1); is_called = false
    :: else -> without[thread] = true
    fi
  };
  lock_give(thread)
}

/* cache_refill, cache_flush */
inline slow_path(thread, bin, takes, done) {
  inside[thread]++;
  do
  :: without[thread] -> break
  :: !without[thread] && !own[thread] -> attach(thread)
  :: atomic { !without[thread] && own[thread] ->
#ifndef WITHOUT_C6
              door_is_own[thread] = false
#endif
     };
     STORE(thread, DOOR_BUSY, 1);
     atomic { LOAD(thread, DOOR, door); if :: door -> door = 0; goes_in(); break :: else fi };
     RELEASE(thread, DOOR_BUSY, 0);
     door_is_own[thread] = true;
     attach(thread)
  od;
  if
  :: atomic { without[thread] ->
       if
       :: takes -> slab[bin]--; with_program[bin]++
       :: else -> slab[bin]++
       fi
     }
  :: else ->
     atomic {
       LOAD(thread, TOP(bin), top);
       if
       :: takes && top == 0 -> slab[bin] = slab[bin] - 2; RELEASE(thread, TOP(bin), 2) /* bin_fill */
       :: !takes && top == 2 -> slab[bin] = slab[bin] + 2; RELEASE(thread, TOP(bin), 0) /* bin_give */
       :: else
       fi
     };
     atomic { change_top(thread, bin, takes, done) };
     atomic { owners_in--; RELEASE(thread, DOOR_BUSY, 0) };
     door_is_own[thread] = true
  fi;
  inside[thread]--
}

/* cache_give_all */
inline give_all(thread) {
  atomic { LOAD(thread, TOP(0), top); slab[0] = slab[0] + top; RELEASE(thread, TOP(0), 0) };
  atomic { LOAD(thread, TOP(1), top); slab[1] = slab[1] + top; RELEASE(thread, TOP(1), 0); top = 0 }
}

/* thread_ends: end_cache */
inline end_cache(thread) {
  inside[thread]++;
  lock_take(thread);
  if
  :: own[thread] ->
     own[thread] = false;
     door_is_own[thread] = false;
     atomic { goes_in() };
     give_all(thread);
     owners_in--;
     in_use = false
  :: else
  fi;
  without[thread] = true;
  lock_give(thread);
  inside[thread]--
}

inline choose(bin, takes) {
  if :: bin = 0 :: bin = 1 fi;
  if
  :: takes = true
  :: with_program[bin] > 0 -> with_program[bin]--; takes = false
  fi
}

/* A thread, which its handler stops. */
proctype first() provided (!handler_runs) {
  byte door, top, bin, left = OPERATIONS;
  bool takes, done;
  do
  :: left > 0 ->
     atomic { left--; choose(bin, takes); fast_bin = bin };
     fast_path(FIRST, bin, takes, done);
     fast_bin = NOBODY;
     if :: !done -> slow_path(FIRST, bin, takes, done) :: else fi
  :: else -> break
  od;
#ifdef ENDS
  if
  :: end_cache(FIRST)
  :: atomic { IS_EMPTY(FIRST) -> is_gone = true }
  fi;
#endif
  running--
}

proctype successor() {
  byte door, top, bin;
  bool takes, done;
  atomic { choose(bin, takes) };
  slow_path(SECOND, bin, takes, done);
  end_cache(SECOND);
  running--
}

proctype handler() {
  byte door, top, bin;
  bool takes, done;
  atomic {
    if
    :: is_gone -> goto over
    :: !is_gone -> handler_runs = true
    fi;
    choose(bin, takes);
    if
    :: bin == fast_bin -> /* not this one; what it chose to free stays */
       if :: takes :: else -> with_program[bin]++ fi;
       handler_runs = false;
       goto over
    :: else
    fi
  };
  fast_path(FIRST, bin, takes, done);
  if
  :: !done && inside[FIRST] == 0 -> slow_path(FIRST, bin, takes, done)
  :: !done && inside[FIRST] != 0 -> if :: takes :: else -> with_program[bin]++ fi /* aside: kept for later */
  :: done
  fi;
  handler_runs = false;
over:
  running--
}

/* membarrier: the caller's own comes first (the kernel's smp_mb), then each thread comes through one, then it
 * returns. */
inline barrier() {
#ifndef WITHOUT_BARRIER
  IS_EMPTY(THIEF);
  IS_EMPTY(FIRST);
  IS_EMPTY(SECOND)
#else
  skip
#endif
}

/* steal_from */
proctype thief() {
  byte door, top, busy, sum, rounds = ROUNDS;
  bool shut;
  do
  :: rounds > 0 ->
     lock_take(THIEF);
     if
     :: in_use && own[FIRST] && is_gone -> /* it ended without thread_ends: cache_release */
        atomic { thief_in = true; assert(owners_in == 0) };
        give_all(THIEF);
        atomic { in_use = false; own[FIRST] = false; thief_in = false }
     :: in_use && !(own[FIRST] && is_gone) ->
        atomic { LOAD(THIEF, DOOR, door); shut = door; door = 0; STORE(THIEF, DOOR, 0) };
        barrier();
        LOAD(THIEF, DOOR_BUSY, sum);
        atomic { LOAD(THIEF, BUSY(0), busy); sum = sum + busy };
        atomic { LOAD(THIEF, BUSY(1), busy); sum = sum + busy; busy = 0 };
        if
        :: sum == 0 ->
           atomic { thief_in = true; assert(owners_in == 0) };
           give_all(THIEF);
           thief_in = false
        :: else -> sum = 0
        fi;
        atomic {
          if
#ifdef OPENS_ALL_DOORS
          :: true -> RELEASE(THIEF, DOOR, 1)
#else
          :: shut -> RELEASE(THIEF, DOOR, 1)
#endif
          :: !shut
          fi;
          shut = false
        }
     :: !in_use
     fi;
     lock_give(THIEF);
     rounds--
  :: else -> break
  od;
  running--
}

/* cache_call_in */
proctype caller() {
  lock_take(CALLS);
  atomic { if :: in_use -> STORE(CALLS, DOOR, 0); is_called = true :: else fi };
  lock_give(CALLS);
  running--
}

init {
  atomic {
    run processor(FIRST);
    running = 2;
    run first();
    run processor(THIEF);
    run thief();
#ifdef SUCCESSOR
    run processor(SECOND);
    running++;
    run successor();
#endif
#ifdef HANDLER
    running++;
    run handler();
#endif
#ifdef CALLER
    run processor(CALLS);
    running++;
    run caller()
#endif
  }
  atomic {
    timeout; /* nothing is left to do */
    assert(running == 0);
    assert(slab[0] + memory[TOP(0)] + with_program[0] == BLOCKS);
    assert(slab[1] + memory[TOP(1)] + with_program[1] == BLOCKS);
    assert(owners_lock == NOBODY && owners_in == 0);
    assert(memory[DOOR_BUSY] + memory[BUSY(0)] + memory[BUSY(1)] == 0);
    assert(!in_use || memory[DOOR] == !is_called)
  }
}
