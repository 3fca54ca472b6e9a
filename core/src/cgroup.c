#include "cgroup.h"

#include "rights.h"
#include "sys.h"
#include "text.h"

enum { PATH_BYTES = 512, FILE_BYTES = 4096, NUMBER_BYTES = 64, NEAR_TENTHS = 9, SEARCHES = 2 };

#define ROOT "/sys/fs/cgroup"

/* Files of a control group, by what limits its memory. */
struct memory_files {
  const char *limit, *usage, *cache_keys[2]; /* keys of memory.stat that are file cache */
};
static const struct memory_files files_max = {"memory.max", "memory.current", {"inactive_file", "active_file"}},
                                 files_high = {"memory.high", "memory.current", {"inactive_file", "active_file"}},
                                 files_1 = {"memory.limit_in_bytes",
                                            "memory.usage_in_bytes",
                                            {"total_inactive_file", "total_active_file"}};

struct memory_limit {
  char directory[PATH_BYTES]; /* empty: no limit */
  const struct memory_files *files;
  uint64_t limit_bytes;
  uint64_t room_bytes; /* up to it, when it was searched for */
};

/* One caller at a time: the purge lock. */
static struct memory_limit limits[2];
static struct memory_limit *memory = &limits[0];      /* the nearest one; its files are read again and again */
static struct memory_limit *found_limit = &limits[1]; /* by a search for it */
static bool is_searched;                              /* since that was asked for last, whether it could be or not */
static uint32_t failed_searches;                      /* of those asked for, in a row */
static uint32_t quota_cpus;

static char file_content[FILE_BYTES]; /* the same; not on the stack, of which the program's threads may have little */

/* Whether a comma-separated list up to a colon has the word. */
static bool has_word(const char *list, const char *word) {
  size_t length = string_length(word);
  while (*list != '\0' && *list != ':') {
    if (string_begins(list, word) && (list[length] == ',' || list[length] == ':')) return true;
    while (*list != '\0' && *list != ',' && *list != ':') list++;
    if (*list == ',') list++;
  }
  return false;
}

bool cgroup_path_of(const char *proc_self_cgroup, const char *controller, char *path, size_t capacity_bytes) {
  for (const char *line = proc_self_cgroup; *line != '\0';) {
    const char *list = string_find(line, ':');
    const char *end = string_find(line, '\n');
    if (end == NULL) end = line + string_length(line);
    if (list != NULL && list < end) {
      bool ours = controller[0] == '\0' ? string_begins(line, "0::") : has_word(list + 1, controller);
      const char *from = string_find(list + 1, ':');
      if (ours && from != NULL && from < end) {
        struct text text = text_in(path, capacity_bytes);
        for (from++; from < end; from++) text_char(&text, *from);
        return true;
      }
    }
    line = *end == '\n' ? end + 1 : end;
  }
  return false;
}

static bool read_number(const char *text, uint64_t *number) {
  if (*text < '0' || *text > '9') return false; /* "max", "-1" */
  for (*number = 0; *text >= '0' && *text <= '9'; text++) *number = *number * 10 + (uint64_t)(*text - '0');
  return true;
}

uint64_t cgroup_stat_value(const char *memory_stat, const char *key) {
  size_t length = string_length(key);
  uint64_t value = 0;
  for (const char *line = memory_stat; line != NULL && *line != '\0';) {
    if (string_begins(line, key) && line[length] == ' ') return read_number(line + length + 1, &value) ? value : 0;
    line = string_find(line, '\n');
    if (line != NULL) line++;
  }
  return 0;
}

bool cgroup_is_near_limit(const struct cgroup_memory *reading) {
  return reading->held_bytes / NEAR_TENTHS > reading->limit_bytes / 10;
}

static size_t read_in(const char *directory, const char *name, char *content, size_t capacity_bytes) {
  char path[PATH_BYTES + 64];
  struct text text = text_in(path, sizeof path);
  text_string(&text, directory);
  text_char(&text, '/');
  text_string(&text, name);
  return sys_read_file(path, content, capacity_bytes);
}

static void cut_last_part(char *path) {
  size_t length = string_length(path);
  while (length > 0 && path[length - 1] != '/') length--;
  if (length > 0) path[length - 1] = '\0';
}

/* Calls visit for the control group's directory and all above it, up to the mount point. In a container the path may be
 * the host's: what can't be read there is skipped, and the mount point itself is the container's own group. False:
 * where that is can't be read, perhaps for want of a descriptor. */
static bool for_each_level(const char *controller, void (*visit)(const char *directory, void *context), void *context) {
  char path[PATH_BYTES], directory[PATH_BYTES + 64];
  if (sys_read_file("/proc/self/cgroup", file_content, sizeof file_content) == 0) return false;
  if (!cgroup_path_of(file_content, controller, path, sizeof path)) return true;
  for (;;) {
    struct text text = text_in(directory, sizeof directory);
    text_string(&text, ROOT);
    if (controller[0] != '\0') text_char(&text, '/');
    text_string(&text, controller);
    if (path[0] != '/' || path[1] != '\0') text_string(&text, path);
    visit(directory, context);
    if (path[0] != '/' || path[1] == '\0') return true;
    cut_last_part(path);
  }
}

static bool read_usage(const char *directory, const struct memory_files *files, uint64_t *bytes) {
  return read_in(directory, files->usage, file_content, sizeof file_content) != 0 && read_number(file_content, bytes);
}

/* Without file cache; read at different moments. */
static bool subtract_cache(const char *directory, const struct memory_files *files, uint64_t *bytes) {
  if (read_in(directory, "memory.stat", file_content, sizeof file_content) == 0) return false;
  uint64_t cached =
      cgroup_stat_value(file_content, files->cache_keys[0]) + cgroup_stat_value(file_content, files->cache_keys[1]);
  *bytes = *bytes > cached ? *bytes - cached : 0;
  return true;
}

/* Of those of all levels the one counts that leaves the least room, by what its own group holds: a slice of many
 * services may be full where each of them is far from a limit of its own. */
static void note_limit(const char *directory, const struct memory_files *files) {
  char content[NUMBER_BYTES];
  uint64_t limit, held = 0;
  if (read_in(directory, files->limit, content, sizeof content) == 0 || !read_number(content, &limit)) return;
  if (limit >= rights_physical_bytes()) return;
  if (read_usage(directory, files, &held)) subtract_cache(directory, files, &held);
  uint64_t room = limit > held ? limit - held : 0;
  if (found_limit->directory[0] != '\0' && room >= found_limit->room_bytes) return;
  found_limit->limit_bytes = limit;
  found_limit->room_bytes = room;
  found_limit->files = files;
  struct text text = text_in(found_limit->directory, sizeof found_limit->directory);
  text_string(&text, directory);
}

static void note_memory_2(const char *directory, void *context) {
  (void)context;
  note_limit(directory, &files_max);
  note_limit(directory, &files_high);
}

static void note_memory_1(const char *directory, void *context) {
  (void)context;
  note_limit(directory, &files_1);
}

/* False: it can't be searched for, and is what it was. */
static bool find_limit(void) {
  found_limit->directory[0] = '\0';
  if (!for_each_level("", note_memory_2, NULL) || !for_each_level("memory", note_memory_1, NULL)) return false;
  struct memory_limit *before = memory;
  memory = found_limit;
  found_limit = before;
  failed_searches = 0;
  return true;
}

/* One may fail for want of a descriptor. If the next one does, a minute later, there is no limit: after chroot(2), say,
 * nothing of it can be read, and each look would try to. */
static void search_for_limit(void) {
  is_searched = true;
  if (!find_limit() && ++failed_searches >= SEARCHES) memory->directory[0] = '\0';
}

/* Reads the known limit again. Another number, or none: another limit may be the nearest now. */
static bool limit_has_changed(void) {
  char content[NUMBER_BYTES];
  uint64_t limit;
  if (read_in(memory->directory, memory->files->limit, content, sizeof content) == 0) return false;
  return !read_number(content, &limit) || limit != memory->limit_bytes;
}

void cgroup_search_memory_limit(void) { is_searched = false; }

bool cgroup_has_memory_limit(void) { return memory->directory[0] != '\0'; }

bool cgroup_memory(struct cgroup_memory *reading, bool asks_for_limit) {
  if (!is_searched) {
    search_for_limit();
  } else if (asks_for_limit && cgroup_has_memory_limit() && limit_has_changed()) {
    find_limit();
  }
  if (!cgroup_has_memory_limit()) return false;
  if (!read_usage(memory->directory, memory->files, &reading->held_bytes)) return false;
  reading->limit_bytes = memory->limit_bytes;
  if (!cgroup_is_near_limit(reading)) return true; /* the ordinary case: one file */
  if (!asks_for_limit && limit_has_changed()) return cgroup_memory(reading, true);
  return subtract_cache(memory->directory, memory->files, &reading->held_bytes);
}

static void least_cpus(uint32_t *cpus, uint64_t quota, uint64_t period) {
  if (period == 0) return;
  uint64_t count = (quota + period - 1) / period;
  if (count == 0) count = 1;
  if (*cpus == 0 || count < *cpus) *cpus = (uint32_t)count;
}

static void note_cpu_2(const char *directory, void *context) {
  char content[64];
  uint64_t quota, period;
  if (read_in(directory, "cpu.max", content, sizeof content) == 0 || !read_number(content, &quota)) return;
  const char *space = string_find(content, ' ');
  if (space != NULL && read_number(space + 1, &period)) least_cpus(context, quota, period);
}

static void note_cpu_1(const char *directory, void *context) {
  char quota_text[64], period_text[64];
  uint64_t quota, period;
  if (read_in(directory, "cpu.cfs_quota_us", quota_text, sizeof quota_text) == 0 || !read_number(quota_text, &quota))
    return;
  if (read_in(directory, "cpu.cfs_period_us", period_text, sizeof period_text) == 0) return;
  if (read_number(period_text, &period)) least_cpus(context, quota, period);
}

uint32_t cgroup_cpus(void) {
  uint32_t cpus = 0;
  if (for_each_level("", note_cpu_2, &cpus) && for_each_level("cpu", note_cpu_1, &cpus)) quota_cpus = cpus;
  return quota_cpus;
}
