#include "manager/operation_checks.h"

#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "pools/error.h"

namespace pagoda {
namespace {

// One overload an operation that has something to check.
struct Checker {
  absl::Status operator()(const AddSequence& op) const {
    return CheckContent(op.tokens.size(), op.extra_token_ids.size(), op.multimodal_items,
                        &op.retention);
  }
  absl::Status operator()(const MatchPrefix& op) const {
    return CheckContent(op.tokens.size(), op.extra_token_ids.size(), op.multimodal_items, nullptr);
  }
  absl::Status operator()(const SetRetention& op) const { return CheckRetention(op.retention); }
  template <class Other>
  absl::Status operator()(const Other&) const {
    return absl::OkStatus();
  }
};

constexpr size_t kFew = 8;

struct Measure {
  bool operator()(const AddSequence& op) const {
    return op.multimodal_items.size() + op.retention.ranges.size() > kFew;
  }
  bool operator()(const MatchPrefix& op) const { return op.multimodal_items.size() > kFew; }
  bool operator()(const SetRetention& op) const { return op.retention.ranges.size() > kFew; }
  template <class Other>
  bool operator()(const Other&) const {
    return false;
  }
};

}  // namespace

absl::Status CheckContent(size_t token_count, size_t extra_ids,
                          absl::Span<const MultimodalItem> items,
                          const SequenceRetention* retention) {
  if (extra_ids != 0 && extra_ids != token_count) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(extra_ids, " extra ids for ", token_count, " tokens"));
  }
  uint64_t end = 0;
  for (const MultimodalItem& item : items) {
    const uint64_t item_end = uint64_t{item.token_start} + item.token_count;
    if (item.token_count == 0 || item.token_start < end || item_end > token_count ||
        uint64_t{item.item_offset} + item.token_count > std::numeric_limits<uint32_t>::max()) {
      return MakeError(
          Reason::kInvalidArgument,
          absl::StrCat("a multimodal item of tokens [", item.token_start, ", ", item_end,
                       ") after token ", end, " in a prompt of ", token_count));
    }
    end = item_end;
  }
  return retention == nullptr ? absl::OkStatus() : CheckRetention(*retention);
}

absl::Status CheckContent(const Operation& operation) { return std::visit(Checker(), operation); }

bool HasLongContent(const Operation& operation) { return std::visit(Measure(), operation); }

}  // namespace pagoda
