// Many blocks of one request at once: taken, published and released. The results and the events are
// those of the calls for one block after another; only the work is less.
#include "manager/tiers/tier_residency_runs.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {
namespace {

constexpr auto kPrimary = static_cast<size_t>(Tier::kPrimary);

// Whether the block can be evicted without a look at anything but its slot, its node and its
// policy.
bool LeavesNothingBehind(const Block& block) {
  return block.state() == BlockState::kCached && !block.timed && !block.beside && !block.followed;
}

}  // namespace

// REQUIRES: out.size() <= available().
void WindowBlockManager::Take(OperationScope& op, BlockState state, absl::Span<BlockHandle> out) {
  const bool can_reuse = residency_.CanReuse() && !has_cut_off();
  while (!out.empty()) {
    if (can_reuse && residency_.slots().free_slots(Tier::kPrimary) == 0) {
      out.remove_prefix(ReuseVictims(op, state, out));
      if (out.empty()) return;
    }
    out.front() = store_.handle(residency_.Take(op, state));
    out.remove_prefix(1);
  }
}

// Takes the ids and slots of victims that end a chain, until it meets another kind of victim.
// Returns how many it took.
size_t WindowBlockManager::ReuseVictims(OperationScope& op, BlockState state,
                                        absl::Span<BlockHandle> out) {
  BlockId victim = residency_.FirstVictim();
  size_t taken = 0;
  for (; taken < out.size() && victim != kNoBlock; ++taken) {
    if (!LeavesNothingBehind(store_[victim]) || !tree_.EndsChain(victim)) break;
    --cached_blocks_;
    ++default_tenant_removed_[kPrimary][static_cast<size_t>(RemovalReason::kEvicted)];
    recorder().Removed(window(), RemovalReason::kEvicted, tree_.Named(victim));
    const BlockId next = residency_.Reuse(op, victim, state);
    out[taken] = store_.handle(victim);
    // The request writes the tokens when it has all its blocks.
    __builtin_prefetch(store_.tokens(victim).data(), 1);
    victim = next;
  }
  return taken;
}

// Publishes entries [first, end) of the sequence's table below the sequence's tip, which has no
// children. Returns the end of what it published: `first` if the sequence has more than tokens.
uint32_t WindowBlockManager::PublishChain(OperationScope& op, const Sequence& sequence,
                                          SequenceBlocks& blocks, uint32_t first, uint32_t end) {
  const bool plain = !sequence.keyed && sequence.extras.bytes() == 0 &&
                     sequence.own_retention == nullptr && !blocks.taken_over.has_value() &&
                     options_.publish_min_uses != 0;
  if (!plain) return first;
  const NamespaceKey& name_space = tree_.key(blocks.root);
  const TenantId owner = accounts().any() ? options_.tenants->OwnerOf(name_space) : kDefaultTenant;
  const uint32_t size = tokens_per_block().value();
  cached_blocks_ += end - first;
  BlockId tip = blocks.tip.block();
  while (first < end) {
    EventRecorder::StoredRun run;
    uint32_t run_end = end;
    if (recorder().records()) {
      run = recorder().StoreRun(window(), name_space, tree_.Named(tip), end - first, size, owner);
      run_end = first + static_cast<uint32_t>(run.blocks.size());
    }
    for (uint32_t i = 0; first < run_end; ++first, ++i) {
      const BlockId id = blocks.table[first].id;
      Block& block = store_[id];
      block.set_state(BlockState::kCached);
      block.tree = tree_.tree_bit();
      block.set_priority(kDefaultPriority);
      block.uses = 0;
      block.token_count = size;
      const absl::Span<const TokenId> tokens = store_.tokens(id);
      tree_.Extend(id, tip, {tokens, {}}, FactsOf(sequence, first, size));
      residency_.EnterTree(op, id, owner);
      residency_.journal().NoteContent(id);
      if (reuse_intervals_.Samples(id)) {
        block.followed = 1;
        reuse_intervals_.Stored(id, op.now);
      }
      if (reuse_distances_.Samples(tree_.hash(id))) NotePublished(sequence, blocks, first, id);
      tip = id;
      if (run.blocks.empty()) continue;
      run.blocks[i] = {.id = id, .hash = tree_.hash(id), .token_count = size};
      CopyTokenIds(tokens, run.tokens.data() + size_t{i} * size);
    }
  }
  return end;
}

// Releases the sequence's blocks, tail first: the last blocks of a sequence become the oldest.
void WindowBlockManager::ReleaseAll(OperationScope& op, const Sequence& sequence) {
  const SequenceBlocks& blocks = BlocksOf(sequence);
  if (sliding()) {
    for (uint32_t i = blocks.first; i < blocks.table.size(); ++i) passed_.Stop(blocks.InTree(i));
  }
  const bool reads_copies = !residency_.copies().idle();
  for (auto i = static_cast<uint32_t>(blocks.table.size()); i-- > blocks.first;) {
    if (reads_copies) {
      ReleaseEntry(op, sequence, i);
      continue;
    }
    const BlockId own = blocks.table[i].id;
    const Block& block = store_[own];
    const bool nobody_follows = op.deferring == nullptr && !block.timed && !block.followed;
    if (!nobody_follows || !residency_.EndHoldOfParent(own, sequence.tenant)) {
      Release(op, own, sequence.tenant);
    } else if (reuse_distances_.Samples(tree_.hash(own)) && !IsCutOff(own)) {
      reuse_distances_.Released(tree_.hash(own));
    }
    if (blocks.canonical[i] != kNoBlock) Release(op, blocks.canonical[i], sequence.tenant);
  }
}

}  // namespace pagoda
