// gpu_transfers_bench
// The speed of offloading blocks from GPU memory and onboarding them, one JSON object per line:
// blocks of one size in random order, next to blocks so large that only the device's link matters.
// Exit status 77 without a device or without enough shared memory.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pools/cuda/device.h"
#include "pools/gpu_transfers/transfers.h"
#include "pools/pool.h"
#include "tests/bench/figure.h"

namespace pagoda {
namespace {

constexpr uint64_t kBytes = uint64_t{256} << 20;  // Per tier.
constexpr uint64_t kHeadBytes = 16 << 10;         // K and V of 32 tokens of 128 elements.

[[noreturn]] void Skip(const absl::Status& status) {
  std::printf("skipped: %s\n", status.ToString().c_str());
  std::exit(77);
}

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Bytes per second of copies of all slots, by direction.
struct Rates {
  double down = 0;
  double up = 0;
};

double SecondsOf(Transfers& transfers, Tier from, Tier to, uint32_t slots, uint64_t& ticket) {
  std::vector<uint32_t> targets(slots);
  std::iota(targets.begin(), targets.end(), 0);
  std::shuffle(targets.begin(), targets.end(), std::mt19937(1));
  std::vector<Order> orders;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    orders.push_back({.ticket = Ticket(++ticket),
                      .source = {from, SlotIndex(slot)},
                      .target = {to, SlotIndex(targets[slot])},
                      .num_tokens = 32});
  }
  return bench::Seconds([&] {
    transfers.Submit(orders);
    transfers.WaitUntilIdle();
  });
}

Rates Measure(uint64_t slot_bytes, const MemoryPlace& place, Pinning pinning) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 32,
       .layers = {{.num_kv_heads = static_cast<uint32_t>(slot_bytes / kHeadBytes),
                   .head_dim = 128,
                   .dtype = DType::kBFloat16}}});
  Require(layout.status());
  const auto slots = static_cast<uint32_t>(kBytes / slot_bytes);
  PoolPlacement placement{.pin_lower = pinning};
  placement.primary_device = place;
  auto pools = PoolSet::Create(*layout, {.tiers = {{slots}, {slots}}},
                               absl::StrCat("gpu-bench-", getpid()), placement);
  if (ReasonOf(pools.status()) == Reason::kOutOfMemory) Skip(pools.status());
  Require(pools.status());
  auto transfers = cuda::MakeTransfers(
      pools->get(), {}, [](Lane, Ticket, const absl::Status& status) { Require(status); });
  Require(transfers.status());
  uint64_t ticket = 0;
  const auto rate = [&](Tier from, Tier to) {
    return static_cast<double>(slots * slot_bytes) /
           bench::MedianSeconds([&] { return SecondsOf(**transfers, from, to, slots, ticket); });
  };
  return {.down = rate(kPrimaryTier, Tier(1)), .up = rate(Tier(1), kPrimaryTier)};
}

void Run() {
  const auto device = cuda::DescribeDevice(0);
  if (!device.ok()) Skip(device.status());
  const Rates large = Measure(16 << 20, device->place, Pinning::kRequired);
  for (const auto& [name, bytes, pinning] : {std::tuple("64k", 64 << 10, Pinning::kRequired),
                                             std::tuple("1m", 1 << 20, Pinning::kRequired),
                                             std::tuple("1m_unpinned", 1 << 20, Pinning::kOff)}) {
    const Rates rates = Measure(static_cast<uint64_t>(bytes), device->place, pinning);
    bench::Print({absl::StrCat("gpu_transfers_down_", name), rates.down * 1e-9, "GB/s",
                  "blocks of 16 MiB", large.down * 1e-9});
    bench::Print({absl::StrCat("gpu_transfers_up_", name), rates.up * 1e-9, "GB/s",
                  "blocks of 16 MiB", large.up * 1e-9});
  }
}

}  // namespace
}  // namespace pagoda

int main() {
  pagoda::Run();
  return 0;
}
