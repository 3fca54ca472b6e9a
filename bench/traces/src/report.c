/* report.c: see report.h. */
#include "report.h"

#include <inttypes.h>

/* What all three forms show. */
struct figures {
  double ns_per_call_total; /* work per call */
  double ns_per_call;       /* of it, inside the allocator */
  double resident_mean_bytes;
  double live_mean_bytes;
  double resident_per_live;
  double part_means[PART_COUNT];
};

static struct figures compute_figures(const struct report *report) {
  struct figures figures = {0};
  const struct sampler *sampler = report->sampler;
  double count = sampler->sample_count ? sampler->sample_count : 1;
  double calls = report->trace->summary.call_count ? (double)report->trace->summary.call_count : 1;
  for (uint32_t i = 0; i < sampler->sample_count; i++) {
    figures.resident_mean_bytes += (double)sampler->samples[i].resident_bytes / count;
    figures.live_mean_bytes += (double)sampler->samples[i].live_bytes / count;
    for (int part = 0; part < PART_COUNT; part++)
      figures.part_means[part] += (double)sampler->samples[i].parts[part] / count;
  }
  if (figures.live_mean_bytes > 0) figures.resident_per_live = figures.resident_mean_bytes / figures.live_mean_bytes;
  figures.ns_per_call_total = report->result->work_s * 1e9 / calls;
  figures.ns_per_call = report->result->call_s * 1e9 / calls;
  return figures;
}

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

static void print_parts(const struct report *report, const struct figures *figures, FILE *out) {
  if (!report->sampler->has_parts) return;
  fprintf(out, "\nwhere each resident byte is (mean)     MB   of live\n");
  for (int part = 0; part < PART_COUNT; part++)
    fprintf(out, "  %-30s %8.2f  %7.4f\n", resident_part_names[part], figures->part_means[part] / 1e6,
            ratio(figures->part_means[part], figures->live_mean_bytes));
  fprintf(out, "  %-30s %8.2f  %7.4f\n", "resident", figures->resident_mean_bytes / 1e6, figures->resident_per_live);
}

static void print_metrics(const struct report *report, const struct figures *figures, FILE *out) {
  const struct replay_result *result = report->result;
  fprintf(out, "\n");
  fprintf(out, "snug-metric: calls=%" PRIu64 "\n", report->trace->summary.call_count);
  fprintf(out, "snug-metric: work_ns_per_call=%.2f\n", figures->ns_per_call_total);
  fprintf(out, "snug-metric: allocator_ns_per_call=%.2f\n", figures->ns_per_call);
  fprintf(out, "snug-metric: minor_faults=%" PRIu64 "\n", result->minor_faults);
  fprintf(out, "snug-metric: resident_mean_mb=%.3f\n", figures->resident_mean_bytes / 1e6);
  fprintf(out, "snug-metric: resident_per_live=%.4f\n", figures->resident_per_live);
  fprintf(out, "snug-metric: resident_peak_mb=%.3f\n", (double)result->peak_bytes / 1e6);
  fprintf(out, "snug-metric: resident_idle_mb=%.3f\n", (double)result->idle.resident_bytes / 1e6);
  fprintf(out, "snug-metric: errors=%" PRIu64 "\n", result->failed_calls + result->corrupt_blocks);
}

static void print_memory(const struct report *report, const struct figures *figures, FILE *out) {
  const struct replay_result *result = report->result;
  double peak_live = (double)report->trace->summary.peak_live_bytes;
  fprintf(out, "\nmemory beyond base        resident MB   live MB    ratio\n");
  fprintf(out, "  mean over time           %10.2f %9.2f  %7.4f\n", figures->resident_mean_bytes / 1e6,
          figures->live_mean_bytes / 1e6, figures->resident_per_live);
  fprintf(out, "  peak                     %10.2f %9.2f  %7.4f\n", (double)result->peak_bytes / 1e6, peak_live / 1e6,
          ratio((double)result->peak_bytes, peak_live));
  fprintf(out, "  end                      %10.2f %9.2f  %7.4f\n", (double)result->end.resident_bytes / 1e6,
          (double)result->end.live_bytes / 1e6,
          ratio((double)result->end.resident_bytes, (double)result->end.live_bytes));
  fprintf(out, "  %6.1f s after the end    %10.2f %9.2f  %7.4f\n", report->options->idle_ms / 1e3,
          (double)result->idle.resident_bytes / 1e6, (double)result->idle.live_bytes / 1e6,
          ratio((double)result->idle.resident_bytes, (double)result->idle.live_bytes));
}

void report_print(const struct report *report, FILE *out) {
  const struct replay_result *result = report->result;
  struct figures figures = compute_figures(report);
  fprintf(out, "%s under %s\n", report->trace_path, report->allocator);
  fprintf(out, "%s", report->options->with_threads ? "all threads" : "one thread");
  if (report->options->speed > 0)
    fprintf(out, ", %g times real time (at most %.0f ms behind)", report->options->speed, result->behind_ms);
  fprintf(out, "; %" PRIu64 " calls, %" PRIu32 " samples\n\n", report->trace->summary.call_count,
          report->sampler->sample_count);
  fprintf(out, "wall %.3f s, CPU %.3f s user + %.3f s system, %" PRIu64 " passes between threads\n", result->wall_s,
          result->user_s, result->system_s, result->token_passes);
  fprintf(out, "work %.3f s: %.1f ns per call, of which %.1f in the allocator\n", result->work_s,
          figures.ns_per_call_total, figures.ns_per_call);
  fprintf(out, "minor page faults %" PRIu64 "\n", result->minor_faults);
  print_memory(report, &figures, out);
  print_parts(report, &figures, out);
  if (result->failed_calls) fprintf(out, "\nFAILED: the allocator gave NULL %" PRIu64 " times\n", result->failed_calls);
  if (result->corrupt_blocks)
    fprintf(out, "\nFAILED: %" PRIu64 " blocks were misaligned or did not keep their contents\n",
            result->corrupt_blocks);
  print_metrics(report, &figures, out);
}

static void write_json_text(const char *text, FILE *out) {
  fputc('"', out);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\')
      fprintf(out, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      fprintf(out, "\\u%04x", (unsigned)*text);
    else
      fputc(*text, out);
  }
  fputc('"', out);
}

static void write_json_memory(const char *name, double resident_bytes, double live_bytes, FILE *out) {
  fprintf(out, ",\n  \"%s\": {\"resident_bytes\": %.0f, \"live_bytes\": %.0f, \"ratio\": %.5f}", name, resident_bytes,
          live_bytes, ratio(resident_bytes, live_bytes));
}

static void write_json_samples(const struct report *report, FILE *out) {
  const struct sampler *sampler = report->sampler;
  fprintf(out, ",\n  \"sample_fields\": [\"time_us\", \"resident_bytes\", \"live_bytes\"");
  for (int part = 0; sampler->has_parts && part < PART_COUNT; part++)
    fprintf(out, ", \"%s_bytes\"", resident_part_names[part]);
  fprintf(out, "],\n  \"samples\": [");
  for (uint32_t i = 0; i < sampler->sample_count; i++) {
    const struct sample *sample = &sampler->samples[i];
    fprintf(out, "%s\n    [%" PRIu64 ", %" PRId64 ", %" PRIu64, i ? "," : "", sample->time_us, sample->resident_bytes,
            sample->live_bytes);
    for (int part = 0; sampler->has_parts && part < PART_COUNT; part++) fprintf(out, ", %" PRId64, sample->parts[part]);
    fprintf(out, "]");
  }
  fprintf(out, "\n  ]");
}

void report_write_json(const struct report *report, FILE *out) {
  const struct replay_result *result = report->result;
  struct figures figures = compute_figures(report);
  fprintf(out, "{\n  \"trace\": ");
  write_json_text(report->trace_path, out);
  fprintf(out, ",\n  \"allocator\": ");
  write_json_text(report->allocator, out);
  fprintf(out, ",\n  \"threads\": %" PRIu32 ", \"speed\": %g, \"idle_ms\": %" PRIu32,
          report->options->with_threads ? report->trace->thread_count : 1, report->options->speed,
          report->options->idle_ms);
  fprintf(out, ",\n  \"calls\": %" PRIu64 ", \"failed_calls\": %" PRIu64 ", \"corrupt_blocks\": %" PRIu64,
          report->trace->summary.call_count, result->failed_calls, result->corrupt_blocks);
  fprintf(out, ",\n  \"wall_s\": %.6f, \"user_s\": %.6f, \"system_s\": %.6f, \"behind_ms\": %.3f", result->wall_s,
          result->user_s, result->system_s, result->behind_ms);
  fprintf(out, ",\n  \"work_ns_per_call\": %.3f, \"allocator_ns_per_call\": %.3f", figures.ns_per_call_total,
          figures.ns_per_call);
  fprintf(out, ",\n  \"minor_faults\": %" PRIu64 ", \"token_passes\": %" PRIu64 ", \"base_bytes\": %" PRId64,
          result->minor_faults, result->token_passes, report->sampler->base_bytes);
  write_json_memory("mean", figures.resident_mean_bytes, figures.live_mean_bytes, out);
  write_json_memory("peak", (double)result->peak_bytes, (double)report->trace->summary.peak_live_bytes, out);
  write_json_memory("end", (double)result->end.resident_bytes, (double)result->end.live_bytes, out);
  write_json_memory("idle", (double)result->idle.resident_bytes, (double)result->idle.live_bytes, out);
  if (report->sampler->has_parts) {
    fprintf(out, ",\n  \"mean_parts_bytes\": {");
    for (int part = 0; part < PART_COUNT; part++)
      fprintf(out, "%s\"%s\": %.0f", part ? ", " : "", resident_part_names[part], figures.part_means[part]);
    fprintf(out, "}");
  }
  write_json_samples(report, out);
  fprintf(out, "\n}\n");
}

void report_write_csv(const struct report *report, FILE *out) {
  const struct sampler *sampler = report->sampler;
  fprintf(out, "time_us,resident_bytes,live_bytes");
  for (int part = 0; sampler->has_parts && part < PART_COUNT; part++)
    fprintf(out, ",%s_bytes", resident_part_names[part]);
  fprintf(out, "\n");
  for (uint32_t i = 0; i < sampler->sample_count; i++) {
    const struct sample *sample = &sampler->samples[i];
    fprintf(out, "%" PRIu64 ",%" PRId64 ",%" PRIu64, sample->time_us, sample->resident_bytes, sample->live_bytes);
    for (int part = 0; sampler->has_parts && part < PART_COUNT; part++) fprintf(out, ",%" PRId64, sample->parts[part]);
    fprintf(out, "\n");
  }
}
