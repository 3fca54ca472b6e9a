#include "stats_print.h"

#include <string.h>

#include "account.h"
#include "classes.h"
#include "counters.h"
#include "mallctl.h"
#include "malloc_conf.h"
#include "options.h"
#include "text.h"

EXPORT void malloc_stats_print(void (*write)(void *context, const char *text), void *context, const char *letters);

enum { PIECE_BYTES = 512 };

/* Where it goes. The function that writes may allocate: no lock is held. */
struct printer {
  void (*write)(void *context, const char *text);
  void *context;
  bool json;
  bool first; /* no comma before the next member */
  bool general, merged, arenas, classes, large;
};

static void write_message(void *context, const char *text) {
  (void)context;
  malloc_conf_write(text);
}

static void print_text(const struct printer *printer, const char *text) { printer->write(printer->context, text); }

/* ---- values ---- */

static void text_value(struct text *text, enum mallctl_type type, union mallctl_value value, bool quoted) {
  bool negative = type == MALLCTL_SIGNED && (int64_t)value.number < 0;
  if (type == MALLCTL_TEXT) {
    if (quoted) text_char(text, '"');
    for (const char *at = value.text; *at != '\0'; at++) {
      if (quoted && (*at == '"' || *at == '\\')) text_char(text, '\\');
      if ((unsigned char)*at >= ' ') text_char(text, *at);
    }
    if (quoted) text_char(text, '"');
  } else if (type == MALLCTL_BOOL) {
    text_string(text, value.number != 0 ? "true" : "false");
  } else {
    if (negative) text_char(text, '-');
    text_number(text, negative ? -value.number : value.number);
  }
}

/* "  opt.narenas: 2\n" or "\"narenas\":2", whichever it is to be. */
static void print_value(struct printer *printer, const char *name, enum mallctl_type type, union mallctl_value value) {
  char piece[PIECE_BYTES];
  struct text text = text_in(piece, sizeof piece);
  text_string(&text, !printer->json ? "  " : printer->first ? "\"" : ",\"");
  text_string(&text, name);
  text_string(&text, printer->json ? "\":" : ": ");
  text_value(&text, type, value, true);
  if (!printer->json) text_char(&text, '\n');
  printer->first = false;
  print_text(printer, piece);
}

/* Begins and ends an object of JSON, or a paragraph with a heading. */
static void begin_object(struct printer *printer, const char *name, const char *heading) {
  if (printer->json) {
    char piece[PIECE_BYTES];
    struct text text = text_in(piece, sizeof piece);
    text_string(&text, printer->first ? "\"" : ",\"");
    text_string(&text, name);
    text_string(&text, "\":{");
    print_text(printer, piece);
  } else {
    print_text(printer, heading);
  }
  printer->first = true;
}

static void end_object(struct printer *printer) {
  if (printer->json) print_text(printer, "}");
  printer->first = false;
}

/* All rows of the tree that begin so and have nothing behind the next part. The text has whole names, JSON their ends.
 */
static void print_rows(struct printer *printer, const char *beginning, size_t arena) {
  const char *name;
  enum mallctl_type type;
  bool of_arena;
  for (size_t row = 0; mallctl_row(row, &name, &type, &of_arena); row++) {
    size_t length = strlen(beginning);
    if (type == MALLCTL_ACTION || strncmp(name, beginning, length) != 0 || strchr(name + length, '.') != NULL) continue;
    bool whole = !printer->json && !of_arena;
    print_value(printer, whole ? name : name + length, type, mallctl_value_of(row, arena));
  }
}

/* ---- parts ---- */

static void print_general(struct printer *printer) {
  begin_object(printer, "config", "Build-time option settings\n");
  print_rows(printer, "config.", MALLCTL_ALL_ARENAS);
  end_object(printer);
  begin_object(printer, "opt", "Run-time option settings\n");
  print_rows(printer, "opt.", MALLCTL_ALL_ARENAS);
  end_object(printer);
  if (!printer->json) print_text(printer, "Arenas\n");
  begin_object(printer, "arenas", "");
  print_rows(printer, "arenas.", MALLCTL_ALL_ARENAS);
  end_object(printer);
}

/* jemalloc's line of totals, which scripts look for. */
static void print_totals_line(struct printer *printer) {
  static const struct {
    const char *name;
    enum account which;
  } totals[] = {{"Allocated: ", ACCOUNT_ALLOCATED},   {", active: ", ACCOUNT_ACTIVE},
                {", metadata: ", ACCOUNT_METADATA},   {", resident: ", ACCOUNT_RESIDENT},
                {", mapped: ", ACCOUNT_MAPPED},       {", retained: ", ACCOUNT_RETAINED},
                {", requested: ", ACCOUNT_REQUESTED}, {", dirty: ", ACCOUNT_DIRTY}};
  char piece[PIECE_BYTES];
  struct text text = text_in(piece, sizeof piece);
  for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
    text_string(&text, totals[i].name);
    text_number(&text, account_read(totals[i].which));
  }
  text_char(&text, '\n');
  print_text(printer, piece);
}

static void print_totals(struct printer *printer) {
  if (!printer->json) print_totals_line(printer);
  begin_object(printer, "stats", "");
  if (printer->json) print_rows(printer, "stats.", MALLCTL_ALL_ARENAS);
  begin_object(printer, "background_thread", "Background threads\n");
  print_rows(printer, "stats.background_thread.", MALLCTL_ALL_ARENAS);
  end_object(printer);
  end_object(printer);
}

/* Blocks of each class, over all arenas. */
static void print_classes(struct printer *printer) {
  begin_object(printer, "classes", "  size classes: bytes, blocks outside of slabs, slabs, bytes of slabs\n");
  for (unsigned i = 1; i < CLASS_COUNT; i++) {
    uint64_t blocks = 0, slabs = 0, slab_bytes = 0, arenas = account_read(ACCOUNT_ARENAS);
    for (uint64_t arena = 0; arena < arenas; arena++) {
      const struct snug_counters_class *row = &snug_counters.classes[arena][i];
      blocks += counter_get(&row->outstanding_blocks);
      slabs += __atomic_load_n(&row->slabs, __ATOMIC_RELAXED);
      slab_bytes += counter_get(&row->slab_bytes);
    }
    if (slabs == 0) continue;
    char piece[PIECE_BYTES];
    struct text text = text_in(piece, sizeof piece);
    const char *between = printer->json ? "," : " ";
    text_string(&text, !printer->json ? "    " : printer->first ? "\"" : ",\"");
    text_number(&text, class_shapes[i].size_bytes);
    text_string(&text, printer->json ? "\":[" : " ");
    text_number(&text, blocks);
    text_string(&text, between);
    text_number(&text, slabs);
    text_string(&text, between);
    text_number(&text, slab_bytes);
    text_string(&text, printer->json ? "]" : "\n");
    printer->first = false;
    print_text(printer, piece);
  }
  end_object(printer);
}

static void print_arena(struct printer *printer, size_t arena, const char *name, const char *heading) {
  begin_object(printer, name, heading);
  print_rows(printer, "stats.arenas.#.", arena);
  begin_object(printer, "small", "  small:\n");
  print_rows(printer, "stats.arenas.#.small.", arena);
  end_object(printer);
  begin_object(printer, "large", "  large:\n");
  if (printer->large) print_rows(printer, "stats.arenas.#.large.", arena);
  end_object(printer);
  if (arena == MALLCTL_ALL_ARENAS && printer->classes) print_classes(printer);
  end_object(printer);
}

static void print_arenas(struct printer *printer) {
  uint64_t arenas = account_read(ACCOUNT_ARENAS);
  begin_object(printer, "stats.arenas", "");
  if (printer->merged) print_arena(printer, MALLCTL_ALL_ARENAS, "merged", "Merged arenas stats:\n");
  for (uint64_t arena = 0; printer->arenas && arenas > 1 && arena < arenas; arena++) {
    char name[24], heading[32];
    struct text name_text = text_in(name, sizeof name), heading_text = text_in(heading, sizeof heading);
    text_number(&name_text, arena);
    text_string(&heading_text, "arenas[");
    text_number(&heading_text, arena);
    text_string(&heading_text, "]:\n");
    print_arena(printer, arena, name, heading);
  }
  end_object(printer);
}

static struct printer printer_for(const char *letters) {
  struct printer printer = {NULL, NULL, false, true, true, true, true, true, true};
  for (; letters != NULL && *letters != '\0'; letters++) {
    switch (*letters) {
      case 'J': printer.json = true; break;
      case 'g': printer.general = false; break;
      case 'm': printer.merged = false; break;
      case 'a': printer.arenas = false; break;
      case 'b': printer.classes = false; break;
      case 'l': printer.large = false; break;
      default: break; /* d, x, e, h: what snug has not */
    }
  }
  return printer;
}

void malloc_stats_print(void (*write)(void *context, const char *text), void *context, const char *letters) {
  struct printer printer = printer_for(letters);
  printer.write = write != NULL ? write : write_message;
  printer.context = context;
  char settings[OPTIONS_TEXT_BYTES];
  account_refresh();
  print_text(&printer, printer.json ? "{\"jemalloc\":{" : "___ Begin jemalloc statistics ___\nVersion: \"");
  if (printer.json) {
    print_value(&printer, "version", MALLCTL_TEXT, (union mallctl_value){.text = mallctl_version});
    print_value(&printer, "snug_version", MALLCTL_TEXT, (union mallctl_value){.text = SNUG_VERSION});
    print_value(&printer, "snug_settings", MALLCTL_TEXT, (union mallctl_value){.text = options_text(settings)});
  } else {
    print_text(&printer, mallctl_version);
    print_text(&printer, "\"\nThis is snug " SNUG_VERSION ", which answers jemalloc's calls. Settings: ");
    print_text(&printer, options_text(settings));
    print_text(&printer, "\n");
  }
  if (printer.general) print_general(&printer);
  print_totals(&printer);
  if (printer.merged || printer.arenas) print_arenas(&printer);
  print_text(&printer, printer.json ? "}}\n" : "--- End jemalloc statistics ---\n");
}

void stats_print_at_exit(void) { malloc_stats_print(NULL, NULL, malloc_conf_settings.stats_letters); }
