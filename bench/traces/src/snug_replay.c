/* snug_replay.c: the command `snug-replay`. Options are rows of one table; the work is done elsewhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "describe.h"
#include "message.h"
#include "own_memory.h"
#include "recording.h"
#include "replay.h"
#include "report.h"
#include "trace.h"

enum {
  EXIT_USAGE = 2,
  SAMPLES_MAX = 1000000,
  IDLE_MS_MAX = 3600000,
};

struct command {
  const char *trace_path;
  const char *json_path;
  const char *csv_path;
  const char *pack_path;
  bool describe;
  double until_s; /* 0: to the end */
  struct replay_options replay;
};

static const char usage_text[] =
    "usage: snug-replay [OPTIONS] TRACE\n"
    "\n"
    "Does the allocations of a trace again, with whatever malloc is in effect (LD_PRELOAD chooses), and reports\n"
    "time, page faults and resident memory against live bytes. TRACE is a trace, or a recording as\n"
    "libsnug_record.so writes it; --pack makes the one of the other.\n"
    "\n"
    "  --threads 1|all         one thread does everything, or as many as were recorded, one at a time [all]\n"
    "  --speed FACTOR|max      times real time [1]\n"
    "  --touch all|first|none  write every byte of a block, its first, or none [all]\n"
    "  --samples COUNT         looks at memory, evenly over the time of the trace [1000]\n"
    "  --idle MS               wait after the end, then look once more [1500]\n"
    "  --until SECONDS         replay only that much of the trace's time\n"
    "  --verify                check alignment, and that blocks keep their contents (spoils the timing)\n"
    "  --json FILE             write results and samples as JSON (-: to standard output, instead of the report)\n"
    "  --csv FILE              write the samples as CSV\n"
    "  --describe              do not replay: tell sizes, live bytes, lifetimes and cross-thread frees\n"
    "  --pack FILE             do not replay: write TRACE as a compact trace\n"
    "  --help                  this\n";

__attribute__((noreturn)) static void fail_usage(const char *what, const char *value) {
  fprintf(stderr, "snug-replay: %s%s%s\n", what, value ? ": " : "", value ? value : "");
  fprintf(stderr, "Try: snug-replay --help\n");
  exit(EXIT_USAGE);
}

/* A number from `least` to `most`; anything else ends the program. */
static double parse_number(const char *text, double least, double most, const char *what) {
  char *end;
  errno = 0;
  double value = strtod(text, &end);
  if (end == text || *end || errno || !isfinite(value) || value < least || value > most) fail_usage(what, text);
  return value;
}

static enum touch parse_touch(const char *text) {
  if (strcmp(text, "all") == 0) return TOUCH_ALL;
  if (strcmp(text, "first") == 0) return TOUCH_FIRST;
  if (strcmp(text, "none") != 0) fail_usage("--touch takes all, first or none, not", text);
  return TOUCH_NONE;
}

static bool parse_threads(const char *text) {
  if (strcmp(text, "1") != 0 && strcmp(text, "all") != 0) fail_usage("--threads takes 1 or all, not", text);
  return strcmp(text, "all") == 0;
}

static void parse_option(struct command *command, int option, const char *value) {
  struct replay_options *replay = &command->replay;
  switch (option) {
    case 't': replay->with_threads = parse_threads(value); break;
    case 's':
      replay->speed = 0;
      if (strcmp(value, "max") != 0)
        replay->speed = parse_number(value, 1e-3, 1e6, "--speed takes max or 0.001 to 1000000, not");
      break;
    case 'o': replay->touch = parse_touch(value); break;
    case 'n':
      replay->sample_count = (uint32_t)parse_number(value, 1, SAMPLES_MAX, "--samples takes 1 to 1000000, not");
      break;
    case 'i':
      replay->idle_ms = (uint32_t)parse_number(value, 0, IDLE_MS_MAX, "--idle takes 0 to 3600000 ms, not");
      break;
    case 'u': command->until_s = parse_number(value, 1e-3, 1e9, "--until takes seconds, not"); break;
    case 'v': replay->verify = true; break;
    case 'j': command->json_path = value; break;
    case 'c': command->csv_path = value; break;
    case 'd': command->describe = true; break;
    case 'p': command->pack_path = value; break;
    case 'h': fputs(usage_text, stdout); exit(EXIT_SUCCESS);
    default: /* getopt has said what is wrong */ fail_usage("see the options", NULL);
  }
}

static struct command parse_command(int argument_count, char **arguments) {
  static const struct option options[] = {
      {"threads", required_argument, NULL, 't'},
      {"speed", required_argument, NULL, 's'},
      {"touch", required_argument, NULL, 'o'},
      {"samples", required_argument, NULL, 'n'},
      {"idle", required_argument, NULL, 'i'},
      {"until", required_argument, NULL, 'u'},
      {"verify", no_argument, NULL, 'v'},
      {"json", required_argument, NULL, 'j'},
      {"csv", required_argument, NULL, 'c'},
      {"describe", no_argument, NULL, 'd'},
      {"pack", required_argument, NULL, 'p'},
      {"help", no_argument, NULL, 'h'},
      {NULL, 0, NULL, 0},
  };
  struct command command = {
      .replay = {.with_threads = true, .speed = 1, .touch = TOUCH_ALL, .sample_count = 1000, .idle_ms = 1500}};
  int option;
  while ((option = getopt_long(argument_count, arguments, "", options, NULL)) != -1)
    parse_option(&command, option, optarg);
  if (optind != argument_count - 1)
    fail_usage(optind < argument_count ? "one TRACE at a time, not also" : "name the TRACE to replay",
               optind < argument_count ? arguments[optind + 1] : NULL);
  command.trace_path = arguments[optind];
  return command;
}

/* Fails the program if a file was refused. */
static void check(bool done, const char *path, const char *message) {
  if (done) return;
  fprintf(stderr, "snug-replay: %s: %s\n", path, message);
  exit(EXIT_FAILURE);
}

static struct trace load(const struct command *command) {
  const void *contents;
  size_t size_bytes;
  char message[MESSAGE_BYTES] = "";
  const char *path = command->trace_path;
  struct trace trace;
  struct recording_notes notes = {0};
  if (!own_memory_map_file(path, &contents, &size_bytes, message)) {
    fprintf(stderr, "snug-replay: %s\n", message);
    exit(EXIT_FAILURE);
  }
  if (recording_recognize(contents, size_bytes))
    check(recording_decode(&trace, contents, size_bytes, &notes, message), path, message);
  else if (trace_recognize(contents, size_bytes))
    check(trace_decode(&trace, contents, size_bytes, message), path, message);
  else
    check(false, path,
          size_bytes < 8 ? "truncated: not even its header is whole"
                         : "neither a trace nor a recording of libsnug_record.so");
  if (contents) own_memory_release((void *)contents, size_bytes);
  if (notes.unknown_frees + notes.implied_frees + notes.lost_events)
    fprintf(stderr,
            "snug-replay: %s: %llu frees of blocks from before the recording were left out, %llu frees not seen were "
            "put in, %llu events were lost in signal handlers\n",
            path, (unsigned long long)notes.unknown_frees, (unsigned long long)notes.implied_frees,
            (unsigned long long)notes.lost_events);
  if (command->until_s > 0) check(trace_cut(&trace, (uint64_t)(command->until_s * 1e6), message), path, message);
  if (trace.summary.call_count == 0)
    check(false, path, "no allocations in it: was the program linked with an allocator of its own?");
  return trace;
}

static const char *name_allocator(void) {
  void *(*function)(size_t) = malloc;
  void *address;
  Dl_info info;
  memcpy(&address, &function, sizeof address);
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "(statically linked)";
}

static void write_report(const char *path, const struct report *report, void (*write)(const struct report *, FILE *)) {
  FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
  if (!out) check(false, path, strerrordesc_np(errno));
  write(report, out);
  if (fflush(out) != 0 || ferror(out)) check(false, path, "cannot be written; is the disk full?");
  if (out != stdout) fclose(out);
}

static int replay(const struct command *command, const struct trace *trace) {
  struct sampler sampler;
  struct replay_result result;
  char message[MESSAGE_BYTES] = "";
  sampler_start(&sampler, command->replay.sample_count + 1);
  const char *allocator = name_allocator();
  check(replay_run(trace, &command->replay, &sampler, &result, message), command->trace_path, message);
  struct report report = {
      .trace_path = command->trace_path,
      .allocator = allocator,
      .trace = trace,
      .options = &command->replay,
      .result = &result,
      .sampler = &sampler,
  };
  if (command->csv_path) write_report(command->csv_path, &report, report_write_csv);
  if (command->json_path) write_report(command->json_path, &report, report_write_json);
  if (!command->json_path || strcmp(command->json_path, "-") != 0) write_report("-", &report, report_print);
  return result.failed_calls || result.corrupt_blocks ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argument_count, char **arguments) {
  struct command command = parse_command(argument_count, arguments);
  struct trace trace = load(&command);
  char message[MESSAGE_BYTES] = "";
  if (command.pack_path) check(trace_save(&trace, command.pack_path, message), command.trace_path, message);
  if (command.describe) describe_trace(&trace, stdout);
  if (command.pack_path || command.describe) return EXIT_SUCCESS;
  return replay(&command, &trace);
}
