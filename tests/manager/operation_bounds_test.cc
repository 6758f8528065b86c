// The limits of one operation's cost, each at the largest that a client can send: bytes that stay,
// bytes while it runs, and time under the core's lock. The bounds are the table in
// server/LIMITS.md, "What one operation costs".
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/manager/largest_chunks.h"
#include "tests/manager/largest_operations.h"
#include "tests/manager/measured_cache.h"

// --- Bytes of this thread ---

thread_local int64_t pagoda::g_live_bytes = 0;
thread_local int64_t pagoda::g_most_bytes = 0;

namespace {
using pagoda::g_live_bytes;
using pagoda::g_most_bytes;

void* Take(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  g_live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  g_most_bytes = std::max(g_most_bytes, g_live_bytes);
  return memory;
}
void GiveBack(void* memory) {
  if (memory != nullptr) g_live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
}  // namespace

void* operator new(size_t size) { return Take(size); }
void* operator new[](size_t size) { return Take(size); }
void operator delete(void* memory) noexcept { GiveBack(memory); }
void operator delete[](void* memory) noexcept { GiveBack(memory); }
void operator delete(void* memory, size_t) noexcept { GiveBack(memory); }
void operator delete[](void* memory, size_t) noexcept { GiveBack(memory); }

namespace pagoda {
namespace {

// --- The table ---

using Name = std::pair<std::string, std::string>;  // The operation, and its size.

// "12 KiB" or "1,500".
double Number(std::string text) {
  double unit = 1;
  if (absl::StrContains(text, " KiB")) unit = 1 << 10;
  if (absl::StrContains(text, " MiB")) unit = 1 << 20;
  text = absl::StrReplaceAll(text, {{" KiB", ""}, {" MiB", ""}, {",", ""}});
  double number = -1;
  EXPECT_TRUE(absl::SimpleAtod(text, &number)) << "no number: " << text;
  return number * unit;
}

std::map<Name, Cost> ReadTable() {
  std::ifstream readme(PAGODA_SOURCE_DIR "/server/LIMITS.md");
  std::map<Name, Cost> table;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "| operation | at | bytes kept | bytes meanwhile | us under the lock |") {
      inside = true;
      continue;
    }
    if (!inside || absl::StartsWith(line, "|---")) continue;
    if (!absl::StartsWith(line, "|")) break;
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    EXPECT_EQ(cells.size(), 7u) << line;
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    Cost& cost = table[{cells[1], cells[2]}];
    cost.kept_bytes = static_cast<int64_t>(Number(cells[3]));
    cost.most_bytes = static_cast<int64_t>(Number(cells[4]));
    cost.microseconds = Number(cells[5]);
  }
  return table;
}

// How much slower this machine is than that of the table, by similar work: hashing, and random
// accesses to memory. At least 1.
double Slowness() {
  constexpr double kOfTheTable = 130'000;
  double best = 1e12;
  for (int round = 0; round < 3; ++round) {
    const double before = ThreadMicroseconds();
    absl::flat_hash_set<uint64_t> numbers;
    for (uint64_t i = 0; i < 1'000'000; ++i) numbers.insert(i * 0x9E3779B97F4A7C15);
    EXPECT_EQ(numbers.size(), 1'000'000u);
    best = std::min(best, ThreadMicroseconds() - before);
  }
  return std::max(1.0, best / kOfTheTable);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr bool kMeasures = false;  // The rows are run, and compared with the table by name.
#else
constexpr bool kMeasures = true;
#endif

// The best of three rounds, because other work can have slowed the first ones.
void CheckRow(const std::map<Name, Cost>& table, const Name& name, double slowness,
              const std::function<Cost()>& measure) {
  const auto bound = table.find(name);
  const Cost most = bound == table.end() ? Cost{} : bound->second;
  Cost cost;
  for (int round = 0; round < 3; ++round) {
    const Cost once = measure();
    cost = {round == 0 ? once.microseconds : std::min(cost.microseconds, once.microseconds),
            once.kept_bytes, once.most_bytes};
    if (!kMeasures || cost.microseconds <= most.microseconds * slowness) break;
  }
  std::printf("| %s | %s | %lld KiB | %lld KiB | %.0f |\n", name.first.c_str(), name.second.c_str(),
              static_cast<long long>((cost.kept_bytes + 1023) >> 10),
              static_cast<long long>((cost.most_bytes + 1023) >> 10), cost.microseconds);
  const std::string what = absl::StrCat(name.first, ", ", name.second);
  ASSERT_TRUE(bound != table.end()) << what << ": no row in server/LIMITS.md";
  if (!kMeasures) return;
  EXPECT_LE(cost.kept_bytes, most.kept_bytes) << what;
  EXPECT_LE(cost.most_bytes, most.most_bytes) << what;
  EXPECT_LE(cost.microseconds, most.microseconds * slowness) << what;
}

TEST(OperationBoundsTest, EveryOperationKeepsTheTable) {
  const std::map<Name, Cost> table = ReadTable();
  const double slowness = Slowness();
  size_t rows = 0;
  std::printf("this machine is %.2f times as slow as that of the table\n", slowness);
  for (const Row& row : AllRows()) {
    ++rows;
    CheckRow(table, {row.operation, row.at.at}, slowness, [&row] {
      Cache cache(row.at.options());
      const Operation operation = row.at.prepare(cache);
      return cache.Measure(operation, row.at.answer());
    });
  }
  for (const ChunkedWork& work : AllChunkedWork()) {
    ++rows;
    CheckRow(table, {work.operation, work.at}, slowness,
             [&work] { return MeasureLongestChunk(work); });
  }
  EXPECT_EQ(rows, table.size()) << "server/LIMITS.md has rows that are not measured";
}

}  // namespace
}  // namespace pagoda
