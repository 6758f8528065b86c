#include "manager/sequences/operation_checks.h"

#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {
namespace {

// Operations that name a prefix by its full identity.
template <class Op>
inline constexpr bool kNamesPrefix = requires(const Op& op) {
  op.tokens;
  op.extra_token_ids;
  op.multimodal_items;
};

// One overload for each operation that has a retention; the template covers the others.
struct Checker {
  absl::Status operator()(const AddSequence& op) const {
    return CheckContent(op.tokens.size(), op.extra_token_ids.size(), op.multimodal_items,
                        &op.retention);
  }
  absl::Status operator()(const SetRetention& op) const {
    return CheckContent(op.tokens.size(), op.extra_token_ids.size(), op.multimodal_items,
                        &op.retention);
  }
  template <class Other>
  absl::Status operator()(const Other& op) const {
    if constexpr (kNamesPrefix<Other>) {
      return CheckContent(op.tokens.size(), op.extra_token_ids.size(), op.multimodal_items,
                          nullptr);
    }
    return absl::OkStatus();
  }
};

constexpr size_t kFew = 8;

struct Measure {
  bool operator()(const AddSequence& op) const {
    return op.multimodal_items.size() + op.retention.ranges.size() > kFew;
  }
  bool operator()(const SetRetention& op) const {
    return op.multimodal_items.size() + op.retention.ranges.size() > kFew;
  }
  template <class Other>
  bool operator()(const Other& op) const {
    if constexpr (kNamesPrefix<Other>) return op.multimodal_items.size() > kFew;
    return false;
  }
};

}  // namespace

absl::Status CheckContent(size_t token_count, size_t extra_ids,
                          absl::Span<const MultimodalItem> items,
                          const SequenceRetention* retention) {
  if (extra_ids != 0 && extra_ids != token_count) {
    return MakeError(Reason::kInvalidArgument, absl::StrCat(Counted(extra_ids, "extra id"), " for ",
                                                            Counted(token_count, "token")));
  }
  uint64_t end = 0;
  for (const MultimodalItem& item : items) {
    const uint64_t item_end = uint64_t{item.token_start} + item.token_count;
    if (item.token_count == 0 || item.token_start < end || item_end > token_count ||
        uint64_t{item.item_offset} + item.token_count > std::numeric_limits<uint32_t>::max()) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat("invalid multimodal item of tokens [", item.token_start, ", ", item_end,
                       ") after token ", end, " in a prompt of ", token_count));
    }
    end = item_end;
  }
  if (retention == nullptr) return absl::OkStatus();
  if (retention->ranges.size() > kMaxRetentionRanges) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(retention->ranges.size(), " retention ranges; at most ",
                                  kMaxRetentionRanges, " are allowed"));
  }
  return CheckRetention(*retention);
}

absl::Status CheckContent(const Operation& operation) { return std::visit(Checker(), operation); }

bool HasLongContent(const Operation& operation) { return std::visit(Measure(), operation); }

}  // namespace pagoda
