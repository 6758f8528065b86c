// Copies in random order over few slots, against a naive model that makes them one after another.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "pools/transfers.h"
#include "tests/pools/transfer_recorder.h"

namespace pagoda {
namespace {

constexpr uint32_t kTokens = 8;
constexpr uint32_t kPrimarySlots = 3;
constexpr uint32_t kSecondarySlots = 2;
constexpr uint64_t kOrders = 200;

CacheLayout TwoWindows() {
  return *CacheLayout::Create({.tokens_per_block = kTokens,
                               .layers = {{.num_kv_heads = 2, .head_dim = 4},
                                          {.num_kv_heads = 1, .head_dim = 4},
                                          {.window = WindowSize(16),
                                           .num_kv_heads = 3,
                                           .head_dim = 2,
                                           .dtype = DType::kFloat16,
                                           .kind = KvKind::kKeyOnly}}});
}

// A slot of one window, as a map key.
using SlotKey = std::array<uint32_t, 3>;  // Window, tier, slot.

// Orders as the core makes them: each names the last that touched its source and its target.
class RandomOrders {
 public:
  explicit RandomOrders(uint32_t seed) : random_(seed) {}

  CopyOrder Next(const CacheLayout& layout) {
    const uint32_t window = Below(static_cast<uint32_t>(layout.windows().size()));
    CopyOrder order{.ticket = Ticket(++last_),
                    .window = layout.windows()[window].window,
                    .source = Slot(),
                    .num_tokens = Below(2) == 0 ? kTokens : 1 + Below(kTokens)};
    do {
      order.target = Slot();
    } while (order.target == order.source);
    order.after = {Touch(window, order.source), Touch(window, order.target)};
    return order;
  }
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

 private:
  SlotRef Slot() {
    const uint32_t slot = Below(kPrimarySlots + kSecondarySlots);
    if (slot < kPrimarySlots) return {Tier::kPrimary, SlotIndex(slot)};
    return {Tier::kSecondary, SlotIndex(slot - kPrimarySlots)};
  }
  // Returns the order that touched the slot last; from now on it is the present one.
  Ticket Touch(uint32_t window, SlotRef ref) {
    return std::exchange(last_touch_[{window, static_cast<uint32_t>(ref.tier), ref.slot.value()}],
                         Ticket(last_));
  }

  std::mt19937 random_;
  uint64_t last_ = 0;
  std::map<SlotKey, Ticket> last_touch_;
};

// The bytes of every pool, by window, pool and tier.
using Bytes = std::map<std::array<uint32_t, 3>, std::vector<std::byte>>;

template <class Visitor>
void ForEachPool(const CacheLayout& layout, Visitor visit) {
  for (uint32_t w = 0; w < layout.windows().size(); ++w) {
    for (uint32_t p = 0; p < layout.windows()[w].pools.size(); ++p) {
      for (const Tier tier : {Tier::kPrimary, Tier::kSecondary}) visit(w, p, tier);
    }
  }
}

Bytes Snapshot(PoolSet& pools) {
  Bytes bytes;
  ForEachPool(pools.layout(), [&](uint32_t w, uint32_t p, Tier tier) {
    const absl::Span<std::byte> all = pools.pool(w, p, tier).bytes();
    bytes[{w, p, static_cast<uint32_t>(tier)}].assign(all.begin(), all.end());
  });
  return bytes;
}

// One byte after another: byte b of a slot is of token b / (bytes a token) % (tokens a block).
void CopyInModel(const CacheLayout& layout, const CopyOrder& order, Bytes& bytes) {
  for (uint32_t w = 0; w < layout.windows().size(); ++w) {
    if (layout.windows()[w].window != order.window) continue;
    for (uint32_t p = 0; p < layout.windows()[w].pools.size(); ++p) {
      const PoolLayout& pool = layout.windows()[w].pools[p];
      const uint64_t stride = pool.slot_stride_bytes();
      const auto& from = bytes[{w, p, static_cast<uint32_t>(order.source.tier)}];
      auto& to = bytes[{w, p, static_cast<uint32_t>(order.target.tier)}];
      for (uint64_t b = 0; b < stride; ++b) {
        if (b / pool.token_stride_bytes() % kTokens >= order.num_tokens) continue;
        to[order.target.slot.value() * stride + b] = from[order.source.slot.value() * stride + b];
      }
    }
  }
}

class TransfersStressTest : public testing::TestWithParam<uint32_t> {};  // The number of threads.

TEST_P(TransfersStressTest, AnyOrderOfCopiesEndsAsOneAfterAnother) {
  const CacheLayout layout = TwoWindows();
  for (uint32_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    auto pools = PoolSet::Create(layout,
                                 {.primary = {kPrimarySlots, kPrimarySlots},
                                  .secondary = {kSecondarySlots, kSecondarySlots}},
                                 absl::StrCat("stress-", getpid()));
    ASSERT_TRUE(pools.ok()) << pools.status();
    RandomOrders random(seed);
    ForEachPool(layout, [&](uint32_t w, uint32_t p, Tier tier) {
      for (std::byte& byte : (*pools)->pool(w, p, tier).bytes()) {
        byte = static_cast<std::byte>(random.Below(256));
      }
    });

    std::vector<CopyOrder> orders;
    std::vector<uint32_t> delays_us;
    std::vector<bool> fails;
    for (uint64_t i = 0; i < kOrders; ++i) {
      orders.push_back(random.Next(layout));
      delays_us.push_back(random.Below(8) == 0 ? random.Below(200) : 0);
      fails.push_back(random.Below(16) == 0);
    }
    Bytes expected = Snapshot(**pools);
    for (uint64_t i = 0; i < kOrders; ++i) {
      if (!fails[i]) CopyInModel(layout, orders[i], expected);
    }

    TransferRecorder recorder;
    {
      HostTransfers transfers(pools->get(),
                              {.num_threads = GetParam(),
                               .before_copy =
                                   [&](const CopyOrder& order) {
                                     const uint64_t i = order.ticket.value() - 1;
                                     if (delays_us[i] > 0)
                                       absl::SleepFor(absl::Microseconds(delays_us[i]));
                                     return fails[i] ? absl::DataLossError("planted")
                                                     : absl::OkStatus();
                                   }},
                              recorder.completion());
      for (uint64_t i = 0; i < kOrders;) {
        const uint64_t count = std::min<uint64_t>(1 + random.Below(8), kOrders - i);
        transfers.Submit(absl::MakeConstSpan(orders).subspan(i, count));
        i += count;
      }
      transfers.Drain();
    }
    EXPECT_EQ(Snapshot(**pools), expected);

    std::vector<uint64_t> place(kOrders + 1, kOrders);  // Of each ticket among the completions.
    const std::vector<TransferRecorder::Completed> completed = recorder.completed();
    ASSERT_EQ(completed.size(), kOrders);
    for (uint64_t i = 0; i < kOrders; ++i) {
      const auto& [ticket, status] = completed[i];
      ASSERT_EQ(place[ticket], kOrders) << "ticket " << ticket << " is reported twice";
      place[ticket] = i;
      EXPECT_EQ(status.ok(), !fails[ticket - 1]) << "ticket " << ticket;
    }
    for (const CopyOrder& order : orders) {
      for (const Ticket earlier : order.after) {
        if (earlier == Ticket(0)) continue;
        EXPECT_LT(place[earlier.value()], place[order.ticket.value()]) << order.ticket;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, TransfersStressTest, testing::Values(1, 2, 5));

}  // namespace
}  // namespace pagoda
