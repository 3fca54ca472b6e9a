// hash_map.cpp: a hash map of strings of many sizes, as caches and indexes are: filled until so much is live, then worked
// on, then left alone. Prints, for bench/large_heap, one line per phase, fill, work, idle:
//
//   operations, CPU time of the process in s, page faults, resident and peak in MB, longest operation in ms, and the CPU
//   time in s of threads that the allocator runs, as far as they are alive at the end of the phase
//
//   hash_map LIVE_MB OPERATIONS IDLE_S
//
// Live are the bytes that the strings and the map ask malloc for. Half of the operations look a string up and read it, half
// put one of another size in its place. What each does follows from its number alone.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <unordered_map>

namespace {

constexpr size_t kNodeBytes = 48;  // of the map, one per string
constexpr int kOctaves = 9;        // sizes from 32 bytes to 16 KiB
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

uint64_t random_state = 88172645463325252u;

// xorshift64, Marsaglia.
uint64_t next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

// Each octave is half as likely as the one below, so that each has about as many bytes. 32 to 16,383 bytes.
size_t random_size_bytes() {
  uint64_t random = next_random();
  int octave = __builtin_ctzll(random | uint64_t{1} << (kOctaves - 1));
  size_t least = size_t{32} << octave;
  return least + (random >> 32) % least;
}

struct Usage {
  double cpu_s;
  long faults;
  double peak_mb;
};

double seconds(const timeval &time) { return double(time.tv_sec) + double(time.tv_usec) / 1e6; }

Usage usage() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return {seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_minflt, double(used.ru_maxrss) * 1024 / 1e6};
}

double now_s() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + double(time.tv_nsec) / 1e9;
}

double resident_mb() {
  long pages = 0;
  if (FILE *file = fopen("/proc/self/statm", "r")) {
    if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    fclose(file);
  }
  return double(pages) * double(sysconf(_SC_PAGESIZE)) / 1e6;
}

// CPU time of all threads but this one, which is the program's only one.
double helper_cpu_s() {
  unsigned long long sum_ns = 0;
  DIR *tasks = opendir("/proc/self/task");
  while (dirent *entry = tasks ? readdir(tasks) : nullptr) {
    if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
    FILE *file = fopen(("/proc/self/task/" + std::string(entry->d_name) + "/schedstat").c_str(), "r");
    unsigned long long ns = 0;
    if (file != nullptr && fscanf(file, "%llu", &ns) == 1) sum_ns += ns;
    if (file != nullptr) fclose(file);
  }
  if (tasks != nullptr) closedir(tasks);
  return double(sum_ns) / 1e9;
}

class Phase {
 public:
  explicit Phase(const char *name) : name_(name), before_(usage()), last_s_(now_s()) {}

  void operation_done() {
    double now = now_s();
    if (now - last_s_ > longest_s_) longest_s_ = now - last_s_;
    last_s_ = now;
    operations_++;
  }

  void end() const {
    Usage after = usage();
    printf("%s %ld %.3f %ld %.1f %.1f %.2f %.3f\n", name_, operations_, after.cpu_s - before_.cpu_s,
           after.faults - before_.faults, resident_mb(), after.peak_mb, longest_s_ * 1e3, helper_cpu_s());
    fflush(stdout);
  }

 private:
  const char *name_;
  Usage before_;
  double last_s_, longest_s_ = 0;
  long operations_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: hash_map LIVE_MB OPERATIONS IDLE_S\n");
    return 2;
  }
  double wanted_bytes = atof(argv[1]) * 1e6, live_bytes = 0;
  long operations = atol(argv[2]);
  std::unordered_map<uint64_t, std::string> map;
  Phase fill("fill");
  uint64_t count = 0;
  for (; live_bytes < wanted_bytes; count++) {
    size_t size_bytes = random_size_bytes();
    map.emplace(count * kMultiplier, std::string(size_bytes, char('a' + count % 26)));
    live_bytes += double(size_bytes + 1 + kNodeBytes + sizeof(void *));
    fill.operation_done();
  }
  fill.end();
  Phase work("work");
  uint64_t wrong = 0;
  for (long i = 0; i < operations; i++) {
    uint64_t number = next_random() % count;
    std::string &value = map.find(number * kMultiplier)->second;
    if (i % 2 == 0) {
      wrong += memchr(value.data(), '\0', value.size()) != nullptr || value.front() != value.back();
    } else {
      value = std::string(random_size_bytes(), char('A' + i % 26));
    }
    work.operation_done();
  }
  work.end();
  Phase idle("idle");
  timespec pause = {atol(argv[3]), 0};
  nanosleep(&pause, nullptr);
  idle.end();
  if (wrong != 0) fprintf(stderr, "hash_map: %llu strings changed\n", (unsigned long long)wrong);
  fflush(stdout);
  exit(wrong != 0);  // the map is not taken apart
}
