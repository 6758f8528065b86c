// Blocks by id.
#include <algorithm>

#include "base/error.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {

void AllocateOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  Random& random = world.random;
  const uint32_t w = random.Below(world.num_windows());
  const uint32_t capacity = world.config.windows[w].primary();
  uint32_t count = 1 + random.Below(3);
  if (random.OneIn(10)) count = 1 + random.Below(capacity);
  const bool wrong = Wrong(world);
  if (wrong) count = random.OneIn(2) ? 0 : capacity + 1 + random.Below(1u << 31);
  const bool unknown = Wrong(world);
  if (world.Note()) {
    world.Note(
        Text("  AllocateBlocks(", session->ref.id.value(), ", window ", w, ", ", count, ")"));
  }
  world.ApplyTime();
  const bool fits = count <= world.available(w, session->tenant);
  const bool never = count > world.most_blocks(w, session->tenant);
  const auto allocated = Call<AllocatedBlocks>(
      world, *session,
      AllocateBlocks{.window = unknown ? WindowSize{123456} : world.config.windows[w].size,
                     .count = count},
      {.reasons = kForSpace});
  if (!allocated.ok()) {
    SIM_CHECK(unknown || wrong || !fits,
              "refused, though there is capacity: ", allocated.status().ToString());
    world.Refused(allocated.status(), {unknown          ? Reason::kUnknownWindow
                                       : wrong || never ? Reason::kInvalidCount
                                                        : Reason::kBlocksExhausted});
    return world.Check();
  }
  SIM_CHECK(!unknown && !wrong && fits, "an allocation that must be refused");
  SIM_CHECK(allocated->blocks.size() == count, "asked for ", count, " blocks, got ",
            allocated->blocks.size());
  for (const BlockHandle& handle : allocated->blocks) {
    AdoptFresh(world, w, handle);
    session->raw.push_back({.window = w, .handle = handle, .ready = allocated->ready});
  }
  world.Check();
}

namespace {

// Owners write their raw blocks as soon as these are ready.
void WriteRaw(World& world, SimSession& session) {
  for (SimRaw& raw : session.raw) {
    if (raw.written || !world.Ready(raw.ready)) continue;
    raw.written = true;
    raw.tag = world.random.Next();
    Value* values = world.memory.slot(raw.window, {kPrimaryTier, raw.handle.slot});
    for (uint32_t i = 0; i < world.tokens_per_block(); ++i) values[i] = raw.tag + i;
  }
}

// Whether the block is cached for a tenant other than the session's. The session must not learn of
// it.
bool IsAnothers(const World& world, const SimSession& session, uint32_t window, BlockId id) {
  const Node& node = world.shadows[window].node(id.value());
  return session.tenant != kDefaultTenant && node.cached() &&
         world.config.OwnerOf(node.name_space) != session.tenant;
}

// Adds a block that the session may not free. Returns the possible reasons of the refusal.
std::vector<Reason> AddWrong(World& world, SimSession& session, uint32_t window,
                             std::vector<BlockRef>& refs) {
  switch (world.random.Below(5)) {
    case 0:
      refs.push_back({BlockId{4000 + world.random.Below(100)}, Generation{1}});
      return {Reason::kUnknownBlock};
    case 1:
      refs.push_back(refs.front());
      return {Reason::kDoubleFree};
    case 2:
      refs.front().generation = Generation{refs.front().generation.value() - 1};
      return {Reason::kStaleHandle};
    case 3:
      for (const SimSession& other : world.sessions) {
        if (!other.open || &other == &session) continue;
        for (const SimRaw& raw : other.raw) {
          if (raw.window != window) continue;
          refs.push_back(raw.handle.ref());
          // A session must not learn how another tenant uses a block.
          const bool hidden = session.tenant != kDefaultTenant && session.tenant != other.tenant;
          return {hidden ? Reason::kStaleHandle : Reason::kForeignBlock};
        }
      }
      return {};
    default:
      for (const SimSequence& sequence : session.sequences) {
        if (!sequence.running || sequence.tables[window].blocks.empty()) continue;
        refs.push_back(sequence.tables[window].blocks.back().ref());
        if (refs.back().id == kNoBlock) return {Reason::kUnknownBlock};
        return {IsAnothers(world, session, window, refs.back().id) ? Reason::kStaleHandle
                                                                   : Reason::kForeignBlock};
      }
      return {};
  }
}

}  // namespace

void FreeBlocksOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  WriteRaw(world, *session);
  Random& random = world.random;
  const uint32_t w = random.Below(world.num_windows());
  std::vector<BlockRef> refs;
  for (const SimRaw& raw : session->raw) {
    if (raw.window == w && !random.OneIn(3)) refs.push_back(raw.handle.ref());
  }
  std::vector<Reason> wrong;
  if (refs.empty()) wrong = {Reason::kInvalidCount};
  if (!refs.empty() && Wrong(world)) wrong = AddWrong(world, *session, w, refs);
  if (world.Note()) {
    world.Note(
        Text("  FreeBlocks(", session->ref.id.value(), ", window ", w, ", ", refs.size(), ")"));
  }
  const auto freed = Call<FreedBlocks>(
      world, *session, FreeBlocks{.window = world.config.windows[w].size, .blocks = refs},
      {.reasons = Bit(RemovalReason::kReleased)});
  if (!wrong.empty()) {
    world.Refused(freed.status(), {wrong.front()});
    return world.Check();
  }
  SIM_CHECK(freed.ok(), freed.status().ToString());
  std::erase_if(session->raw, [&](const SimRaw& raw) {
    if (raw.window != w || std::find(refs.begin(), refs.end(), raw.handle.ref()) == refs.end()) {
      return false;
    }
    const size_t deferred = world.deferred.size();
    world.Release(*session, session->tenant, w, raw.handle.id);
    if (world.deferred.size() > deferred) {
      SimDeferredRelease& release = world.deferred.back();
      release.slot = {kPrimaryTier, raw.handle.slot};
      release.count = raw.written ? world.tokens_per_block() : 0;
      for (uint32_t i = 0; i < release.count; ++i) release.values[i] = raw.tag + i;
    }
    return true;
  });
  world.Check();
}

}  // namespace pagoda::sim
