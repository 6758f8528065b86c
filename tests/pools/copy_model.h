// Copies in random order over few slots, and a naive model that makes them one after another.
#ifndef PAGODA_TESTS_POOLS_COPY_MODEL_H_
#define PAGODA_TESTS_POOLS_COPY_MODEL_H_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "pools/layout.h"
#include "pools/order.h"
#include "tests/pools/transfer_recorder.h"

namespace pagoda::copy_model {

inline constexpr uint32_t kTokens = 8;
inline constexpr uint32_t kPrimarySlots = 3;
inline constexpr uint32_t kLowerSlots = 2;

inline CacheLayout TwoWindows() {
  return *CacheLayout::Create(
      {.tokens_per_block = kTokens,
       .layers = {{.num_kv_heads = 2, .head_dim = 4},
                  {.num_kv_heads = 1, .head_dim = 4},
                  {.window = WindowSize(16),
                   .num_kv_heads = 3,
                   .head_dim = 2,
                   .dtype = DType::kFloat16,
                   .kind = KvKind::kKeyOnly},
                  {.window = WindowSize(16),
                   .num_kv_heads = 1,
                   .head_dim = 3,
                   .dtype = DType::kFloat8E5M2},
                  {.window = WindowSize(16), .kind = KvKind::kOpaque, .bytes_per_block = 13}}});
}

// A slot of one window, as a map key.
using SlotKey = std::array<uint32_t, 3>;  // Window, tier, slot.

// Makes orders as the core does: each names the last orders that touched its source and its target.
class RandomOrders {
 public:
  explicit RandomOrders(uint32_t seed) : random_(seed) {}

  Order Next(const CacheLayout& layout) {
    const uint32_t window = Below(static_cast<uint32_t>(layout.windows().size()));
    Order order{.ticket = Ticket(++last_),
                .window_index = window,
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
    const uint32_t slot = Below(kPrimarySlots + kLowerSlots);
    if (slot < kPrimarySlots) return {kPrimaryTier, SlotIndex(slot)};
    return {Tier(1), SlotIndex(slot - kPrimarySlots)};
  }
  // Returns the order that touched the slot last, and records the present order.
  Ticket Touch(uint32_t window, SlotRef ref) {
    return std::exchange(last_touch_[{window, ref.tier.value(), ref.slot.value()}], Ticket(last_));
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
      for (const Tier tier : {kPrimaryTier, Tier(1)}) visit(w, p, tier);
    }
  }
}

// Copies byte by byte. Byte b of a slot belongs to token b / (bytes per token) % (tokens per
// block). Scales and opaque bytes belong to every token.
inline void CopyInModel(const CacheLayout& layout, const Order& order, Bytes& bytes) {
  const uint32_t w = order.window_index;
  for (uint32_t p = 0; p < layout.windows()[w].pools.size(); ++p) {
    const PoolLayout& pool = layout.windows()[w].pools[p];
    const uint64_t stride = pool.slot_stride_bytes();
    const auto& from = bytes[{w, p, order.source.tier.value()}];
    auto& to = bytes[{w, p, order.target.tier.value()}];
    for (uint64_t b = 0; b < stride; ++b) {
      const bool by_token = pool.content == PoolContent::kElements;
      if (by_token && b / pool.token_stride_bytes() % kTokens >= order.num_tokens) continue;
      to[order.target.slot.value() * stride + b] = from[order.source.slot.value() * stride + b];
    }
  }
}

// Checks that each order was reported once, after the orders that it waits for, and failed if
// expected. Tickets count from 1.
inline void CheckReports(const std::vector<Order>& orders, const std::vector<bool>& fails,
                         const std::vector<TransferRecorder::Completed>& completed) {
  const uint64_t count = orders.size();
  ASSERT_EQ(completed.size(), count);
  std::vector<uint64_t> place(count + 1, count);  // By ticket, its position among the completions.
  for (uint64_t i = 0; i < count; ++i) {
    const auto& [ticket, status] = completed[i];
    ASSERT_EQ(place[ticket], count) << "ticket " << ticket << " is reported twice";
    place[ticket] = i;
    EXPECT_EQ(status.ok(), !fails[ticket - 1]) << "ticket " << ticket << ": " << status;
  }
  for (const Order& order : orders) {
    for (const Ticket earlier : order.after) {
      if (earlier == Ticket(0)) continue;
      EXPECT_LT(place[earlier.value()], place[order.ticket.value()]) << order.ticket;
    }
  }
}

}  // namespace pagoda::copy_model

#endif  // PAGODA_TESTS_POOLS_COPY_MODEL_H_
