// Thousands of short threads with C++ thread_local objects that own memory: built lazily, destroyed at thread exit in
// reverse order, some of them allocating once more while they are destroyed.
#include "../support/test.h"

#include <atomic>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static std::atomic<unsigned long long> destroyed{0};
static std::atomic<bool> wrong{false};

struct owner {
  std::vector<std::string> words;
  std::unordered_map<int, std::vector<int>> table;
  void fill(uint64_t seed) {
    for (int i = 0; i < 50; i++)
      words.push_back(std::string(1 + seed % 300 + static_cast<size_t>(i), static_cast<char>('a' + i % 26)));
    for (int i = 0; i < 20; i++) table[i] = std::vector<int>(static_cast<size_t>(i) * 10 + 1, i);
  }
  ~owner() {
    for (size_t i = 0; i < words.size(); i++)
      if (words[i].find_first_not_of(static_cast<char>('a' + i % 26)) != std::string::npos) wrong = true;
    for (auto &row : table)
      for (int value : row.second)
        if (value != row.first) wrong = true;
    std::vector<std::string> last_words(words);  // allocates in the destructor
    if (!last_words.empty()) destroyed++;
  }
};

static thread_local owner first;
static thread_local owner *pointer_to_first = &first;
static thread_local owner second;

int main(int argc, char **argv) {
  uint64_t seed = 1;
  double seconds = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--seed") == 0) seed = strtoull(argv[i + 1], nullptr, 0);
    if (strcmp(argv[i], "--seconds") == 0) seconds = strtod(argv[i + 1], nullptr);
  }
  double end = now_s() + seconds;
  unsigned long long started = 0;
  while (now_s() < end && !wrong) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++, started++)
      threads.emplace_back([seed, started] {
        pointer_to_first->fill(seed + started);
        second.fill(seed * 3 + started);
      });
    for (auto &thread : threads) thread.join();
  }
  if (wrong || destroyed != 2 * started) {
    test_print(2, "stress failure: %llu of %llu objects destroyed, contents %s\nrun again: %s --seed %llu\n",
               destroyed.load(), 2 * started, wrong ? "wrong" : "right", argv[0],
               static_cast<unsigned long long>(seed));
    return 1;
  }
  test_print(1, "ok thread_local (seed %llu)\n", static_cast<unsigned long long>(seed));
  return 0;
}
