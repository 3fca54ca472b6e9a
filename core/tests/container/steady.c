/* Fills memory with live blocks, then allocates and frees at a steady rate for some seconds: what a server does whose
 * live memory is close to the limit of its container. Prints what that cost, and what was swapped before and after:
 *
 *   {"faults":N,"major_faults":N,"cpu_us":N,"rounds":N,"swapped_kib":N,"swapped_after_kib":N}
 *
 *   steady PATTERN LIVE_MIB SECONDS
 */
#include "filled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define SECOND_NS 1000000000LL

enum {
  LIVE_BYTES = 3000,
  BATCH_MAX = 8192,
  TOUCHED = 20,
  BUFFERS = 4,
  BUFFER_BYTES = 200 * 1024,
  MAPPING_BYTES = 1536 * 1024
};

static char **live; /* blocks that stay */
static size_t live_count;

static unsigned random_number(void) {
  static unsigned state = 7;
  return (state = state * 1664525 + 1013904223) >> 8;
}

/* So many bytes in blocks of 100 to 3,000 bytes, all freed at the end. */
static void batch(size_t bytes) {
  static void *blocks[BATCH_MAX];
  size_t count = 0;
  while (bytes != 0 && count < BATCH_MAX) {
    size_t size_bytes = 100 + random_number() % 2900;
    if (size_bytes > bytes) size_bytes = bytes;
    blocks[count++] = filled(size_bytes);
    bytes -= size_bytes;
  }
  while (count != 0) free(blocks[--count]);
}

static void requests(void) { batch(2 * MIB); }

/* The same, and some live blocks are looked at. */
static void work(void) {
  for (int i = 0; i < TOUCHED && live_count != 0; i++) live[random_number() % live_count][0]++;
  batch(2 * MIB);
}

static void bursts(void) { batch(3 * MIB); }

static void buffers(void) {
  void *blocks[BUFFERS];
  for (int i = 0; i < BUFFERS; i++) blocks[i] = filled(BUFFER_BYTES);
  for (int i = 0; i < BUFFERS; i++) free(blocks[i]);
}

static void mappings(void) { free(filled(MAPPING_BYTES)); }

/* What was small is needed for large blocks, and the other way round. */
static void turns(void) {
  static int turn;
  turn++ % 2 == 0 ? batch(3 * MIB) : mappings();
}

/* All goes, and the program lives on with next to nothing. */
static void garbage(void) {
  while (live_count != 0) free(live[--live_count]);
  for (int i = 0; i < 500; i++) free(filled(BUFFER_BYTES));
}

static const struct pattern {
  const char *name;
  void (*round)(void);
  long long period_ns;
} patterns[] = {
    {"requests", requests, 10000000}, {"work", work, 10000000},         {"bursts", bursts, 300000000},
    {"buffers", buffers, 5000000},    {"mappings", mappings, 10000000}, {"turns", turns, 20000000},
    {"garbage", garbage, 100000000},
};

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void sleep_until(long long moment_ns) {
  struct timespec moment = {moment_ns / SECOND_NS, moment_ns % SECOND_NS};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
}

static long cpu_us(const struct rusage *usage) {
  return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000L + usage->ru_utime.tv_usec +
         usage->ru_stime.tv_usec;
}

static long swapped_kib(void) {
  char line[256];
  long kib = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (sscanf(line, "VmSwap: %ld", &kib) == 1) break;
  }
  if (status != NULL) fclose(status);
  return kib;
}

/* A steady number of rounds, whatever they take. */
static void run(const struct pattern *pattern, long long seconds) {
  long rounds = (long)(seconds * SECOND_NS / pattern->period_ns);
  struct rusage before, after;
  long swapped = swapped_kib();
  long long start_ns = now_ns();
  getrusage(RUSAGE_SELF, &before);
  for (long i = 0; i < rounds; i++) {
    pattern->round();
    sleep_until(start_ns + (i + 1) * pattern->period_ns);
  }
  getrusage(RUSAGE_SELF, &after);
  printf("{\"faults\":%ld,\"major_faults\":%ld,\"cpu_us\":%ld,\"rounds\":%ld,", after.ru_minflt - before.ru_minflt,
         after.ru_majflt - before.ru_majflt, cpu_us(&after) - cpu_us(&before), rounds);
  printf("\"swapped_kib\":%ld,\"swapped_after_kib\":%ld}\n", swapped, swapped_kib());
}

int main(int argc, char **argv) {
  size_t count = argc == 4 ? (size_t)atol(argv[2]) * MIB / LIVE_BYTES : 0;
  live = malloc(count * sizeof *live);
  for (live_count = 0; live_count < count; live_count++) live[live_count] = filled(LIVE_BYTES);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns && argc == 4; i++) {
    if (strcmp(patterns[i].name, argv[1]) != 0) continue;
    run(&patterns[i], atol(argv[3]));
    return 0;
  }
  fputs("usage: steady requests|work|bursts|buffers|mappings|turns|garbage LIVE_MIB SECONDS\n", stderr);
  return 2;
}
