// The cost of a warm restart: reporting to the stamper under the core's lock, writing stamps,
// taking blocks back. Pools of 512 MiB in /dev/shm, blocks of 128 KiB.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "manager/restart/recovery.h"
#include "manager/restart/slot_checksum.h"
#include "manager/restart/slot_stamper.h"
#include "manager/restart/stamp_set.h"
#include "pools/pool.h"
#include "tests/bench/figure.h"

namespace pagoda::bench {
namespace {

constexpr uint32_t kTokensPerBlock = 16;
constexpr uint32_t kSlots = 4096;
constexpr uint32_t kChain = 64;  // Blocks of a prompt; also the slot changes of a call.
constexpr uint32_t kRecoveryThreads = 2;
constexpr double kGiga = 1e9;

CacheLayout Layout() {
  return *CacheLayout::Create(
      {.name = "bench",
       .tokens_per_block = kTokensPerBlock,
       .layers = std::vector(8, LayerSpec{.num_kv_heads = 2, .head_dim = 64})});
}

std::string Instance() { return absl::StrCat("bench-", getpid()); }

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

// The pools and stamps of one daemon's life.
struct Life {
  explicit Life(const std::string& instance)
      : pools(Must(
            PoolSet::Create(Layout(), {.tiers = {{kSlots}}}, instance, MemoryLifetime::kKept))),
        stamps(Must(StampSet::Create(*pools, instance))) {
    pools->KeepNames();
    stamps->KeepNames();
  }

  std::unique_ptr<PoolSet> pools;
  std::unique_ptr<StampSet> stamps;
};

// Prompts of kChain blocks that fill the pool, one call of the core for each.
std::vector<std::vector<SlotChange>> Prompts(uint32_t generation) {
  std::mt19937 random(generation);
  std::vector<std::vector<SlotChange>> prompts;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (slot % kChain == 0) prompts.emplace_back();
    SlotContent content{.block = {BlockId{slot}, Generation{generation}}};
    if (slot % kChain != 0) content.parent = {BlockId{slot - 1}, Generation{generation}};
    content.tokens.resize(kTokensPerBlock);
    for (TokenId& token : content.tokens) token = random();
    prompts.back().push_back({.window_index = 0,
                              .slot = {kPrimaryTier, SlotIndex{slot}},
                              .content = std::move(content)});
  }
  return prompts;
}

std::vector<std::vector<SlotChange>> Losses() {
  std::vector<std::vector<SlotChange>> losses = Prompts(1);
  for (std::vector<SlotChange>& call : losses) {
    for (SlotChange& change : call) change.content.reset();
  }
  return losses;
}

// The cost of reporting without stamps: moves the changes into a queue under a lock.
double SecondsToQueue(std::vector<std::vector<SlotChange>> calls) {
  absl::Mutex mutex;
  std::deque<SlotChange> queue;
  return Seconds([&] {
    for (std::vector<SlotChange>& call : calls) {
      absl::MutexLock lock(&mutex);
      for (SlotChange& change : call) queue.push_back(std::move(change));
    }
  });
}

double SecondsToTell(SlotStamper& stamper, std::vector<std::vector<SlotChange>> calls) {
  return Seconds([&] {
    for (std::vector<SlotChange>& call : calls) stamper.Apply(std::move(call));
  });
}

void Run() {
  const std::string instance = Instance();
  uint32_t generation = 0;
  const double bytes = double{kSlots} * Layout().windows()[0].block_bytes();
  {
    Life life(instance);
    std::mt19937_64 random(1);
    const absl::Span<std::byte> pool = life.pools->pool(0, 0).bytes();
    for (size_t i = 0; i + 8 <= pool.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(&pool[i], &word, 8);
    }
    const double hash = MedianSeconds([&] { return Seconds([&] { Checksum(pool); }); });
    std::vector<std::byte> copy(64 << 20);
    const double move = MedianSeconds([&] {
      return Seconds([&] {
        for (size_t at = 0; at < pool.size(); at += copy.size()) {
          std::memcpy(copy.data(), &pool[at], copy.size());
        }
      });
    });
    SlotStamper stamper(life.pools.get(), life.stamps.get());
    const double queued = MedianSeconds([&] { return SecondsToQueue(Prompts(++generation)); });
    const double told = MedianSeconds([&] {
      const double seconds = SecondsToTell(stamper, Prompts(++generation));
      stamper.Flush();
      return seconds;
    });
    Print({"stamp_tell_content", told / kSlots * 1e9, "ns", "move into a queue",
           queued / kSlots * 1e9});
    const double queued_losses = MedianSeconds([&] { return SecondsToQueue(Losses()); });
    const double losses = MedianSeconds([&] { return SecondsToTell(stamper, Losses()); });
    Print({"stamp_tell_loss", losses / kSlots * 1e9, "ns", "move into a queue",
           queued_losses / kSlots * 1e9});
    const double stamped = MedianSeconds([&] {
      auto prompts = Prompts(++generation);
      return Seconds([&] {
        SecondsToTell(stamper, std::move(prompts));
        stamper.Flush();
      });
    });
    Print(
        {"stamp_write", bytes / stamped / kGiga, "GB/s", "XXH3 of the pool", bytes / hash / kGiga});
    Print({"stamp_write_memcpy", bytes / stamped / kGiga, "GB/s", "memcpy of the pool",
           bytes / move / kGiga});
    PAGODA_CHECK(stamper.stats().dropped == 0, "everything was stamped");
  }
  Life life(instance);
  const double hash =
      MedianSeconds([&] { return Seconds([&] { Checksum(life.pools->pool(0, 0).bytes()); }); });
  const double recovered = MedianSeconds([&] {
    return Seconds([&] {
      const Recovery recovery =
          Recover(*life.pools, *life.stamps, {.num_threads = kRecoveryThreads});
      PAGODA_CHECK(recovery.report.recovered == kSlots, "every block is found again");
    });
  });
  Print({"recover_2_threads", bytes / recovered / kGiga, "GB/s", "XXH3 of the pool, one thread",
         bytes / hash / kGiga});
  Print({"recover_block", recovered / kSlots * 1e6, "us", "XXH3 of a block", hash / kSlots * 1e6});
}

void RemoveMemory() {
  PAGODA_CHECK(PoolSet::RemoveLeftovers(Layout(), Instance()).ok() &&
                   StampSet::RemoveLeftovers(Layout(), Instance()).ok(),
               "the benchmark's memory can be removed");
}

}  // namespace
}  // namespace pagoda::bench

int main() {
  pagoda::bench::Run();
  pagoda::bench::RemoveMemory();
  return 0;
}
