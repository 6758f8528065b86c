// What one operation may cost, each at the largest that a client can send: bytes that stay, bytes
// while it runs, and time under the core's lock. The bounds are the table in server/README.md,
// "What one operation costs".
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "pools/error.h"
#include "tests/manager/testing.h"

// --- Bytes of this thread ---

namespace {
thread_local int64_t g_live_bytes = 0;
thread_local int64_t g_most_bytes = 0;

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

// server.max_message_bytes by default. A token below 128 is a byte of a message.
constexpr uint32_t kMessageBytes = 16 << 20;
constexpr uint32_t kBlocks = 65'536;
constexpr uint32_t kTokensPerBlock = 16;
constexpr uint32_t kCacheTokens = kBlocks * kTokensPerBlock;
// A range of retention is at least so many bytes of a message.
constexpr uint32_t kRangeBytes = 8;

// The time that this thread has run: what others do on the machine is not in it.
double ThreadMicroseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct Cost {
  double microseconds = 0;
  int64_t kept_bytes = 0;
  int64_t most_bytes = 0;
};

// A cache with nothing in it, and a client.
class Cache {
 public:
  Cache()
      : log_(EventLog::Limits{.max_events = 1, .max_bytes = 1}),
        manager_(MakeCore(), &log_, [this] { return Now(); }) {
    session_ = manager_.OpenSession("client", absl::InfiniteDuration())->ref;
  }

  // Runs an operation that must succeed, without looking at its cost.
  OperationResult Run(const Operation& operation) {
    absl::StatusOr<BatchResult> batch = manager_.Execute(session_, {&operation, 1});
    EXPECT_TRUE(batch.ok() && batch->results[0].ok())
        << batch.status() << (batch.ok() ? batch->results[0].status() : absl::OkStatus());
    return *std::move(batch->results[0]);
  }
  template <class Result>
  Result Run(const Operation& operation) {
    return std::get<Result>(Run(operation));
  }

  // A refusal costs something, too.
  Cost Measure(const Operation& operation) {
    Cost cost;
    g_most_bytes = g_live_bytes;
    const int64_t before = g_live_bytes;
    locked_at_.reset();
    armed_ = true;
    {
      const absl::StatusOr<BatchResult> batch =
          manager_.ExecuteUntilWait(session_, {&operation, 1}, {});
      // The lock was given back a moment ago.
      cost.microseconds = ThreadMicroseconds() - locked_at_.value_or(0);
      EXPECT_TRUE(batch.ok() && locked_at_.has_value()) << batch.status();
    }
    armed_ = false;
    cost.kept_bytes = std::max<int64_t>(0, g_live_bytes - before);
    cost.most_bytes = g_most_bytes - before;
    return cost;
  }

  SharedManager& manager() { return manager_; }
  SessionRef session() const { return session_; }

 private:
  static std::unique_ptr<BlockManager> MakeCore() {
    return *BlockManager::Create({.layout = TinyLayout(kTokensPerBlock),
                                  .primary_blocks = {kBlocks},
                                  .secondary_blocks = {kBlocks},
                                  .pin_budget_permille = 1000,
                                  .epoch = Epoch{1}});
  }
  // The manager asks for the time first of all when it has the lock.
  absl::Time Now() {
    if (armed_ && !locked_at_.has_value()) locked_at_ = ThreadMicroseconds();
    return absl::UnixEpoch();
  }

  bool armed_ = false;
  std::optional<double> locked_at_;
  EventLog log_;
  SharedManager manager_;
  SessionRef session_;
};

std::vector<TokenId> Tokens(uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = i % 127 + (i / 127) % 2;
  return tokens;
}

std::vector<MultimodalItem> OneImage() {
  return {{.digest = {1, 2, 3, 4}, .token_start = 0, .token_count = 1, .item_offset = 0}};
}

SequenceRetention ManyRanges() {
  SequenceRetention retention;
  for (uint32_t i = 0; i < kMessageBytes / kRangeBytes; ++i) {
    retention.ranges.push_back({.token_start = i, .token_end = i + 1, .retention = {}});
  }
  return retention;
}

constexpr SequenceId kFirst{1}, kSecond{2};

// The whole cache as one sequence: named, and computed.
void AddWhole(Cache& cache) {
  cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens)});
}
void ComputeWhole(Cache& cache) {
  AddWhole(cache);
  cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kCacheTokens});
}
void CacheWhole(Cache& cache) {
  ComputeWhole(cache);
  cache.Run(FreeSequence{.sequence = kFirst});
}
void CacheOneBlock(Cache& cache) {
  cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(kTokensPerBlock)});
  cache.Run(CommitTokens{.sequence = kFirst, .computed_tokens = kTokensPerBlock});
  cache.Run(FreeSequence{.sequence = kFirst});
}

// One row of the table: makes the cache ready, and gives the operation.
struct Case {
  std::string at;
  std::function<Operation(Cache&)> prepare;
};

// The rows of each operation. An operation without them does not compile.
template <class T>
struct Largest;

#define LARGEST(Op, ...)                                       \
  template <>                                                  \
  struct Largest<Op> {                                         \
    static constexpr char kName[] = #Op;                       \
    static std::vector<Case> Cases() { return {__VA_ARGS__}; } \
  }

LARGEST(AllocateBlocks, {"all blocks", [](Cache&) { return AllocateBlocks{.count = kBlocks}; }});
LARGEST(FreeBlocks, {"all blocks", [](Cache& cache) {
                       FreeBlocks op;
                       const auto got =
                           cache.Run<AllocatedBlocks>(AllocateBlocks{.count = kBlocks});
                       for (const BlockHandle& block : got.blocks) op.blocks.push_back(block.ref());
                       return op;
                     }});
LARGEST(AddSequence,
        {"all tokens",
         [](Cache&) { return AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens)}; }},
        {"all tokens, with an image",
         [](Cache&) {
           return AddSequence{
               .sequence = kFirst, .tokens = Tokens(kCacheTokens), .multimodal_items = OneImage()};
         }},
        {"a message of tokens, with an image",
         [](Cache&) {
           return AddSequence{
               .sequence = kFirst, .tokens = Tokens(kMessageBytes), .multimodal_items = OneImage()};
         }},
        {"a message of retention ranges", [](Cache&) {
           return AddSequence{.sequence = kFirst, .tokens = {1, 2, 3}, .retention = ManyRanges()};
         }});
LARGEST(ReserveTokens, {"all tokens", [](Cache& cache) {
                          cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(1)});
                          return ReserveTokens{.sequence = kFirst, .count = kCacheTokens - 1};
                        }});
LARGEST(CommitTokens, {"all tokens", [](Cache& cache) {
                         AddWhole(cache);
                         return CommitTokens{.sequence = kFirst, .computed_tokens = kCacheTokens};
                       }});
LARGEST(AppendTokens, {"all tokens", [](Cache& cache) {
                         cache.Run(AddSequence{.sequence = kFirst, .tokens = Tokens(1)});
                         return AppendTokens{.sequence = kFirst,
                                             .tokens = Tokens(kCacheTokens - 1),
                                             .computed_tokens = kCacheTokens};
                       }});
LARGEST(FreeSequence, {"all tokens", [](Cache& cache) {
                         ComputeWhole(cache);
                         return FreeSequence{.sequence = kFirst};
                       }});
LARGEST(MatchPrefix,
        {"all tokens, cached",
         [](Cache& cache) {
           CacheWhole(cache);
           return MatchPrefix{.tokens = Tokens(kCacheTokens)};
         }},
        {"a message of tokens",
         [](Cache&) { return MatchPrefix{.tokens = Tokens(kMessageBytes)}; }},
        {"a message of tokens, with an image", [](Cache&) {
           return MatchPrefix{.tokens = Tokens(kMessageBytes), .multimodal_items = OneImage()};
         }});
LARGEST(DescribePools, {"one pool a tier", [](Cache&) { return DescribePools{}; }});
LARGEST(DescribeSequence, {"all tokens", [](Cache& cache) {
                             AddWhole(cache);
                             return DescribeSequence{.sequence = kFirst};
                           }});
LARGEST(ForkSequence,
        {"all tokens, computed",
         [](Cache& cache) {
           ComputeWhole(cache);
           return ForkSequence{.sequence = kFirst, .new_sequence = kSecond};
         }},
        {"all tokens, not computed", [](Cache& cache) {
           cache.Run(
               AddSequence{.sequence = kFirst, .tokens = Tokens(kCacheTokens), .room_tokens = 1});
           return ForkSequence{.sequence = kFirst, .new_sequence = kSecond};
         }});
LARGEST(TruncateSequence, {"all tokens to one", [](Cache& cache) {
                             ComputeWhole(cache);
                             return TruncateSequence{.sequence = kFirst, .token_count = 1};
                           }});
LARGEST(QueryCapacity, {"a message of tokens",
                        [](Cache&) { return QueryCapacity{.tokens = Tokens(kMessageBytes)}; }});
LARGEST(OffloadPrefix, {"all tokens", [](Cache& cache) {
                          CacheWhole(cache);
                          return OffloadPrefix{.tokens = Tokens(kCacheTokens)};
                        }});
LARGEST(PrefetchPrefix, {"all tokens", [](Cache& cache) {
                           CacheWhole(cache);
                           cache.Run(OffloadPrefix{.tokens = Tokens(kCacheTokens)});
                           return PrefetchPrefix{.tokens = Tokens(kCacheTokens)};
                         }});
LARGEST(PinPrefix, {"all tokens", [](Cache& cache) {
                      CacheWhole(cache);
                      return PinPrefix{.tokens = Tokens(kCacheTokens)};
                    }});
LARGEST(UnpinPrefix, {"all tokens", [](Cache& cache) {
                        CacheWhole(cache);
                        const auto pinned =
                            cache.Run<PinnedPrefix>(PinPrefix{.tokens = Tokens(kCacheTokens)});
                        return UnpinPrefix{.pin = pinned.pin};
                      }});
LARGEST(ListPins, {"all pins", [](Cache& cache) {
                     CacheOneBlock(cache);
                     const Operation pin = PinPrefix{.tokens = Tokens(kTokensPerBlock)};
                     const std::vector<Operation> pins(kMaxBatchOperations, pin);
                     // Until one is refused.
                     while (cache.manager().Execute(cache.session(), pins)->results.back().ok()) {
                     }
                     return ListPins{};
                   }});
LARGEST(InvalidatePrefix, {"all tokens", [](Cache& cache) {
                             CacheWhole(cache);
                             return InvalidatePrefix{};
                           }});
LARGEST(SetRetention, {"a message of retention ranges", [](Cache& cache) {
                         CacheWhole(cache);
                         return SetRetention{.tokens = Tokens(kCacheTokens / 2),
                                             .retention = ManyRanges()};
                       }});
LARGEST(WaitForTicket, {"a copy that is done", [](Cache&) { return WaitForTicket{}; }});

struct Row {
  std::string operation;
  Case at;
};

template <size_t... kIndex>
std::vector<Row> AllRows(std::index_sequence<kIndex...>) {
  std::vector<Row> rows;
  const auto add = [&rows](const char* name, std::vector<Case> cases) {
    for (Case& one : cases) rows.push_back({name, std::move(one)});
  };
  (add(Largest<std::variant_alternative_t<kIndex, Operation>>::kName,
       Largest<std::variant_alternative_t<kIndex, Operation>>::Cases()),
   ...);
  return rows;
}

// --- The table ---

using Name = std::pair<std::string, std::string>;  // Operation, and at what.

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
  std::ifstream readme(PAGODA_SOURCE_DIR "/server/README.md");
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

// How much slower than the machine of the table this one is, by work of the same kind: hashing, and
// memory that lies nowhere in particular. At least 1.
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

TEST(OperationBoundsTest, EveryOperationKeepsTheTable) {
  const std::map<Name, Cost> table = ReadTable();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
  constexpr bool kMeasures = false;  // The rows are run, and compared with the table by name.
#else
  constexpr bool kMeasures = true;
#endif
  const double slowness = Slowness();
  size_t rows = 0;
  std::printf("this machine is %.2f times as slow as that of the table\n", slowness);
  for (const Row& row : AllRows(std::make_index_sequence<std::variant_size_v<Operation>>())) {
    ++rows;
    const auto bound = table.find({row.operation, row.at.at});
    const Cost most = bound == table.end() ? Cost{} : bound->second;
    Cost cost;
    for (int round = 0; round < 3; ++round) {  // Again where something else may have slowed it.
      Cache cache;
      const Operation operation = row.at.prepare(cache);
      const Cost once = cache.Measure(operation);
      cost = {round == 0 ? once.microseconds : std::min(cost.microseconds, once.microseconds),
              once.kept_bytes, once.most_bytes};
      if (!kMeasures || cost.microseconds <= most.microseconds * slowness) break;
    }
    std::printf("| %s | %s | %lld KiB | %lld KiB | %.0f |\n", row.operation.c_str(),
                row.at.at.c_str(), static_cast<long long>((cost.kept_bytes + 1023) >> 10),
                static_cast<long long>((cost.most_bytes + 1023) >> 10), cost.microseconds);
    if (bound == table.end()) {
      ADD_FAILURE() << row.operation << ", " << row.at.at << ": no row in server/README.md";
      continue;
    }
    if (!kMeasures) continue;
    const std::string what = absl::StrCat(row.operation, ", ", row.at.at);
    EXPECT_LE(cost.kept_bytes, most.kept_bytes) << what;
    EXPECT_LE(cost.most_bytes, most.most_bytes) << what;
    EXPECT_LE(cost.microseconds, most.microseconds * slowness) << what;
  }
  EXPECT_EQ(rows, table.size()) << "server/README.md has rows for what is no operation";
}

}  // namespace
}  // namespace pagoda
