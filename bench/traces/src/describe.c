/* describe.c: see describe.h. */
#include "describe.h"

#include <inttypes.h>

#include "own_memory.h"

enum {
  SIZE_ROWS = 28, /* up to 16 bytes, then one per doubling; the last takes all above */
  SIZE_ROW_LOG2_FIRST = 4,
  TIME_ROWS = 6,
  COUNT_ROWS = 6,
};

/* Upper ends of the rows of lifetimes; the last row is unbounded. Recorded time is coarse: some 4 ms. */
static const uint64_t time_row_us[TIME_ROWS - 1] = {5000, 50000, 500000, 5000000, 50000000};
static const char *const time_row_names[TIME_ROWS] = {"5 ms", "50 ms", "0.5 s", "5 s", "50 s", "more"};
static const uint64_t count_row[COUNT_ROWS - 1] = {16, 256, 4096, 65536, 1048576};
static const char *const count_row_names[COUNT_ROWS] = {"16", "256", "4,096", "65,536", "1,048,576", "more"};

struct size_row {
  uint64_t allocations;
  uint64_t requested_bytes;
  uint64_t live_bytes;
  uint64_t live_blocks;
  double live_byte_us; /* integrals over time */
  double live_block_us;
};

struct live_block {
  uint64_t size_bytes;
  uint64_t born_us;
  uint64_t born_number;
  uint32_t thread; /* its count among all threads ever started */
};

struct description {
  struct live_block *blocks; /* by slot */
  uint32_t *threads;         /* by thread number: count of the thread that has it, 0 if none */
  uint32_t threads_started;
  uint64_t time_us;
  uint64_t number; /* of allocations so far */
  uint64_t frees, foreign_frees;
  uint64_t reallocs, foreign_reallocs;
  uint64_t kinds[8];
  struct size_row sizes[SIZE_ROWS];
  uint64_t lifetimes_us[TIME_ROWS];
  uint64_t lifetimes_count[COUNT_ROWS];
};

static int size_row_of(uint64_t size_bytes) {
  if (size_bytes <= (uint64_t)1 << SIZE_ROW_LOG2_FIRST) return 0;
  int row = 64 - __builtin_clzll(size_bytes - 1) - SIZE_ROW_LOG2_FIRST;
  return row < SIZE_ROWS ? row : SIZE_ROWS - 1;
}

static int row_of(uint64_t value, const uint64_t *ends, int row_count) {
  int row = 0;
  while (row < row_count - 1 && value > ends[row]) row++;
  return row;
}

static uint32_t thread_of(struct description *d, const struct event *event) {
  uint32_t *thread = &d->threads[event->thread];
  if (*thread == 0) *thread = ++d->threads_started;
  return *thread;
}

static void note_death(struct description *d, const struct live_block *block) {
  struct size_row *row = &d->sizes[size_row_of(block->size_bytes)];
  row->live_bytes -= block->size_bytes;
  row->live_blocks--;
  d->lifetimes_us[row_of(d->time_us - block->born_us, time_row_us, TIME_ROWS)]++;
  d->lifetimes_count[row_of(d->number - block->born_number, count_row, COUNT_ROWS)]++;
}

static void note_birth(struct description *d, const struct event *event, uint32_t thread) {
  struct size_row *row = &d->sizes[size_row_of(event->size_bytes)];
  row->allocations++;
  row->requested_bytes += event->size_bytes;
  row->live_bytes += event->size_bytes;
  row->live_blocks++;
  d->blocks[event->slot] = (struct live_block){
      .size_bytes = event->size_bytes, .born_us = d->time_us, .born_number = d->number++, .thread = thread};
}

static void note_event(struct description *d, const struct event *event) {
  d->kinds[event->kind]++;
  if (event->kind == EVENT_TIME) {
    double step_us = (double)(event->size_bytes - d->time_us);
    for (int row = 0; row < SIZE_ROWS; row++) {
      d->sizes[row].live_byte_us += step_us * (double)d->sizes[row].live_bytes;
      d->sizes[row].live_block_us += step_us * (double)d->sizes[row].live_blocks;
    }
    d->time_us = event->size_bytes;
    return;
  }
  uint32_t thread = thread_of(d, event);
  if (event->kind == EVENT_END) {
    d->threads[event->thread] = 0;
    return;
  }
  const struct live_block *block = &d->blocks[event->slot];
  if (event->kind == EVENT_FREE) {
    d->frees++;
    d->foreign_frees += block->thread != thread;
    note_death(d, block);
    return;
  }
  if (event->kind == EVENT_REALLOC) {
    d->reallocs++;
    d->foreign_reallocs += block->thread != thread;
    note_death(d, block);
  }
  note_birth(d, event, thread);
}

static double percent(double part, double whole) { return whole > 0 ? 100.0 * part / whole : 0.0; }

static void size_name(char *text, size_t text_bytes, int row) {
  uint64_t end = (uint64_t)1 << (row + SIZE_ROW_LOG2_FIRST);
  if (row == SIZE_ROWS - 1)
    snprintf(text, text_bytes, "more");
  else if (end < 1024)
    snprintf(text, text_bytes, "%" PRIu64 " B", end);
  else if (end < 1048576)
    snprintf(text, text_bytes, "%" PRIu64 " KiB", end >> 10);
  else
    snprintf(text, text_bytes, "%" PRIu64 " MiB", end >> 20);
}

static void print_sizes(const struct description *d, const struct trace *trace, FILE *out) {
  double byte_us = 0, block_us = 0;
  for (int row = 0; row < SIZE_ROWS; row++) {
    byte_us += d->sizes[row].live_byte_us;
    block_us += d->sizes[row].live_block_us;
  }
  fprintf(out,
          "\nsize up to   allocations            bytes   live, mean over time\n"
          "                   count      %%        %%   MB bytes %%  blocks %%\n");
  for (int row = 0; row < SIZE_ROWS; row++) {
    const struct size_row *size = &d->sizes[row];
    if (size->allocations == 0) continue;
    char name[16];
    size_name(name, sizeof name, row);
    double mean_mb = d->time_us ? size->live_byte_us / (double)d->time_us / 1e6 : 0;
    fprintf(out, "%10s %13" PRIu64 " %6.2f %8.2f %7.2f %5.1f %8.1f\n", name, size->allocations,
            percent((double)size->allocations, (double)trace->summary.allocation_count),
            percent((double)size->requested_bytes, (double)trace->summary.requested_bytes), mean_mb,
            percent(size->live_byte_us, byte_us), percent(size->live_block_us, block_us));
  }
}

static void print_lifetimes(const struct description *d, FILE *out) {
  uint64_t ended = 0;
  for (int row = 0; row < TIME_ROWS; row++) ended += d->lifetimes_us[row];
  fprintf(out, "\nlifetime of freed blocks, %%\n  up to      ");
  for (int row = 0; row < TIME_ROWS; row++) fprintf(out, " %9s", time_row_names[row]);
  fprintf(out, "\n  by time    ");
  for (int row = 0; row < TIME_ROWS; row++)
    fprintf(out, " %9.2f", percent((double)d->lifetimes_us[row], (double)ended));
  fprintf(out, "\n  up to      ");
  for (int row = 0; row < COUNT_ROWS; row++) fprintf(out, " %9s", count_row_names[row]);
  fprintf(out, "\n  allocations");
  for (int row = 0; row < COUNT_ROWS; row++)
    fprintf(out, " %9.2f", percent((double)d->lifetimes_count[row], (double)ended));
  fprintf(out, "\n");
}

static void print_totals(const struct description *d, const struct trace *trace, FILE *out) {
  const struct trace_summary *summary = &trace->summary;
  double byte_us = 0;
  for (int row = 0; row < SIZE_ROWS; row++) byte_us += d->sizes[row].live_byte_us;
  fprintf(out, "duration          %.3f s\n", (double)summary->duration_us / 1e6);
  fprintf(out, "threads           %" PRIu32 " started, %" PRIu32 " at once\n", d->threads_started, trace->thread_count);
  fprintf(out,
          "calls             %" PRIu64 ": malloc %" PRIu64 ", calloc %" PRIu64 ", aligned %" PRIu64 ", realloc %" PRIu64
          ", free %" PRIu64 "\n",
          summary->call_count, d->kinds[EVENT_MALLOC], d->kinds[EVENT_CALLOC], d->kinds[EVENT_ALIGNED],
          d->kinds[EVENT_REALLOC], d->kinds[EVENT_FREE]);
  fprintf(out, "requested         %.1f MB in %" PRIu64 " allocations of %.0f bytes on average\n",
          (double)summary->requested_bytes / 1e6, summary->allocation_count,
          summary->allocation_count ? (double)summary->requested_bytes / (double)summary->allocation_count : 0.0);
  fprintf(out, "live              mean %.1f MB, peak %.1f MB, at the end %.1f MB in %" PRIu64 " blocks\n",
          summary->duration_us ? byte_us / (double)summary->duration_us / 1e6 : 0.0,
          (double)summary->peak_live_bytes / 1e6, (double)summary->end_live_bytes / 1e6, summary->end_live_blocks);
  fprintf(out, "cross-thread      %.1f %% of frees, %.1f %% of reallocs\n",
          percent((double)d->foreign_frees, (double)d->frees),
          percent((double)d->foreign_reallocs, (double)d->reallocs));
}

void describe_trace(const struct trace *trace, FILE *out) {
  size_t blocks_bytes = trace->slot_count * sizeof(struct live_block);
  size_t threads_bytes = trace->thread_count * sizeof(uint32_t);
  struct description description = {
      .blocks = own_memory_reserve(blocks_bytes),
      .threads = own_memory_reserve(threads_bytes),
  };
  for (uint64_t i = 0; i < trace->event_count; i++) note_event(&description, &trace->events[i]);
  print_totals(&description, trace, out);
  print_sizes(&description, trace, out);
  print_lifetimes(&description, out);
  own_memory_release(description.threads, threads_bytes);
  own_memory_release(description.blocks, blocks_bytes);
}
