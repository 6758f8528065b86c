#include "clients/cpp/resend.h"

#include <algorithm>
#include <cstdint>
#include <variant>

namespace pagoda {
namespace {

// The size of the answers that the daemon remembers for one session.
constexpr uint64_t kMostAnswerBytes = uint64_t{1} << 20;
// Upper bounds of a result without its handles (an error with its details is the longest), and of a
// handle.
constexpr uint64_t kResultBytes = 320;
constexpr uint64_t kHandleBytes = 12;

bool ChangesNothing(const Operation& operation) {
  return std::holds_alternative<MatchPrefix>(operation) ||
         std::holds_alternative<QueryCapacity>(operation) ||
         std::holds_alternative<DescribeSequence>(operation) ||
         std::holds_alternative<DescribePools>(operation) ||
         std::holds_alternative<ListPins>(operation) ||
         std::holds_alternative<WaitForTicket>(operation);
}

// An upper bound of the number of block handles in an operation's result.
class HandleBound {
 public:
  explicit HandleBound(const CacheInfo& cache) : cache_(cache) {}

  uint64_t operator()(const AllocateBlocks& op) const { return op.count; }
  uint64_t operator()(const AddSequence& op) const {
    return Tokens(std::max<uint64_t>(op.tokens.size(), op.reserved_tokens));
  }
  uint64_t operator()(const MatchPrefix& op) const { return Tokens(op.tokens.size()); }
  uint64_t operator()(const ReserveTokens& op) const { return Tokens(op.count); }
  uint64_t operator()(const AppendTokens& op) const { return Tokens(op.tokens.size()); }
  // Each sequence can also fail; its error text counts as one result. A growth with its ticket
  // takes less than two handles.
  uint64_t operator()(const AppendStep& op) const {
    const uint64_t each = 2 * cache_.windows.size() + 2 + kResultBytes / kHandleBytes;
    return Tokens(op.tokens.size()) + op.sequences.size() * each;
  }
  // A state takes less than a handle.
  uint64_t operator()(const DescribeBlocks& op) const { return op.blocks.size(); }
  uint64_t operator()(const DescribeSequence&) const { return Cache(); }
  uint64_t operator()(const ForkSequence&) const { return Cache(); }
  uint64_t operator()(const TruncateSequence&) const { return Cache(); }
  // The number of pools or pins has no bound in the operation, so the answer counts as too large.
  uint64_t operator()(const DescribePools&) const { return kMostAnswerBytes; }
  uint64_t operator()(const ListPins&) const { return kMostAnswerBytes; }
  template <class Other>
  uint64_t operator()(const Other&) const {
    return 0;
  }

 private:
  // Handles of `count` tokens of a sequence. The range may begin and end inside blocks, and the
  // tail block may have been replaced.
  uint64_t Tokens(uint64_t count) const {
    return (count / std::max(cache_.tokens_per_block, 1u) + 2) * cache_.windows.size();
  }
  uint64_t Cache() const {
    uint64_t blocks = 0;
    for (const CacheInfo::Window& window : cache_.windows) blocks += window.blocks_in(kPrimaryTier);
    return blocks;
  }

  const CacheInfo& cache_;
};

}  // namespace

Resend ResendOf(absl::Span<const Operation> operations, const CacheInfo& cache) {
  if (std::all_of(operations.begin(), operations.end(), ChangesNothing)) return Resend::kFreely;
  const HandleBound handles(cache);
  uint64_t bytes = 0;
  for (const Operation& operation : operations) {
    bytes += kResultBytes + kHandleBytes * std::visit(handles, operation);
    if (bytes > kMostAnswerBytes) return Resend::kNever;
  }
  return Resend::kUnderId;
}

}  // namespace pagoda
