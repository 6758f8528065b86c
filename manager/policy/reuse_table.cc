#include "manager/policy/reuse_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/byte_codec.h"
#include "base/error.h"

namespace pagoda {
namespace {

using Counts = ReuseIndex::Counts;
using OfClass = std::array<Counts, ReuseIndex::kBins>;

// Change it when a class, a bin or a count means something else.
constexpr uint32_t kTableFormat = 2;
constexpr size_t kTableBytes = 4 * sizeof(uint32_t) +
                               ReuseClass::kCount * ReuseIndex::kBins * 2 * sizeof(uint32_t) +
                               3 * sizeof(uint32_t);
constexpr uint32_t kMostShift = 31;
constexpr float kMostCount = 1e9F;  // Far more than a sample sees.
constexpr uint32_t kBinsAnOctave = 3;

void PutFloat(float value, ByteWriter& out) { out.Put(std::bit_cast<uint32_t>(value)); }

// False unless it is between the two.
bool GetFloat(ByteReader& in, float least, float most, float* value) {
  *value = std::bit_cast<float>(in.Get<uint32_t>());
  return *value >= least && *value <= most;
}

// Later ages are `bins` bins higher: the first bin becomes bins + 1 of them.
OfClass Stretched(const OfClass& from, uint32_t bins) {
  OfClass to = {};
  const float step = from[0].reused / static_cast<float>(bins + 1);
  for (uint32_t k = 0; k < ReuseIndex::kBins; ++k) {
    to[k] = k > bins
                ? from[k - bins]
                : Counts{.reached = std::max(0.0F, from[0].reached - step * static_cast<float>(k)),
                         .reused = step};
  }
  // What lies beyond the last bin.
  for (uint32_t k = ReuseIndex::kBins; k < bins + ReuseIndex::kBins; ++k) {
    to.back().reused += k > bins ? from[k - bins].reused : step;
  }
  return to;
}

// Later ages are `bins` bins lower: the first bin gets all re-uses up to bin `bins`. The last ones
// know nothing.
OfClass Shrunk(const OfClass& from, uint32_t bins) {
  OfClass to = {};
  to[0] = from[0];
  for (uint32_t k = 1; k < ReuseIndex::kBins; ++k) {
    if (k <= bins) {
      to[0].reused += from[k].reused;
    } else {
      to[k - bins] = from[k];
    }
  }
  return to;
}

}  // namespace

std::vector<std::byte> Encode(const ReuseTable& table) {
  std::vector<std::byte> bytes;
  bytes.reserve(kTableBytes);
  ByteWriter out(&bytes);
  out.Put(kTableFormat);
  out.Put(ReuseClass::kCount);
  out.Put(ReuseIndex::kBins);
  out.Put(table.shift);
  for (const OfClass& of_class : table.counts) {
    for (const Counts& counts : of_class) {
      PutFloat(counts.reached, out);
      PutFloat(counts.reused, out);
    }
  }
  PutFloat(table.lead, out);
  PutFloat(table.variance, out);
  out.Put(uint32_t{table.trusts_index});
  return bytes;
}

absl::StatusOr<ReuseTable> DecodeReuseTable(absl::Span<const std::byte> bytes) {
  const auto refuse = [](std::string why) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat("the learned table ", why));
  };
  ByteReader in(bytes);
  const auto format = in.Get<uint32_t>();
  if (format != kTableFormat)
    return refuse(absl::StrCat("has format ", format, ", not ", kTableFormat));
  const auto classes = in.Get<uint32_t>();
  const auto bins = in.Get<uint32_t>();
  if (classes != ReuseClass::kCount || bins != ReuseIndex::kBins) {
    return refuse(absl::StrCat("has ", classes, " classes and ", bins, " bins, not ",
                               ReuseClass::kCount, " and ", ReuseIndex::kBins));
  }
  ReuseTable table{.shift = in.Get<uint32_t>()};
  bool sane = table.shift <= kMostShift;
  for (OfClass& of_class : table.counts) {
    for (Counts& counts : of_class) {
      sane &= GetFloat(in, 0, kMostCount, &counts.reached);
      sane &= GetFloat(in, 0, kMostCount, &counts.reused);
    }
  }
  sane &= GetFloat(in, -kMostCount, kMostCount, &table.lead);
  sane &= GetFloat(in, 0, kMostCount, &table.variance);
  const auto trusts = in.Get<uint32_t>();
  table.trusts_index = trusts == 1;
  if (!sane || trusts > 1 || !in.ok() || !in.at_end()) return refuse("is damaged");
  return table;
}

std::vector<std::byte> Encode(absl::Span<const ReuseTable> tables) {
  std::vector<std::byte> bytes;
  for (const ReuseTable& table : tables) {
    const std::vector<std::byte> of_one = Encode(table);
    bytes.insert(bytes.end(), of_one.begin(), of_one.end());
  }
  return bytes;
}

absl::StatusOr<std::vector<ReuseTable>> DecodeReuseTables(absl::Span<const std::byte> bytes) {
  std::vector<ReuseTable> tables;
  do {
    absl::StatusOr<ReuseTable> table = DecodeReuseTable(bytes.subspan(0, kTableBytes));
    if (!table.ok()) return table.status();
    tables.push_back(*std::move(table));
    bytes.remove_prefix(kTableBytes);
  } while (!bytes.empty());
  return tables;
}

ReuseTable Rescaled(const ReuseTable& table, uint32_t shift) {
  ReuseTable to = table;
  to.shift = shift;
  for (uint32_t c = 0; c < ReuseClass::kCount; ++c) {
    if (shift < table.shift) {
      to.counts[c] = Stretched(table.counts[c], (table.shift - shift) * kBinsAnOctave);
    } else {
      to.counts[c] = Shrunk(table.counts[c], (shift - table.shift) * kBinsAnOctave);
    }
  }
  return to;
}

}  // namespace pagoda
