#include "events/hash_projection.h"

#include <utility>
#include <variant>

#include "base/check.h"

namespace pagoda {
namespace {

// Returns whether anything is left of the event, and puts it into `part`.
struct Projector {
  uint32_t chunk_tokens;
  Event& part;

  bool EndsChunk(uint32_t end_token) const { return end_token % chunk_tokens == 0; }

  bool operator()(const CreatedEvent& created) const {
    if (created.blocks_per_tier.empty()) return false;
    part.what = created;
    return true;
  }

  bool operator()(const StoredEvent& stored) const {
    StoredEvent left{.hashes_only = true};
    uint32_t end_token = stored.first_token;
    for (const StoredBlock& block : stored.blocks) {
      end_token += block.token_count;
      if (!EndsChunk(end_token)) continue;
      left.blocks.push_back({.id = kNoBlock,
                             .hash = block.hash,
                             .tier = block.tier,
                             .priority = Priority{0},
                             .lower = block.lower});
    }
    if (left.blocks.empty()) return false;
    part.what = std::move(left);
    return true;
  }

  bool operator()(const UpdatedEvent& updated) const {
    const bool in_tiers = updated.tier.has_value() || updated.lower.has_value();
    if (!in_tiers || !EndsChunk(updated.end_token)) return false;
    part.what = UpdatedEvent{
        .id = kNoBlock, .hash = updated.hash, .tier = updated.tier, .lower = updated.lower};
    return true;
  }

  bool operator()(const RemovedEvent& removed) const {
    RemovedEvent left{.reason = removed.reason, .scope = removed.scope};
    PAGODA_CHECK(removed.end_tokens.size() == removed.hashes.size(),
                 "a removal from the tree says where each block ends");
    for (size_t i = 0; i < removed.hashes.size(); ++i) {
      if (EndsChunk(removed.end_tokens[i])) left.hashes.push_back(removed.hashes[i]);
    }
    if (left.scope == RemovedEvent::Scope::kBlocks && left.hashes.empty()) return false;
    part.what = std::move(left);
    return true;
  }
};

}  // namespace

std::optional<Event> ProjectOntoHashes(const Event& event, uint32_t chunk_tokens) {
  std::optional<Event> part(Event{.revision = event.revision,
                                  .time = event.time,
                                  .window = event.window,
                                  .tenant = event.tenant,
                                  .what = {}});
  if (!std::visit(Projector{chunk_tokens, *part}, event.what)) part.reset();
  return part;
}

}  // namespace pagoda
