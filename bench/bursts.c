/* bursts.c: so many megabytes are allocated, written and freed, then the program pauses. Prints, of the last two thirds
 * of the bursts, CPU time and page faults each, and how long after the last one the memory was back.
 *
 *   bursts MEGABYTES SMALLEST LARGEST COUNT PAUSE_MS
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS_MAX = 1000000, WAIT_MS = 12000, LOOK_MS = 100 };

static char *blocks[BLOCKS_MAX];

static struct rusage usage(void) {
  struct rusage now;
  getrusage(RUSAGE_SELF, &now);
  return now;
}

static double cpu_ms(const struct rusage *used) {
  return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1e3 +
         (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e3;
}

/* Without stdio, which allocates: the program must be idle. */
static double resident_mb(void) {
  char text[128], *end;
  int file = open("/proc/self/statm", O_RDONLY);
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  strtol(text, &end, 10);
  return (double)strtol(end, NULL, 10) * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static void pause_for(long ms) {
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static void burst(double megabytes, size_t smallest, size_t largest) {
  static uint64_t random = 88172645463325252u; /* xorshift64, Marsaglia */
  size_t count = 0;
  for (double left = megabytes * 1e6; left > 0 && count < BLOCKS_MAX; count++) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    size_t size_bytes = smallest + random % (largest - smallest + 1);
    blocks[count] = malloc(size_bytes);
    if (blocks[count] == NULL) exit(1);
    memset(blocks[count], 1, size_bytes);
    left -= (double)size_bytes;
  }
  while (count > 0) free(blocks[--count]);
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: bursts MEGABYTES SMALLEST LARGEST COUNT PAUSE_MS\n");
    return 2;
  }
  double megabytes = atof(argv[1]);
  size_t smallest = strtoul(argv[2], NULL, 10), largest = strtoul(argv[3], NULL, 10);
  int count = atoi(argv[4]);
  struct rusage before = usage();
  for (int i = 0; i < count; i++) {
    if (i == count / 3) before = usage();
    burst(megabytes, smallest, largest);
    pause_for(atoi(argv[5]));
  }
  struct rusage after = usage();
  double last_mb = resident_mb();
  long waited_ms = 0;
  for (; waited_ms < WAIT_MS && resident_mb() > megabytes / 10 + 4; waited_ms += LOOK_MS) pause_for(LOOK_MS);
  int counted = count - count / 3;
  printf("%.3f %.0f %.1f %.1f %.1f\n", (cpu_ms(&after) - cpu_ms(&before)) / counted,
         (double)(after.ru_minflt - before.ru_minflt) / counted, last_mb, (double)waited_ms / 1e3, resident_mb());
  return 0;
}
