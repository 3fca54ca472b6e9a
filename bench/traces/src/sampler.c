/* sampler.c: see sampler.h. */
#define _GNU_SOURCE
#include "sampler.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "own_memory.h"
#include "snug.h"
#include "snug_counters.h"

const char *const resident_part_names[PART_COUNT] = {
    "live_requested", "rounding", "slab_free", "cached", "dirty", "metadata", "rest",
};

static int (*find_snug_stats(void))(struct snug_stats *, size_t) {
  int (*function)(struct snug_stats *, size_t);
  void *symbol = dlsym(RTLD_DEFAULT, "snug_stats");
  memcpy(&function, &symbol, sizeof function); /* ISO C has no cast from object to function */
  return function;
}

static int (*read_snug_stats)(struct snug_stats *, size_t);
static const struct snug_counters *snug_page; /* of the snug that is loaded, if we know its layout */

static const struct snug_counters *find_snug_page(void) {
  const struct snug_counters *page = dlsym(RTLD_DEFAULT, "snug_counters");
  if (!page || memcmp(page->magic, SNUG_COUNTERS_MAGIC, sizeof page->magic) != 0 ||
      page->version != SNUG_COUNTERS_VERSION)
    return NULL;
  return page;
}

void sampler_start(struct sampler *sampler, uint32_t capacity) {
  read_snug_stats = find_snug_stats();
  snug_page = find_snug_page();
  *sampler = (struct sampler){
      .statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC),
      .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE),
      .samples = own_memory_resident(capacity * sizeof(struct sample)),
      .sample_capacity = capacity,
      .has_parts = read_snug_stats != NULL,
  };
  if (sampler->statm < 0) {
    dprintf(STDERR_FILENO, "snug-replay: cannot read /proc/self/statm: %s; mount /proc\n", strerrordesc_np(errno));
    _exit(1);
  }
}

static int64_t resident_bytes(const struct sampler *sampler) {
  char text[128] = "";
  unsigned long long total_pages, resident_pages;
  if (pread(sampler->statm, text, sizeof text - 1, 0) <= 0 ||
      sscanf(text, "%llu %llu", &total_pages, &resident_pages) != 2)
    return 0;
  return (int64_t)(resident_pages * sampler->page_bytes);
}

void sampler_take_base(struct sampler *sampler) {
  int descriptor = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    if (write(descriptor, "5", 1) < 0) /* forget VmHWM; sampler_peak_bytes does without it if it must */
      errno = 0;
    close(descriptor);
  }
  sampler_look(sampler, 0, 0); /* once for nothing, so that what looking itself needs is in the base */
  sampler->base_bytes = resident_bytes(sampler);
}

static void look_into_snug(struct sample *sample) {
  struct snug_stats stats;
  if (read_snug_stats(&stats, sizeof stats) != 0) return;
  int64_t *parts = sample->parts;
  parts[PART_LIVE_REQUESTED] = (int64_t)sample->live_bytes;
  parts[PART_ROUNDING] = (int64_t)stats.live_allocated_bytes - (int64_t)sample->live_bytes;
  /* Free slots whose whole page was given back are free, but not resident. */
  parts[PART_SLAB_FREE] = (int64_t)stats.slab_free_bytes;
  parts[PART_CACHED] = (int64_t)stats.cached_bytes;
  parts[PART_DIRTY] = (int64_t)stats.dirty_bytes;
  parts[PART_METADATA] = (int64_t)stats.metadata_bytes;
  parts[PART_REST] = sample->resident_bytes;
  for (int part = 0; part < PART_REST; part++) parts[PART_REST] -= parts[part];
}

struct sample sampler_look(const struct sampler *sampler, uint64_t time_us, uint64_t live_bytes) {
  struct sample sample = {
      .time_us = time_us,
      .resident_bytes = resident_bytes(sampler) - sampler->base_bytes,
      .live_bytes = live_bytes,
  };
  if (sampler->has_parts) look_into_snug(&sample);
  return sample;
}

void sampler_take(struct sampler *sampler, uint64_t time_us, uint64_t live_bytes) {
  if (sampler->sample_count < sampler->sample_capacity)
    sampler->samples[sampler->sample_count++] = sampler_look(sampler, time_us, live_bytes);
}

int64_t sampler_peak_bytes(const struct sampler *sampler) {
  int64_t peak_bytes = 0;
  for (uint32_t i = 0; i < sampler->sample_count; i++) {
    if (sampler->samples[i].resident_bytes > peak_bytes) peak_bytes = sampler->samples[i].resident_bytes;
  }
  char text[4096] = "";
  int descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return peak_bytes;
  ssize_t length = read(descriptor, text, sizeof text - 1);
  close(descriptor);
  const char *line = length > 0 ? strstr(text, "VmHWM:") : NULL;
  int64_t kernel_bytes = line ? strtoll(line + 6, NULL, 10) * 1024 - sampler->base_bytes : 0;
  return kernel_bytes > peak_bytes ? kernel_bytes : peak_bytes;
}
