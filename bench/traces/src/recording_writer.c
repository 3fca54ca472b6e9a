/* recording_writer.c: see recording_writer.h. */
#define _GNU_SOURCE
#include "recording_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "recording_path.h"
#include "varint.h"

enum {
  SPARE_CHUNKS_MAX = 64,
  EVENT_BYTES_MAX = 96,      /* a TIME record, two bytes of kinds and six varints at their longest */
  DESTRUCTOR_ROUND_LAST = 4, /* PTHREAD_DESTRUCTOR_ITERATIONS of glibc */
};

/* Which file this process writes. Zero in a child that has none yet (W2). */
struct process_recording {
  _Atomic uint32_t generation; /* 0: no recording is open; else differs from that of every ancestor */
  _Atomic uint32_t lock;       /* guards what follows and the growth of the file */
  struct recording_header *header;
  dev_t device; /* with inode: the path still names the file we made */
  ino_t inode;
  uint32_t spare_count;
  struct recording_chunk *spares[SPARE_CHUNKS_MAX]; /* partly used, left by threads that ended */
  char path[RECORDING_PATH_BYTES_MAX];
};

/* Where this thread writes. */
struct writer {
  uint32_t generation; /* of the process recording that the rest belongs to */
  volatile sig_atomic_t busy;
  bool exited; /* its destructors have run: it borrows a chunk for each event that still comes */
  uint32_t thread;
  struct recording_chunk *chunk;
  uint8_t *cursor;
  uint8_t *end;
  uint64_t last_sequence;
  uint64_t last_address;
  uint64_t last_time_us;
};

static _Thread_local struct writer writer __attribute__((tls_model("initial-exec")));
static struct process_recording unopened; /* stands in until the first event, so that the fast path needs no NULL */
static struct process_recording *_Atomic process = &unopened;
static _Atomic uint32_t last_generation; /* survives fork, unlike process->generation */
static _Atomic bool stopped;
static pthread_key_t exit_key; /* runs thread_exits */
static _Atomic bool exit_key_made;

static void lock_process(struct process_recording *p) {
  while (atomic_exchange_explicit(&p->lock, 1, memory_order_acquire)) sched_yield();
}

static void unlock_process(struct process_recording *p) { atomic_store_explicit(&p->lock, 0, memory_order_release); }

static void stop_recording(const char *path, const char *what) {
  char line[RECORDING_PATH_BYTES_MAX + 160];
  int length = snprintf(line, sizeof line, "snug-record: cannot %s %s: %s; PID %d is not recorded any further\n", what,
                        path, strerrordesc_np(errno), (int)getpid());
  atomic_store(&stopped, true);
  if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0) return; /* nobody to tell */
}

/* Maps `size_bytes` of the recording at `offset`, making the file that long. The space is reserved before it is
 * written, because a full disk would end the program by SIGBUS. */
static void *map_file_part(int descriptor, off_t offset, size_t size_bytes) {
  struct rlimit limit; /* going beyond it would end the program by SIGXFSZ */
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && (rlim_t)offset + size_bytes > limit.rlim_cur) {
    errno = EFBIG;
    return NULL;
  }
  if (fallocate(descriptor, 0, offset, (off_t)size_bytes) != 0 &&
      (errno == ENOSPC || errno == EFBIG || ftruncate(descriptor, offset + (off_t)size_bytes) != 0))
    return NULL;
  void *part = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, offset);
  if (part == MAP_FAILED) return NULL;
  madvise(part, size_bytes, MADV_DONTFORK); /* a child has nothing to seek there; failing is harmless (W2) */
  return part;
}

/* Makes the page that children find zeroed. */
static struct process_recording *make_process_page(void) {
  size_t size_bytes = (sizeof(struct process_recording) + 65535) & ~(size_t)65535;
  void *page = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (madvise(page, size_bytes, MADV_WIPEONFORK) != 0) {
    munmap(page, size_bytes);
    return NULL;
  }
  struct process_recording *expected = &unopened;
  if (!atomic_compare_exchange_strong(&process, &expected, page))
    munmap(page, size_bytes); /* another thread was first */
  return atomic_load(&process);
}

static void thread_exits(void *round);

static bool start_file(struct process_recording *p, int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return false;
  struct recording_header *header = map_file_part(descriptor, 0, RECORDING_HEADER_BYTES);
  if (!header) return false;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  header->version = RECORDING_VERSION;
  header->chunk_bytes = RECORDING_CHUNK_BYTES;
  header->pid = (uint32_t)getpid();
  header->parent_pid = (uint32_t)getppid();
  header->start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  memcpy(header->magic, RECORDING_MAGIC, sizeof header->magic);
  p->device = status.st_dev;
  p->inode = status.st_ino;
  p->header = header;
  return true;
}

/* Opens the recording of this process. Called under the lock. */
static bool open_recording(struct process_recording *p) {
  int descriptor = recording_path_create(p->path, sizeof p->path);
  if (descriptor < 0) {
    stop_recording(p->path, "create the recording");
    return false;
  }
  bool started = start_file(p, descriptor);
  if (!started) stop_recording(p->path, "write the recording");
  close(descriptor);
  if (!started) return false;
  if (!atomic_load(&exit_key_made) && pthread_key_create(&exit_key, thread_exits) == 0)
    atomic_store(&exit_key_made, true);
  atomic_store_explicit(&p->generation, atomic_fetch_add(&last_generation, 1) + 1, memory_order_release);
  return true;
}

/* Appends a chunk to the file. Called under the lock. */
static struct recording_chunk *append_chunk(struct process_recording *p) {
  uint32_t number = atomic_load(&p->header->chunk_count);
  int descriptor = open(p->path, O_RDWR | O_CLOEXEC);
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    stop_recording(p->path, "open again the recording");
    if (descriptor >= 0) close(descriptor);
    return NULL;
  }
  struct recording_chunk *chunk = NULL;
  if (status.st_dev != p->device || status.st_ino != p->inode)
    errno = ESTALE; /* replaced by somebody else's file */
  else
    chunk = map_file_part(descriptor, RECORDING_HEADER_BYTES + (off_t)number * RECORDING_CHUNK_BYTES,
                          RECORDING_CHUNK_BYTES);
  if (chunk)
    atomic_store(&p->header->chunk_count, number + 1);
  else
    stop_recording(p->path, "extend the recording");
  close(descriptor);
  return chunk;
}

static void put_kind(enum record_kind kind) { *writer.cursor++ = (uint8_t)kind; }

static void publish(void) {
  atomic_store_explicit(&writer.chunk->used_bytes, (uint32_t)(writer.cursor - writer.chunk->records),
                        memory_order_release);
}

/* Gives this thread a chunk with room for an event, and starts a segment in it. */
static bool take_chunk(struct process_recording *p) {
  lock_process(p);
  struct recording_chunk *chunk = p->spare_count ? p->spares[--p->spare_count] : append_chunk(p);
  unlock_process(p);
  writer.chunk = chunk;
  if (!chunk) return false;
  writer.cursor = chunk->records + atomic_load(&chunk->used_bytes);
  writer.end = (uint8_t *)chunk + RECORDING_CHUNK_BYTES;
  writer.last_sequence = writer.last_address = writer.last_time_us = 0;
  put_kind(RECORD_SEGMENT);
  writer.cursor = put_varint(writer.cursor, writer.thread);
  publish();
  return true;
}

/* Leaves the chunk to the next thread that needs one, if it is worth it. */
static void leave_chunk(struct process_recording *p) {
  struct recording_chunk *chunk = writer.chunk;
  writer.chunk = NULL;
  if (!chunk) return;
  bool kept = false;
  if (writer.end - writer.cursor > 4 * EVENT_BYTES_MAX) {
    lock_process(p);
    kept = p->spare_count < SPARE_CHUNKS_MAX;
    if (kept) p->spares[p->spare_count++] = chunk;
    unlock_process(p);
  }
  if (!kept) munmap(chunk, RECORDING_CHUNK_BYTES);
}

/* Joins this thread to the recording of its process, opening it first if need be. */
static bool attach_thread(void) {
  struct process_recording *p = atomic_load(&process);
  if (p == &unopened && !(p = make_process_page())) {
    stop_recording("of this process", "make a recording (Linux 4.14 or later is needed)");
    return false;
  }
  lock_process(p);
  bool open = atomic_load(&p->generation) != 0 || open_recording(p);
  unlock_process(p);
  if (!open) return false;
  writer.generation = atomic_load(&p->generation);
  writer.chunk = NULL;
  writer.exited = false;
  writer.thread = atomic_fetch_add(&p->header->thread_count, 1);
  if (atomic_load(&exit_key_made)) pthread_setspecific(exit_key, (void *)1);
  return true;
}

/* The rest of enter(): this thread is not attached yet, or its chunk is full or was left. */
static bool prepare_writer(struct process_recording *p) {
  int saved_errno = errno;
  bool ready = !atomic_load(&stopped);
  if (ready && (writer.generation == 0 || writer.generation != atomic_load(&p->generation))) {
    ready = attach_thread();
    p = atomic_load(&process);
  }
  if (ready && writer.chunk && writer.end - writer.cursor < EVENT_BYTES_MAX) {
    munmap(writer.chunk, RECORDING_CHUNK_BYTES);
    writer.chunk = NULL;
  }
  if (ready && !writer.chunk) ready = take_chunk(p);
  errno = saved_errno;
  return ready;
}

/* Claims the thread's writer for one event; false: the event is not recorded. */
static bool enter(void) {
  struct process_recording *p = atomic_load_explicit(&process, memory_order_relaxed);
  uint32_t generation = atomic_load_explicit(&p->generation, memory_order_acquire);
  if (writer.busy) { /* a signal handler, or pthread_setspecific of this file, allocates */
    if (generation) atomic_fetch_add_explicit(&p->header->lost_events, 1, memory_order_relaxed);
    return false;
  }
  writer.busy = 1;
  atomic_signal_fence(memory_order_seq_cst);
  if (generation && writer.generation == generation && writer.chunk && writer.end - writer.cursor >= EVENT_BYTES_MAX)
    return true;
  if (prepare_writer(p)) return true;
  writer.busy = 0;
  return false;
}

static void leave(void) {
  if (writer.exited) leave_chunk(atomic_load(&process));
  atomic_signal_fence(memory_order_seq_cst);
  writer.busy = 0;
}

/* A thread's destructors run in rounds while any of them sets its key again. This one waits for the last round,
 * because others free blocks. */
static void thread_exits(void *round) {
  uintptr_t next_round = (uintptr_t)round + 1;
  if (next_round <= DESTRUCTOR_ROUND_LAST) {
    pthread_setspecific(exit_key, (void *)next_round);
    return;
  }
  if (!enter()) return;
  put_kind(RECORD_EXIT);
  publish();
  writer.exited = true;
  leave();
}

static uint64_t draw(void) {
  struct process_recording *p = atomic_load_explicit(&process, memory_order_relaxed);
  return atomic_fetch_add_explicit(&p->header->sequence_count, 1, memory_order_relaxed) + 1; /* 1 is the first */
}

static void put_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  struct process_recording *p = atomic_load_explicit(&process, memory_order_relaxed);
  uint64_t time_us = ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - p->header->start_ns) / 1000;
  if (time_us <= writer.last_time_us) return;
  put_kind(RECORD_TIME);
  writer.cursor = put_varint(writer.cursor, time_us - writer.last_time_us);
  writer.last_time_us = time_us;
}

static void put_event(enum record_kind kind, uint64_t sequence, const void *block) {
  put_time();
  uint64_t step = sequence - writer.last_sequence - 1;
  writer.last_sequence = sequence;
  if (step < RECORDING_SEQUENCE_ESCAPE) {
    *writer.cursor++ = (uint8_t)(step << 4 | kind);
  } else {
    *writer.cursor++ = (uint8_t)(RECORDING_SEQUENCE_ESCAPE << 4 | kind);
    writer.cursor = put_varint(writer.cursor, step - RECORDING_SEQUENCE_ESCAPE);
  }
  uint64_t address = (uintptr_t)block >> RECORDING_ADDRESS_SHIFT;
  writer.cursor = put_varint(writer.cursor, fold_sign((int64_t)(address - writer.last_address)));
  writer.last_address = address;
}

uint64_t recording_draw_sequence(void) {
  if (!enter()) return 0;
  uint64_t sequence = draw();
  leave();
  return sequence;
}

void recording_allocated(enum record_kind kind, const void *block, size_t size_bytes, unsigned alignment_log2) {
  if (!enter()) return;
  put_event(kind, draw(), block);
  writer.cursor = put_varint(writer.cursor, size_bytes);
  if (kind == RECORD_ALIGNED) writer.cursor = put_varint(writer.cursor, alignment_log2);
  publish();
  leave();
}

void recording_freed(const void *block) {
  if (!enter()) return;
  put_event(RECORD_FREE, draw(), block);
  publish();
  leave();
}

void recording_reallocated(uint64_t sequence, const void *old_block, const void *block, size_t size_bytes) {
  if (sequence == 0 || !enter()) return;
  uint64_t sequence_end = draw();
  put_event(RECORD_REALLOC, sequence, block);
  uint64_t old_address = (uintptr_t)old_block >> RECORDING_ADDRESS_SHIFT;
  writer.cursor = put_varint(writer.cursor, size_bytes);
  writer.cursor = put_varint(writer.cursor, fold_sign((int64_t)(old_address - writer.last_address)));
  writer.cursor = put_varint(writer.cursor, sequence_end - sequence - 1);
  writer.last_sequence = sequence_end;
  publish();
  leave();
}
