#include "manager/api/operation.h"

#include <type_traits>

namespace pagoda {
namespace {

constexpr size_t kHandlesPerPool = 100;
constexpr size_t kHandlesPerPin = 100;
constexpr size_t kHandlesPerFailure = 16;

size_t Count(const std::vector<BlockTable>& tables) {
  size_t handles = 0;
  for (const BlockTable& table : tables) handles += table.blocks.size();
  return handles;
}

size_t Count(const AllocatedBlocks& result) { return result.blocks.size(); }
size_t Count(const AddedSequence& result) { return Count(result.tables); }
size_t Count(const ReservedTokens& result) { return Count(result.added); }
size_t Count(const AppendedTokens& result) { return Count(result.added); }
size_t Count(const AppendedStep& result) {
  return result.blocks.size() + result.failed.size() * kHandlesPerFailure;
}
size_t Count(const MatchedPrefix& result) { return result.blocks.size(); }
size_t Count(const DescribedPools& result) { return result.pools.size() * kHandlesPerPool; }
size_t Count(const DescribedSequence& result) { return Count(result.tables); }
size_t Count(const ForkedSequence& result) { return Count(result.tables); }
size_t Count(const TruncatedSequence& result) { return Count(result.tables); }
size_t Count(const ListedPins& result) { return result.pins.size() * kHandlesPerPin; }
size_t Count(const CapacityAnswer&) { return 0; }
size_t Count(const OffloadedPrefix&) { return 0; }
size_t Count(const PrefetchedPrefix&) { return 0; }
size_t Count(const PinnedPrefix&) { return 0; }
size_t Count(const UnpinnedPrefix&) { return 0; }
size_t Count(const InvalidatedPrefix&) { return 0; }
size_t Count(const RetentionSet&) { return 0; }
size_t Count(const WaitedForTicket&) { return 0; }
size_t Count(const FreedBlocks&) { return 0; }
size_t Count(const FilledBlocks&) { return 0; }
size_t Count(const DescribedBlocks& result) { return result.blocks.size(); }
size_t Count(const CommittedTokens&) { return 0; }
size_t Count(const FreedSequence&) { return 0; }

// Their moves are noexcept.
static_assert(std::is_nothrow_move_constructible_v<OperationVariant> &&
              std::is_nothrow_move_assignable_v<OperationVariant>);
static_assert(std::is_nothrow_move_constructible_v<OperationResultVariant> &&
              std::is_nothrow_move_assignable_v<OperationResultVariant>);

}  // namespace

Operation::Operation() = default;
Operation::Operation(const Operation&) = default;
Operation::Operation(Operation&&) noexcept = default;
Operation& Operation::operator=(const Operation&) = default;
Operation& Operation::operator=(Operation&&) noexcept = default;
Operation::~Operation() = default;

OperationResult::OperationResult() = default;
OperationResult::OperationResult(const OperationResult&) = default;
OperationResult::OperationResult(OperationResult&&) noexcept = default;
OperationResult& OperationResult::operator=(const OperationResult&) = default;
OperationResult& OperationResult::operator=(OperationResult&&) noexcept = default;
OperationResult::~OperationResult() = default;

size_t CountHandles(const OperationResult& result) {
  return std::visit([](const auto& typed) { return Count(typed); }, result);
}

}  // namespace pagoda
