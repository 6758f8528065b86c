#include "tests/bench/events/event_server.h"

#include <grpc/grpc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "manager/api/cache_client.h"
#include "manager/shared_manager.h"
#include "server/config/config.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "server/supervision/processor_share.h"
#include "tests/bench/figure.h"
#include "tests/bench/service/noop_service.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kSpareBlocks = 4096;
constexpr uint32_t kVocabulary = 150'000;
constexpr uint32_t kAllocationsBesideSnapshots = 1000;  // A second.
constexpr uint32_t kPromptTokens = 512 * kServiceTokensPerBlock;

std::string NameOf(EventServer::Fill fill) {
  switch (fill) {
    case EventServer::Fill::kLog:
      return "log";
    case EventServer::Fill::kCache:
      return "cache";
    case EventServer::Fill::kAllocations:
      return "allocations";
    case EventServer::Fill::kPrompts:
      return "prompts";
  }
  return "";
}

server::Config ConfigOf(const std::string& fill, uint32_t number) {
  server::Config config;
  config.cache.name = absl::StrCat("events-bench-", getpid());
  config.cache.tokens_per_block = kServiceTokensPerBlock;
  config.cache.primary_memory = server::PrimaryMemory::kHost;
  config.cache.huge_pages = HugePages::kOff;
  config.cache.primary = BlockBudget{{(fill == "cache" ? number : 0) + kSpareBlocks}};
  config.cache.layers = {{.count = 1, .num_kv_heads = 1, .head_dim = 1}};
  config.server.unix_socket =
      (std::filesystem::temp_directory_path() / (config.cache.name + ".sock")).string();
  config.server.grpc_address = "";
  config.server.http_address = "";
  config.events.max_events = fill == "log" ? number + 4096 : 1 << 16;
  // Full before the subscribers connect.
  config.events.max_bytes = fill == "prompts" ? uint64_t{16} << 20 : uint64_t{4} << 30;
  config.server.drain_timeout = absl::Seconds(1);
  return config;
}

void Require(bool ok, const char* what) {
  if (ok) return;
  std::cerr << "events_bench: " << what << "\n";
  std::exit(EXIT_FAILURE);
}

void FillLog(CacheClient& client, uint32_t events) {
  for (uint32_t done = 0; done < events;) {
    std::vector<Operation> take(512, AllocateBlocks{.count = 1});
    const auto taken = client.Execute(take);
    Require(taken.ok(), "no blocks");
    std::vector<Operation> give;
    for (const auto& result : taken->results) {
      const auto& blocks = std::get<AllocatedBlocks>(*result).blocks;
      give.push_back(FreeBlocks{.blocks = {{blocks[0].id, blocks[0].generation}}});
    }
    Require(client.Execute(give).ok(), "blocks cannot be freed");
    done += 1024;
  }
}

// Prompts with different numbers have no common beginning.
void CachePrompt(CacheClient& client, uint32_t number) {
  std::vector<TokenId> prompt(kPromptTokens);
  TokenId token = number * kPromptTokens;
  for (TokenId& each : prompt) each = token++ % kVocabulary;
  prompt[0] = number;
  const std::vector<Operation> cache = {
      AddSequence{.sequence = SequenceId{1}, .tokens = prompt},
      CommitTokens{.sequence = SequenceId{1}, .computed_tokens = kPromptTokens},
      FreeSequence{.sequence = SequenceId{1}}};
  const auto result = client.Execute(cache);
  Require(result.ok() && result->results[1].ok(), "a prompt is not cached");
}

void FillCache(CacheClient& client, uint32_t blocks) {
  constexpr uint32_t kPromptBlocks = kPromptTokens / kServiceTokensPerBlock;
  for (uint32_t i = 0; i * kPromptBlocks < blocks; ++i) CachePrompt(client, i);
}

// The longest piece of a snapshot, with the piece size of WatchStream.
double LongestPieceMs(const SharedManager& manager) {
  double longest = 0;
  for (SnapshotPosition position; !position.done;) {
    const auto read = [&](const BlockManager& core) {
      return core.ReadSnapshot(position, 2048, 1 << 16, manager.now()).end;
    };
    longest = std::max(longest, Seconds([&] { position = manager.Read(read); }));
  }
  return longest * 1e3;
}

// Takes a raw block and frees it again. Returns the microseconds that taking it took.
double TakeBlock(CacheClient& client) {
  std::optional<BlockRef> block;
  const double seconds = Seconds([&] {
    const auto taken = RunOne<AllocatedBlocks>(client, AllocateBlocks{.count = 1});
    Require(taken.ok(), "no block");
    block = {taken->blocks[0].id, taken->blocks[0].generation};
  });
  const std::vector<Operation> give = {FreeBlocks{.blocks = {*block}}};
  Require(client.Execute(give).ok(), "a block cannot be freed");
  return 1e6 * seconds;
}

// Calls `work`, which returns microseconds, `rate` times a second at equal intervals, until `stop`.
// Prints the returned values once a second as a line.
void Load(uint32_t rate, const std::atomic<bool>& stop, const std::function<double()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto gap = std::chrono::nanoseconds(1'000'000'000 / rate);
  auto next = Clock::now();
  std::vector<double> us;
  while (!stop) {
    std::this_thread::sleep_until(next);
    // Calls that the machine has delayed are made at once, like calls that had to wait.
    while (next <= Clock::now()) {
      next += gap;
      us.push_back(work());
      if (us.size() >= rate) {
        std::cout << absl::StrJoin(us, " ") << "\n" << std::flush;
        us.clear();
      }
    }
  }
}

}  // namespace

EventServer::EventServer(Fill fill, uint32_t number)
    : process_({"--serve", NameOf(fill), "--number", absl::StrCat(number)}),
      endpoint_(process_.ReadLine()) {
  if (fill == Fill::kCache) longest_piece_ms_ = std::stod(process_.ReadLine());
}

std::vector<double> EventServer::ReadWindow() {
  std::vector<double> us;
  std::istringstream line(process_.ReadLine());
  for (double each; line >> each;) us.push_back(each);
  return us;
}

int RunEventServer(const std::string& fill, uint32_t number) {
  signal(SIGPIPE, SIG_IGN);
  server::AskForShortSlices();  // pagodad does the same.
  server::SetLogLevel(server::LogLevel::kWarning);
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc_init();
  NoopService noop;
  absl::StatusOr<std::unique_ptr<server::Daemon>> daemon =
      server::Daemon::Start(ConfigOf(fill, number), /*request_drain=*/{}, {&noop});
  if (!daemon.ok()) {
    std::cerr << "events_bench: " << daemon.status().ToString() << "\n";
    return EXIT_FAILURE;
  }
  {
    auto client = OpenLocalCacheClient(&(*daemon)->manager(), "bench");
    Require(client.ok(), "no session");
    if (fill == "log") FillLog(**client, number);
    if (fill == "cache") FillCache(**client, number);
    std::cout << (*daemon)->grpc_endpoints()[0] << "\n" << std::flush;
    if (fill == "cache") std::cout << LongestPieceMs((*daemon)->manager()) << "\n" << std::flush;
    std::atomic<bool> stop = false;
    std::thread load;
    if (fill == "allocations" || fill == "cache") {
      const uint32_t rate = fill == "cache" ? kAllocationsBesideSnapshots : number;
      load = std::thread([&, rate] { Load(rate, stop, [&] { return TakeBlock(**client); }); });
    }
    if (fill == "prompts") {
      load = std::thread([&] {
        uint32_t next = 0;
        Load(number, stop, [&] { return 1e6 * Seconds([&] { CachePrompt(**client, next++); }); });
      });
    }
    WaitUntilStdinCloses();
    stop = true;
    if (load.joinable()) load.join();
  }
  daemon->reset();
  return EXIT_SUCCESS;
}

}  // namespace pagoda::bench
