// The fill of raw blocks, and what a session is told of its blocks.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

SimRaw* FindRaw(SimSession& session, uint32_t window, const BlockRef& ref) {
  for (SimRaw& raw : session.raw) {
    if (raw.window == window && raw.handle.ref() == ref) return &raw;
  }
  return nullptr;
}

// What the fills are refused for; kNone: nothing.
Reason WhyRefused(World& world, SimSession& session, const FillBlocks& asked, uint32_t window) {
  if (asked.blocks.empty()) return Reason::kInvalidCount;
  for (size_t i = 0; i < asked.blocks.size(); ++i) {
    const BlockRef& ref = asked.blocks[i].block;
    for (size_t j = 0; j < i; ++j) {
      if (asked.blocks[j].block == ref) return Reason::kDoubleFree;
    }
    if (FindRaw(session, window, ref) == nullptr) return Reason::kStaleHandle;
  }
  for (const BlockFill& fill : asked.blocks) {
    const SimRaw& raw = *FindRaw(session, window, fill.block);
    if (raw.finalized) return Reason::kBlockFinalized;
    if (fill.filled_tokens > world.tokens_per_block()) return Reason::kInvalidCount;
    if (fill.filled_tokens < raw.filled) return Reason::kComputedBackwards;
  }
  return Reason::kNone;
}

// A block that a session asks about, and what it must be told.
struct Asked {
  BlockRef ref;
  BlockMetadata expected;
  // If a tenant may have been told of its own sequences only.
  uint32_t own_holders = 0;
};

// What the session must be told of a block of its sequences.
Asked Describe(World& world, const SimSession& session, uint32_t window,
               const BlockHandle& handle) {
  const Node& node = world.shadows[window].node(handle.id.value());
  const BlockFacts& facts = world.ledgers[window][handle.id];
  Asked asked{.ref = handle.ref()};
  asked.expected.cached = node.cached();
  asked.expected.holders = facts.refs - facts.pins - facts.deferred;
  uint32_t filled = 0;
  for (const SimSequence& sequence : session.sequences) {
    if (!sequence.running) continue;
    const std::vector<BlockHandle>& blocks = sequence.tables[window].blocks;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].id != handle.id) continue;
      ++asked.own_holders;
      const auto begin = static_cast<uint32_t>(i) * world.tokens_per_block();
      const uint32_t computed = sequence.computed - std::min(begin, sequence.computed);
      filled = std::max(filled, std::min(computed, world.tokens_per_block()));
    }
  }
  asked.expected.filled_tokens = node.cached() ? node.count : filled;
  asked.expected.finalized = asked.expected.filled_tokens == world.tokens_per_block();
  if (session.tenant == kDefaultTenant) {
    asked.own_holders = asked.expected.holders;
  } else if (node.cached() && world.config.OwnerOf(node.name_space) == session.tenant) {
    asked.own_holders = asked.expected.holders;
  } else if (node.cached()) {
    asked.expected.holders = asked.own_holders;
  }
  return asked;
}

std::vector<Asked> DrawAsked(World& world, const SimSession& session, uint32_t window) {
  std::vector<Asked> asked;
  for (const SimRaw& raw : session.raw) {
    if (raw.window != window || world.random.OneIn(3)) continue;
    asked.push_back(
        {.ref = raw.handle.ref(),
         .expected = {.holders = 1, .filled_tokens = raw.filled, .finalized = raw.finalized},
         .own_holders = 1});
  }
  for (const SimSequence& sequence : session.sequences) {
    if (!sequence.running) continue;
    for (const BlockHandle& handle : sequence.tables[window].blocks) {
      if (handle.id == kNoBlock || world.random.OneIn(3)) continue;
      asked.push_back(Describe(world, session, window, handle));
    }
  }
  return asked;
}

// A block that the session may not be told of, and the possible reasons of the refusal.
std::optional<std::pair<BlockRef, std::vector<Reason>>> DrawWrong(World& world,
                                                                  const SimSession& session,
                                                                  const std::vector<Asked>& asked,
                                                                  uint32_t window) {
  const auto refused = [](BlockRef ref, std::vector<Reason> reasons) {
    return std::optional(std::pair(ref, std::move(reasons)));
  };
  switch (world.random.Below(4)) {
    case 0:
      return refused({BlockId{4000 + world.random.Below(100)}, Generation{1}},
                     {Reason::kUnknownBlock});
    case 1: {
      if (asked.empty()) return std::nullopt;
      BlockRef ref = asked.front().ref;
      ref.generation = Generation{ref.generation.value() - 1};
      return refused(ref, {Reason::kStaleHandle});
    }
    case 2:
      for (const SimSession& other : world.sessions) {
        if (!other.open || &other == &session) continue;
        for (const SimRaw& raw : other.raw) {
          if (raw.window != window) continue;
          const bool hidden = session.tenant != kDefaultTenant && session.tenant != other.tenant;
          return refused(raw.handle.ref(), {hidden ? Reason::kStaleHandle : Reason::kForeignBlock});
        }
      }
      return std::nullopt;
    default:
      for (const SimSession& other : world.sessions) {
        if (!other.open || &other == &session) continue;
        for (const SimSequence& sequence : other.sequences) {
          if (!sequence.running || sequence.tables[window].blocks.empty()) continue;
          const BlockHandle& handle = sequence.tables[window].blocks.back();
          if (handle.id == kNoBlock || Describe(world, session, window, handle).own_holders != 0) {
            continue;
          }
          std::vector<Reason> reasons = {Reason::kForeignBlock};
          if (session.tenant != kDefaultTenant) reasons.push_back(Reason::kStaleHandle);
          return refused(handle.ref(), reasons);
        }
      }
      return std::nullopt;
  }
}

}  // namespace

void FillBlocksOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  Random& random = world.random;
  const uint32_t w = random.Below(world.num_windows());
  FillBlocks asked{.window = world.config.windows[w].size};
  for (const SimRaw& raw : session->raw) {
    if (raw.window != w || random.OneIn(3)) continue;
    // A finalised block is mostly left alone.
    if (raw.finalized && !Wrong(world)) continue;
    const uint32_t left = world.tokens_per_block() - raw.filled;
    asked.blocks.push_back(
        {.block = raw.handle.ref(),
         .filled_tokens = raw.filled + random.Below(left + 1),
         .end = random.OneIn(4) ? BlockFill::End::kFinal : BlockFill::End::kOpen});
  }
  if (!asked.blocks.empty() && Wrong(world)) {
    BlockFill& last = asked.blocks.back();
    switch (random.Below(4)) {
      case 0:
        last.filled_tokens = world.tokens_per_block() + 1 + random.Below(1u << 31);
        break;
      case 1:
        last.filled_tokens = random.Below(last.filled_tokens + 1);
        break;
      case 2:
        last.block.generation = Generation{last.block.generation.value() - 1};
        break;
      default:
        asked.blocks.push_back(asked.blocks.front());
    }
  }
  const Reason wrong = WhyRefused(world, *session, asked, w);
  if (world.Note()) {
    world.Note(Text("  FillBlocks(", session->ref.id.value(), ", window ", w, ", ",
                    asked.blocks.size(), ")"));
  }
  const absl::StatusOr<OperationResult> filled =
      world.core->Execute(session->ref.id, asked, world.now);
  world.Absorb({});
  if (wrong != Reason::kNone) {
    world.Refused(filled.status(), {wrong});
    return world.Check();
  }
  SIM_CHECK(filled.ok(), filled.status().ToString());
  for (const BlockFill& fill : asked.blocks) {
    SimRaw& raw = *FindRaw(*session, w, fill.block);
    raw.filled = fill.filled_tokens;
    raw.finalized = fill.end == BlockFill::End::kFinal;
  }
  world.Check();
}

void DescribeBlocksOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const uint32_t w = world.random.Below(world.num_windows());
  world.Check();  // Counts the holders.
  const std::vector<Asked> asked = DrawAsked(world, *session, w);
  DescribeBlocks operation{.window = world.config.windows[w].size};
  for (const Asked& block : asked) operation.blocks.push_back(block.ref);
  std::vector<Reason> reasons;
  if (asked.empty()) reasons = {Reason::kInvalidCount};
  if (Wrong(world)) {
    if (const auto wrong = DrawWrong(world, *session, asked, w); wrong.has_value()) {
      operation.blocks.push_back(wrong->first);
      reasons = wrong->second;
    }
  }
  if (world.Note()) {
    world.Note(Text("  DescribeBlocks(", session->ref.id.value(), ", window ", w, ", ",
                    operation.blocks.size(), ")"));
  }
  const absl::StatusOr<OperationResult> described =
      world.core->Execute(session->ref.id, operation, world.now);
  world.Absorb({});
  if (!reasons.empty()) {
    const bool two = reasons.size() == 2 && ReasonOf(described.status()) == reasons[1];
    world.Refused(described.status(), {reasons[two ? 1 : 0]});
    return world.Check();
  }
  SIM_CHECK(described.ok(), described.status().ToString());
  const auto& told = std::get<DescribedBlocks>(*described);
  SIM_CHECK(told.blocks.size() == asked.size(), "DescribeBlocks leaves blocks out");
  for (size_t i = 0; i < asked.size(); ++i) {
    BlockMetadata expected = asked[i].expected;
    const BlockMetadata& block = told.blocks[i];
    if (block.holders == asked[i].own_holders) expected.holders = block.holders;
    SIM_CHECK(block == expected, "block ", asked[i].ref.id.value(), " has ", block.holders,
              " holders, ", block.filled_tokens, " tokens, finalised ", block.finalized,
              ", cached ", block.cached, "; expected ", expected.holders, ", ",
              expected.filled_tokens, ", ", expected.finalized, ", ", expected.cached);
  }
  world.Check();
}

}  // namespace pagoda::sim
