// A prefix that one process fetches from another one's host memory, as daemons do: by BlockExchange
// and RedisStore from a PeerServer. tests/bench/tiers/peer_bench.py runs it beside iperf3.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "events/event_log.h"
#include "manager/exchange/block_exchange.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "pools/store/redis_store.h"
#include "server/peers/peer_server.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kBlockTokens = 32;

template <class T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "peer_bench: %s\n", std::string(result.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(result);
}

std::vector<TokenId> Prompt(uint32_t blocks) {
  std::vector<TokenId> tokens(blocks * kBlockTokens);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i * 2654435761u >> 8;
  return tokens;
}

// A cache in shared memory with room for the prefix and some blocks.
struct Cache {
  Cache(uint64_t block_bytes, uint32_t blocks) {
    const CacheLayout layout = Must(CacheLayout::Create(
        {.name = "bench",
         .model_fingerprint = "org/bench",
         .tokens_per_block = kBlockTokens,
         .layers = {{.kind = KvKind::kOpaque, .bytes_per_block = block_bytes}}}));
    const uint32_t room = blocks + 8;
    pools =
        Must(PoolSet::Create(layout, {.tiers = {{room}}}, absl::StrCat("peer-bench-", getpid())));
    manager = std::make_unique<SharedManager>(
        Must(BlockManager::Create({.layout = layout,
                                   .tiers = {{.name = "dram", .blocks = {room}}},
                                   .pool_mappings = pools->Mappings(),
                                   .epoch = Epoch(1)})),
        &log);
  }

  std::unique_ptr<PoolSet> pools;
  EventLog log{EventLog::Limits{}};
  std::unique_ptr<SharedManager> manager;
};

// Computes the prefix and serves it until standard input ends.
int Serve(uint64_t block_bytes, uint32_t blocks) {
  Cache cache(block_bytes, blocks);
  auto client = Must(OpenLocalCacheClient(cache.manager.get(), "engine"));
  const std::vector<TokenId> tokens = Prompt(blocks);
  const auto added = Must(
      RunOne<AddedSequence>(*client, AddSequence{.sequence = SequenceId(1), .tokens = tokens}));
  for (const BlockHandle& block : added.tables[0].blocks) {
    const absl::Span<std::byte> slot = cache.pools->pool(0, 0).slot(block.slot);
    for (size_t i = 0; i < slot.size(); i += sizeof(uint64_t)) {
      const uint64_t word = (i + block.slot.value()) * 0x9E3779B97F4A7C15;
      std::memcpy(slot.data() + i, &word, sizeof word);
    }
  }
  Must(RunOne<CommittedTokens>(
      *client, CommitTokens{.sequence = SequenceId(1),
                            .computed_tokens = static_cast<uint32_t>(tokens.size())}));
  auto server = Must(server::PeerServer::Start({.address = {.host = "127.0.0.1", .port = 0}}));
  const absl::Status status = server->AddCache(
      {.name = "bench", .manager = cache.manager.get(), .pools = cache.pools.get()});
  PAGODA_CHECK(status.ok(), "the cache is served");
  std::printf("%u\n", unsigned{server->address().port});
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}

// Fetches the prefix again and again, and prints how long each fetch took.
int Fetch(uint16_t port, uint64_t block_bytes, uint32_t blocks, int rounds) {
  Cache cache(block_bytes, blocks);
  const auto store = Must(RedisStore::Create({.seeds = {{"127.0.0.1", port}}}));
  const auto exchange = Must(BlockExchange::Create(cache.manager.get(), cache.pools.get(),
                                                   store.get(), {.fetch_base = absl::Minutes(1)}));
  const std::vector<TokenId> tokens = Prompt(blocks);
  // The first one connects, and touches the memory.
  for (int round = -1; round < rounds; ++round) {
    absl::Notification done;
    FetchedPrefix fetched;
    const double cpu = CpuSeconds();
    const double seconds = Seconds([&] {
      exchange->Fetch({.name_space = {}, .tokens = tokens}, absl::Minutes(1),
                      [&](const FetchedPrefix& result) {
                        fetched = result;
                        done.Notify();
                      });
      done.WaitForNotification();
    });
    PAGODA_CHECK(fetched.fetched_tokens == tokens.size(), "the whole prefix was fetched");
    if (round >= 0) std::printf("%.9f %.9f\n", seconds, CpuSeconds() - cpu);
    cache.manager->ResetPrefixCache();
  }
  return 0;
}

}  // namespace
}  // namespace pagoda::bench

// peer_bench serve BLOCK_BYTES BLOCKS
// peer_bench fetch BLOCK_BYTES BLOCKS PORT ROUNDS
int main(int argc, char** argv) {
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (argc == 4 && std::strcmp(argv[1], "serve") == 0) {
    return pagoda::bench::Serve(number(2), static_cast<uint32_t>(number(3)));
  }
  if (argc == 6 && std::strcmp(argv[1], "fetch") == 0) {
    return pagoda::bench::Fetch(static_cast<uint16_t>(number(4)), number(2),
                                static_cast<uint32_t>(number(3)), static_cast<int>(number(5)));
  }
  std::fprintf(stderr,
               "peer_bench serve BLOCK_BYTES BLOCKS\n"
               "peer_bench fetch BLOCK_BYTES BLOCKS PORT ROUNDS\n");
  return 2;
}
