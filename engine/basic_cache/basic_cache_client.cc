#include "engine/basic_cache/basic_cache_client.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "engine/basic_cache/flat_slots.h"
#include "pools/pool.h"

namespace pagoda {
namespace {

struct BasicSequence {
  uint32_t place = 0;
  // The slots of its blocks. There are at least as many as reserved_tokens need.
  std::vector<uint32_t> slots;
  uint32_t token_count = 0;
  uint32_t computed_tokens = 0;
  uint32_t reserved_tokens = 0;
};

class BasicCache final : public CacheClient {
 public:
  BasicCache(std::unique_ptr<PoolSet> pools, const BasicCacheOptions& options)
      : pools_(std::move(pools)),
        tokens_per_block_(options.spec.tokens_per_block),
        blocks_per_place_(tokens_per_block_.BlocksFor(options.max_sequence_tokens)) {
    if (options.arrangement == KvArrangement::kTokenFlat) flat_.emplace(pools_.get());
    info_.name = options.spec.name;
    info_.model_fingerprint = options.spec.model_fingerprint;
    info_.tokens_per_block = options.spec.tokens_per_block;
    info_.tiers = {{.name = DefaultTierName(kPrimaryTier)}};
    for (const WindowLayout& window : pools_->layout().windows()) {
      info_.windows.push_back(
          {.window = window.window, .blocks = {blocks_per_place_ * options.max_sequences}});
    }
    for (uint32_t place = options.max_sequences; place-- > 0;) free_places_.push_back(place);
  }

  const CacheInfo& info() const override { return info_; }
  uint32_t blocks_per_place() const { return blocks_per_place_; }
  KvArrangement arrangement() const {
    return flat_ ? KvArrangement::kTokenFlat : KvArrangement::kTensorPerSequence;
  }

  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations, StepRange) override {
    BatchResult result;
    for (const Operation& operation : operations) {
      result.results.push_back(std::visit([this](const auto& op) { return Run(op); }, operation));
    }
    return result;
  }

  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    absl::StatusOr<std::vector<FileDescriptor>> descriptors = pools_->OpenDescriptors(access);
    if (!descriptors.ok()) return descriptors.status();
    auto next = descriptors->begin();
    std::vector<std::unique_ptr<MappedPool>> mapped;
    for (const PoolMapping& mapping : pools_->Mappings()) {
      const auto end = next + static_cast<ptrdiff_t>(mapping.segments.size());
      absl::StatusOr<std::unique_ptr<MappedPool>> pool = MappedPool::FromDescriptors(
          mapping, {std::make_move_iterator(next), std::make_move_iterator(end)}, access);
      next = end;
      if (!pool.ok()) return pool.status();
      mapped.push_back(*std::move(pool));
    }
    return mapped;
  }

 private:
  using Result = absl::StatusOr<OperationResult>;
  using Sequences = std::map<SequenceId, BasicSequence>;

  Result Run(const AddSequence& op) {
    if (op.tokens.empty()) return MakeError(Reason::kInvalidCount, "a sequence needs a token");
    const uint64_t count = op.tokens.size();
    const uint64_t reserved = op.reserved_tokens == 0 ? count : op.reserved_tokens;
    absl::StatusOr<BasicSequence*> added = Place(op.sequence, std::max(count, reserved));
    if (!added.ok()) return added.status();
    BasicSequence& sequence = **added;
    sequence.token_count = static_cast<uint32_t>(count);
    sequence.reserved_tokens = static_cast<uint32_t>(reserved);
    return AddedSequence{.tables = Tables(sequence)};
  }

  Result Run(const ReserveTokens& op) {
    return On(op.sequence, [&](BasicSequence& sequence) -> Result {
      const uint64_t reserved = uint64_t{sequence.reserved_tokens} + op.count;
      if (absl::Status status = Grow(sequence, reserved); !status.ok()) return status;
      sequence.reserved_tokens = static_cast<uint32_t>(reserved);
      return ReservedTokens{.added = Tables(sequence)};
    });
  }

  Result Run(const CommitTokens& op) {
    return On(op.sequence, [&](BasicSequence& sequence) -> Result {
      if (absl::Status status = Commit(op, sequence); !status.ok()) return status;
      return CommittedTokens{sequence.token_count};
    });
  }

  Result Run(const AppendTokens& op) {
    return On(op.sequence, [&](BasicSequence& sequence) -> Result {
      BasicSequence grown = sequence;
      const uint64_t end = uint64_t{sequence.token_count} + op.tokens.size();
      if (absl::Status status = CheckCapacity(end); !status.ok()) return status;
      grown.reserved_tokens = std::max(sequence.reserved_tokens, static_cast<uint32_t>(end));
      if (absl::Status status = Commit(op, grown); !status.ok()) return status;
      if (absl::Status status = Grow(grown, end); !status.ok()) return status;
      sequence = std::move(grown);
      return AppendedTokens{.added = Tables(sequence), .token_count = sequence.token_count};
    });
  }

  Result Run(const AppendStep& op) {
    const size_t count = op.sequences.size();
    if (op.token_counts.size() != count || op.computed_tokens.size() != count) {
      return MakeError(Reason::kFieldNotServed,
                       "the basic cache needs every sequence's tokens in a step");
    }
    AppendedStep done;
    size_t begin = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const size_t end = std::min(begin + op.token_counts[i], op.tokens.size());
      const Result one =
          Run(AppendTokens{.sequence = op.sequences[i],
                           .tokens = {op.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                      op.tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                           .computed_tokens = op.computed_tokens[i]});
      begin = end;
      if (!one.ok()) {
        done.failed.push_back({i, one.status()});
        continue;
      }
      const std::vector<BlockTable>& added = std::get<AppendedTokens>(*one).added;
      done.grown.push_back({.index = i,
                            .first_block = added[0].first_block,
                            .blocks = static_cast<uint32_t>(added[0].blocks.size())});
      for (const BlockTable& table : added) {
        done.blocks.insert(done.blocks.end(), table.blocks.begin(), table.blocks.end());
      }
    }
    return done;
  }

  Result Run(const ForkSequence& op) {
    const auto parent = sequences_.find(op.sequence);
    if (parent == sequences_.end()) return Unknown(op.sequence);
    const BasicSequence& from = parent->second;
    absl::StatusOr<BasicSequence*> forked = Place(op.new_sequence, from.reserved_tokens);
    if (!forked.ok()) return forked.status();
    BasicSequence& to = **forked;
    to.token_count = from.token_count;
    to.computed_tokens = from.computed_tokens;
    to.reserved_tokens = from.reserved_tokens;
    Copy(from, to);
    return ForkedSequence{
        .token_count = to.token_count, .computed_tokens = to.computed_tokens, .tables = Tables(to)};
  }

  Result Run(const TruncateSequence& op) {
    return On(op.sequence, [&](BasicSequence& sequence) -> Result {
      if (op.token_count == 0 || op.token_count > sequence.token_count) {
        return MakeError(Reason::kInvalidCount,
                         absl::StrCat("token_count is ", op.token_count, ", the sequence has ",
                                      sequence.token_count));
      }
      sequence.token_count = sequence.reserved_tokens = op.token_count;
      sequence.computed_tokens = std::min(sequence.computed_tokens, op.token_count);
      Shrink(sequence, tokens_per_block_.BlocksFor(op.token_count));
      return TruncatedSequence{.token_count = op.token_count,
                               .computed_tokens = sequence.computed_tokens,
                               .tables = Tables(sequence)};
    });
  }

  Result Run(const FreeSequence& op) {
    const auto it = sequences_.find(op.sequence);
    if (it == sequences_.end()) return Unknown(op.sequence);
    Shrink(it->second, 0);
    free_places_.push_back(it->second.place);
    sequences_.erase(it);
    return FreedSequence{};
  }

  // A free place fits every sequence.
  Result Run(const QueryCapacity& op) {
    CapacityAnswer answer;
    for (const CacheInfo::Window& window : info_.windows) {
      answer.windows.push_back(
          {.window = window.window,
           .blocks_now = tokens_per_block_.BlocksFor(op.tokens.size()),
           .blocks_to_completion =
               tokens_per_block_.BlocksFor(op.tokens.size() + uint64_t{op.max_new_tokens}),
           .available_blocks = free_places_.empty() ? 0 : std::numeric_limits<uint32_t>::max()});
    }
    return answer;
  }

  Result Run(const DescribeSequence& op) {
    return On(op.sequence, [&](BasicSequence& sequence) -> Result {
      return DescribedSequence{.token_count = sequence.token_count,
                               .computed_tokens = sequence.computed_tokens,
                               .reserved_tokens = sequence.reserved_tokens,
                               .tables = Tables(sequence)};
    });
  }

  Result Run(const MatchPrefix&) { return MatchedPrefix{.tokens_by_tier = {0}}; }
  Result Run(const OffloadPrefix&) { return OffloadedPrefix{}; }
  Result Run(const PrefetchPrefix&) { return PrefetchedPrefix{}; }
  Result Run(const WaitForTicket&) { return WaitedForTicket{}; }
  Result Run(const DescribePools&) { return DescribedPools{pools_->Mappings()}; }

  template <class Other>
  Result Run(const Other&) {
    return absl::UnimplementedError("the basic cache has no such operation");
  }

  static absl::Status Unknown(SequenceId id) {
    return MakeError(Reason::kUnknownSequence, absl::StrCat("no sequence ", id.value()));
  }

  template <class Action>
  Result On(SequenceId id, const Action& action) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) return Unknown(id);
    return action(it->second);
  }

  absl::Status CheckCapacity(uint64_t tokens) const {
    const uint64_t most = uint64_t{blocks_per_place_} * tokens_per_block_.value();
    if (tokens <= most) return absl::OkStatus();
    return MakeError(Reason::kInvalidCount, absl::StrCat("a sequence of ", Counted(tokens, "token"),
                                                         "; the limit is ", most));
  }

  // Adds a sequence with slots for `tokens`.
  absl::StatusOr<BasicSequence*> Place(SequenceId id, uint64_t tokens) {
    if (sequences_.contains(id)) {
      return MakeError(Reason::kSequenceExists, absl::StrCat("sequence ", id.value(), " exists"));
    }
    if (absl::Status status = CheckCapacity(tokens); !status.ok()) return status;
    if (free_places_.empty()) {
      return MakeError(Reason::kBlocksExhausted, "no place is free for another sequence");
    }
    BasicSequence sequence{.place = free_places_.back()};
    if (!flat_) {
      sequence.slots.resize(blocks_per_place_);
      std::iota(sequence.slots.begin(), sequence.slots.end(), sequence.place * blocks_per_place_);
    }
    if (absl::Status status = Grow(sequence, tokens); !status.ok()) return status;
    free_places_.pop_back();
    return &(sequences_[id] = std::move(sequence));
  }

  // Gives the sequence slots for `tokens`. After an error it has the slots of before.
  absl::Status Grow(BasicSequence& sequence, uint64_t tokens) {
    if (absl::Status status = CheckCapacity(tokens); !status.ok()) return status;
    const uint32_t blocks = tokens_per_block_.BlocksFor(tokens);
    if (blocks <= sequence.slots.size()) return absl::OkStatus();
    const absl::StatusOr<std::vector<uint32_t>> taken = flat_->Take(blocks - sequence.slots.size());
    if (!taken.ok()) return taken.status();
    sequence.slots.insert(sequence.slots.end(), taken->begin(), taken->end());
    return absl::OkStatus();
  }

  // Frees the slots behind the first `blocks`. A run of slots stays whole.
  void Shrink(BasicSequence& sequence, size_t blocks) {
    if (!flat_ || sequence.slots.size() <= blocks) return;
    flat_->GiveBack(absl::MakeConstSpan(sequence.slots).subspan(blocks));
    sequence.slots.resize(blocks);
  }

  template <class Op>
  static absl::Status Commit(const Op& op, BasicSequence& sequence) {
    const uint64_t end = uint64_t{sequence.token_count} + op.tokens.size();
    if (!op.tokens.empty() && end > sequence.reserved_tokens) {
      return MakeError(Reason::kReservationExceeded,
                       absl::StrCat(Counted(end, "token"), " would exceed the reserved tokens, ",
                                    sequence.reserved_tokens));
    }
    if (op.computed_tokens > end) {
      return MakeError(Reason::kComputedBeyondTokens,
                       absl::StrCat(Counted(op.computed_tokens, "computed token"), " of ",
                                    Counted(end, "token")));
    }
    if (op.computed_tokens != 0 && op.computed_tokens < sequence.computed_tokens) {
      return MakeError(Reason::kComputedBackwards,
                       absl::StrCat(Counted(op.computed_tokens, "computed token"),
                                    ", fewer than before: ", sequence.computed_tokens));
    }
    sequence.token_count = static_cast<uint32_t>(end);
    if (op.computed_tokens != 0) sequence.computed_tokens = op.computed_tokens;
    return absl::OkStatus();
  }

  // All of the sequence's blocks, in every window.
  std::vector<BlockTable> Tables(const BasicSequence& sequence) const {
    std::vector<BlockTable> tables;
    for (const CacheInfo::Window& window : info_.windows) {
      BlockTable& table = tables.emplace_back(BlockTable{.window = window.window});
      const uint32_t blocks = tokens_per_block_.BlocksFor(sequence.reserved_tokens);
      for (uint32_t i = 0; i < blocks; ++i) {
        const uint32_t slot = sequence.slots[i];
        table.blocks.push_back({.id = BlockId(slot), .slot = SlotIndex(slot)});
      }
    }
    return tables;
  }

  // Copies the KV of all reserved tokens.
  void Copy(const BasicSequence& from, const BasicSequence& to) {
    if (!flat_) return CopyPlace(from.place, to.place);
    for (size_t i = 0; i < to.slots.size(); ++i) flat_->Copy(from.slots[i], to.slots[i]);
  }

  void CopyPlace(uint32_t from, uint32_t to) {
    const auto& windows = pools_->layout().windows();
    for (uint32_t w = 0; w < windows.size(); ++w) {
      for (uint32_t p = 0; p < windows[w].pools.size(); ++p) {
        SharedMemoryPool& pool = pools_->pool(w, p);
        const uint64_t bytes = pool.layout().slot_stride_bytes() * blocks_per_place_;
        std::byte* const base = pool.bytes().data();
        std::memcpy(base + to * bytes, base + from * bytes, bytes);
      }
    }
  }

  const std::unique_ptr<PoolSet> pools_;
  const TokensPerBlock tokens_per_block_;
  const uint32_t blocks_per_place_;
  std::optional<FlatSlots> flat_;  // With kTokenFlat.
  CacheInfo info_;
  Sequences sequences_;
  std::vector<uint32_t> free_places_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CacheClient>> MakeBasicCacheClient(
    const BasicCacheOptions& options) {
  absl::StatusOr<CacheLayout> layout = CacheLayout::Create(options.spec);
  if (!layout.ok()) return layout.status();
  const TokensPerBlock tokens_per_block(options.spec.tokens_per_block);
  const uint64_t slots =
      uint64_t{tokens_per_block.BlocksFor(options.max_sequence_tokens)} * options.max_sequences;
  if (slots == 0 || slots > std::numeric_limits<int32_t>::max()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("a basic cache of ", Counted(options.max_sequences, "sequence"),
                                  " of ", Counted(options.max_sequence_tokens, "token")));
  }
  // Unique names, so that caches do not share pools.
  static std::atomic<uint32_t> count = 0;
  const std::vector<uint32_t> primary(layout->windows().size(), static_cast<uint32_t>(slots));
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(*layout, {.tiers = {primary}}, absl::StrCat("basic-", getpid(), "-", ++count),
                      PoolPlacement{.pages = options.pages});
  if (!pools.ok()) return pools.status();
  return std::make_unique<BasicCache>(*std::move(pools), options);
}

std::optional<KvArrangement> ArrangementOf(const CacheClient& client) {
  const auto* const basic = dynamic_cast<const BasicCache*>(&client);
  if (basic == nullptr) return std::nullopt;
  return basic->arrangement();
}

uint32_t SlotsPerSequence(const CacheClient& client) {
  if (ArrangementOf(client) != KvArrangement::kTensorPerSequence) return 0;
  return static_cast<const BasicCache&>(client).blocks_per_place();
}

}  // namespace pagoda
