#include "tests/conformance/pool_bytes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "pools/copy_work.h"
#include "pools/sizing.h"

namespace pagoda {
namespace {

// A token has this many bytes in each layer, part and head: the size of its number.
constexpr uint32_t kTokenBytes = sizeof(uint64_t);
constexpr uint32_t kPageTail = 3;  // Bytes of an opaque page behind its tokens.

// Different at each place of a token.
std::array<std::byte, kTokenBytes> ValueOf(uint64_t number, uint64_t place) {
  const uint64_t mixed = (number + place) * 0x9E3779B97F4A7C15u;
  std::array<std::byte, kTokenBytes> bytes;
  std::memcpy(bytes.data(), &mixed, kTokenBytes);
  return bytes;
}

}  // namespace

std::vector<LayerSpec> PoolBytes::LayersOf(WindowSize window, uint32_t tokens_per_block) {
  return {
      {.window = window,
       .kind = KvKind::kOpaque,
       .bytes_per_block = uint64_t{kTokenBytes} * tokens_per_block + kPageTail},
      {.window = window,
       .num_kv_heads = 1,
       .head_dim = kTokenBytes / 2,
       .dtype = DType::kBFloat16,
       .kind = KvKind::kKeyOnly},
      {.window = window, .num_kv_heads = 2, .head_dim = kTokenBytes, .dtype = DType::kFloat8E4M3}};
}

absl::StatusOr<std::unique_ptr<PoolBytes>> PoolBytes::Create(const CacheLayout& layout,
                                                             absl::Span<const TierSpec> tiers) {
  SlotCounts slots;
  for (size_t t = 0; t < tiers.size(); ++t) {
    std::vector<uint32_t>& of_tier = slots.tiers.emplace_back();
    for (size_t w = 0; w < layout.windows().size(); ++w) {
      of_tier.push_back(SlotsFor(Tier(t), tiers[t].blocks_in(w)));
    }
  }
  auto bytes = absl::WrapUnique(new PoolBytes);
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(layout, slots, absl::StrCat("conformance-", getpid()));
  if (!pools.ok()) return pools.status();
  bytes->pools_ = *std::move(pools);
  for (const PoolMapping& mapping : bytes->pools_->Mappings()) {
    absl::StatusOr<std::unique_ptr<MappedPool>> mapped = MappedPool::Open(mapping);
    if (!mapped.ok()) return mapped.status();
    bytes->mapped_.push_back(*std::move(mapped));
  }
  return bytes;
}

void PoolBytes::ForEachPlace(
    WindowSize window, SlotRef slot, uint32_t offset, uint64_t number,
    absl::FunctionRef<void(absl::Span<std::byte> bytes, absl::Span<const std::byte> value)> visit)
    const {
  uint64_t place = 0;
  for (const std::unique_ptr<MappedPool>& pool : mapped_) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.window != window || mapping.tier != slot.tier) continue;
    const PoolLayout& layout = mapping.layout;
    const absl::Span<std::byte> bytes = pool->slot(slot.slot);
    const auto visit_at = [&](uint64_t begin, uint64_t count) {
      const auto value = ValueOf(number, ++place);
      visit(bytes.subspan(begin, count), absl::MakeConstSpan(value).first(count));
    };
    for (uint64_t layer = 0; layer < layout.layers.size(); ++layer) {
      const uint64_t begin = layer * layout.layer_stride_bytes();
      if (layout.content == PoolContent::kOpaque) {
        visit_at(begin + offset * kTokenBytes, kTokenBytes);
        if (offset == 0) visit_at(begin + layout.bytes_per_block - kPageTail, kPageTail);
        continue;
      }
      for (uint32_t head = 0; head < layout.kv_factor * layout.num_kv_heads; ++head) {
        const uint64_t part = begin + head * layout.head_stride_bytes();
        if (layout.content == PoolContent::kElements) {
          visit_at(part + offset * layout.token_stride_bytes(), kTokenBytes);
        } else if (offset == 0) {
          visit_at(part, sizeof(float));
        }
      }
    }
  }
}

void PoolBytes::Write(WindowSize window, SlotRef slot, uint32_t offset, uint64_t number) {
  ForEachPlace(window, slot, offset, number,
               [](absl::Span<std::byte> bytes, absl::Span<const std::byte> value) {
                 std::copy(value.begin(), value.end(), bytes.begin());
               });
}

bool PoolBytes::Holds(WindowSize window, SlotRef slot, uint32_t offset, uint64_t number) const {
  bool holds = true;
  ForEachPlace(window, slot, offset, number,
               [&](absl::Span<std::byte> bytes, absl::Span<const std::byte> value) {
                 holds = holds && std::equal(value.begin(), value.end(), bytes.begin());
               });
  return holds;
}

void PoolBytes::CarryOut(const Order& order) {
  const CopyOutcome outcome = CarryOutOnHost(order, *pools_, std::chrono::steady_clock::now());
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

void PoolBytes::Spoil(const Order& order) {
  const WindowSize window = pools_->layout().windows()[order.window_index].window;
  for (const std::unique_ptr<MappedPool>& pool : mapped_) {
    const PoolMapping& mapping = pool->mapping();
    if (mapping.window != window || mapping.tier != order.target.tier) continue;
    const absl::Span<std::byte> bytes = pool->slot(order.target.slot);
    std::fill(bytes.begin(), bytes.end(), std::byte{0xAD});
  }
}

}  // namespace pagoda
