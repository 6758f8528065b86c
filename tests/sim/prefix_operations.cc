// Queries about cached prefixes, and operations that name a prefix.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "manager/sequences/cached_prefixes.h"
#include "tests/sim/match.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

// A prefix that the session may name.
Content DrawPrefix(World& world, const SimSession& session) {
  Content content = world.prompts.Draw(world.random, world.config.max_prompt_tokens);
  content.name_space = world.config.Confined(session.tenant, content.name_space);
  CutToBlocks(world.config, content);
  return content;
}

// The operation for this prefix.
template <class Operation>
Operation Naming(World& world, const SimSession& session, const Content& content,
                 Operation operation = {}) {
  SentContent sent = SendAll(world.config, content, world.random);
  operation.name_space = world.Ask(session, content.name_space);
  operation.tokens = std::move(sent.tokens);
  operation.extra_token_ids = std::move(sent.extra_token_ids);
  operation.multimodal_items = std::move(sent.items);
  operation.keys = std::move(sent.keys);
  return operation;
}

void NoteCall(World& world, std::string_view name, const Content& content) {
  if (!world.Note()) return;
  world.Note(Text("  ", std::string(name), "(name space ", content.name_space, ", ",
                  content.tokens.size(), " tokens)"));
}

// The prefix's blocks in one window from entry `begin` on, with its tail.
std::vector<uint32_t> Path(const MatchOracle& match, uint32_t window, uint32_t length,
                           uint32_t begin, uint32_t tokens_per_block) {
  std::vector<uint32_t> path;
  for (uint32_t i = begin; i < length / tokens_per_block; ++i) {
    path.push_back(match.block(window, i));
  }
  if (length % tokens_per_block != 0) path.push_back(match.Tail(window, length));
  return path;
}

// Blocks of the path that lie below the first tier.
uint32_t CountLower(World& world, uint32_t window, const std::vector<uint32_t>& path) {
  return static_cast<uint32_t>(std::count_if(path.begin(), path.end(), [&](uint32_t id) {
    const Node& node = world.shadows[window].node(id);
    return node.cached() && node.tier != kPrimaryTier;
  }));
}

// The oracle that matches `most` tokens; otherwise the first one.
const MatchOracle& WithLength(const std::vector<MatchOracle>& oracles, uint32_t most,
                              uint32_t length) {
  for (const MatchOracle& oracle : oracles) {
    if (oracle.Longest(most) == length) return oracle;
  }
  return oracles.front();
}

// Whether a lower tier has a free slot for any block of this owner.
bool HasPlaceBelow(World& world, uint32_t window, TenantId owner) {
  const ManagerStats stats = world.core->Stats();
  return std::any_of(kTiers.begin() + 1, kTiers.end(), [&](Tier tier) {
    return !world.config.IsOnDisk(tier) && world.config.quota(owner, tier) == kNoQuota &&
           stats.windows[window].tiers[tier.value()].free > 0;
  });
}

}  // namespace

namespace {

// The answer about a prefix, beside its match in memory: how much is cached, and in which tiers.
void CheckDescribed(World& world, const Content& content, const SequencePrompt& prompt,
                    uint32_t matched) {
  const MatchedPrefix told = world.core->prefixes().Describe(prompt);
  const uint32_t limit = MatchLimit(world.config, content);
  const uint32_t cached =
      MatchOracle(world, content.name_space, KeysOf(content), limit).Longest(limit);
  SIM_CHECK(told.matched_tokens == matched && told.cached_tokens == cached &&
                told.tokens_by_tier.size() == world.config.num_tiers,
            "of ", told.cached_tokens, " cached tokens ", told.matched_tokens, " match; there are ",
            cached, " and ", matched);
}

}  // namespace

void MatchOp(World& world) {
  Random& random = world.random;
  Content content = world.prompts.Draw(random, world.config.max_prompt_tokens);
  CutToBlocks(world.config, content);
  NoteCall(world, "MatchPrefix", content);
  const SentContent sent = SendAll(world.config, content, random);
  const uint32_t limit = MatchLimit(world.config, content);
  const std::vector<MatchOracle> oracles =
      MatchOracle::InMemory(world, content.name_space, KeysOf(content), limit);
  const SequencePrompt prompt{.name_space = world.config.name_spaces[content.name_space],
                              .tokens = sent.tokens,
                              .extra_token_ids = sent.extra_token_ids,
                              .multimodal_items = sent.items,
                              .keys = sent.keys};
  std::vector<BlockHandle> blocks;
  const uint32_t matched = world.core->prefixes().Match(prompt, &blocks);
  world.Absorb({});
  const MatchOracle& match = WithLength(oracles, limit, matched);
  SIM_CHECK(matched == match.Longest(limit), "MatchPrefix finds ", matched, " tokens instead of ",
            match.Longest(limit));
  const uint32_t w = world.num_windows() - 1;
  const uint32_t begin = match.first(w, matched);
  const uint32_t whole = matched / world.tokens_per_block();
  const bool part = matched % world.tokens_per_block() != 0;
  SIM_CHECK(blocks.size() == whole - begin + (part ? 1 : 0), "MatchPrefix names ", blocks.size(),
            " blocks for ", matched, " tokens");
  const std::vector<uint32_t> sources = match.Sources(w, matched);
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const uint32_t id = blocks[i].id.value();
    const bool right = begin + i < whole
                           ? id == match.block(w, begin + i)
                           : std::find(sources.begin(), sources.end(), id) != sources.end();
    const BlockFacts& facts = world.ledgers[w][id];
    SIM_CHECK(right && facts.placed && facts.place.slot == blocks[i].slot,
              "MatchPrefix names block ", id, " in slot ", blocks[i].slot.value());
    if (world.shadows[w].node(id).tier != kPrimaryTier) world.coverage.Add(Met::kMatchBelow);
  }
  if (world.config.has_disk) CheckDescribed(world, content, prompt, matched);
  world.Check();
}

void CapacityOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const uint32_t more = world.random.Below(3 * world.tokens_per_block());
  const SimSequence& sequence = PickSequence(world, *session);
  if (world.random.OneIn(2)) {
    const auto answer = world.core->prefixes().QueryCapacity(
        session->ref.id, {.sequence = sequence.id, .max_new_tokens = more}, {});
    world.Absorb({});
    if (!sequence.running) {
      world.Refused(answer.status(), {Reason::kUnknownSequence});
      return world.Check();
    }
    SIM_CHECK(answer.ok() && answer->matched_tokens == sequence.computed, "QueryCapacity fails");
    const uint32_t reserved = std::max(sequence.reserved, sequence.tokens() + more);
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      const WindowCapacity& told = answer->windows[w];
      const SimTable& table = sequence.tables[w];
      const uint32_t fresh = world.BlocksFor(reserved) - static_cast<uint32_t>(table.blocks.size());
      SIM_CHECK(told.blocks_to_completion == fresh + (table.borrowed_tail ? 1 : 0) ||
                    told.blocks_to_completion == fresh,
                "QueryCapacity says ", told.blocks_to_completion, " instead of ", fresh);
    }
    return world.Check();
  }
  const Content content = DrawPrefix(world, *session);
  const auto tokens = static_cast<uint32_t>(content.tokens.size());
  QueryCapacity query = Naming<QueryCapacity>(world, *session, content, {.max_new_tokens = more});
  query.name_space = world.config.name_spaces[content.name_space];
  const auto answer =
      world.core->prefixes().QueryCapacity(session->ref.id, query, query.name_space);
  world.Absorb({});
  if (tokens == 0) {
    world.Refused(answer.status(), {Reason::kInvalidCount});
    return world.Check();
  }
  SIM_CHECK(answer.ok(), answer.status().ToString());
  const uint32_t limit = MatchLimit(world.config, content);
  const std::vector<MatchOracle> oracles =
      MatchOracle::InMemory(world, content.name_space, KeysOf(content), limit);
  const MatchOracle& match = WithLength(oracles, limit, answer->matched_tokens);
  const uint32_t matched = match.Longest(limit);
  const TenantId tenant = world.TenantFor(*session, content.name_space);
  SIM_CHECK(answer->matched_tokens == matched, "QueryCapacity matches ", answer->matched_tokens,
            " tokens instead of ", matched);
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    uint32_t held = 0, held_by_tenant = 0;
    for (uint32_t i = match.first(w, matched); i < matched / world.tokens_per_block(); ++i) {
      const uint32_t id = match.block(w, i);
      const bool here = world.shadows[w].node(id).tier == kPrimaryTier;
      if (here && world.ledgers[w][id].refs > 0) ++held;
      if (here && world.accountants[w].Holds(id, tenant)) ++held_by_tenant;
    }
    // The tighter limit decides.
    const bool pool_is_tighter = uint64_t{world.ledgers[w].available()} + held <=
                                 uint64_t{world.accountants[w].Left(tenant)} + held_by_tenant;
    const uint32_t given = match.first(w, matched) + (pool_is_tighter ? held : held_by_tenant);
    const WindowCapacity& told = answer->windows[w];
    SIM_CHECK(told.blocks_now == world.BlocksFor(tokens) - given &&
                  told.blocks_to_completion == world.BlocksFor(tokens + more) - given,
              "QueryCapacity says ", told.blocks_now, " blocks now, ", told.blocks_to_completion,
              " to completion; ", given, " of ", world.BlocksFor(tokens), " are given");
  }
  world.Check();
}

void OffloadOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const Content content = DrawPrefix(world, *session);
  NoteCall(world, "OffloadPrefix", content);
  const auto call = Naming<OffloadPrefix>(world, *session, content);
  if (session->tenant != kDefaultTenant && world.config.shares(session->tenant)) {
    // Only operators can offload blocks that tenants share. A refusal changes nothing; even
    // expiries do not apply.
    const absl::Status refused = world.core->Execute(session->ref.id, call, world.now).status();
    world.Absorb({});
    world.Refused(refused, {Reason::kPermissionDenied});
    return world.Check();
  }
  world.ApplyTime();
  const MatchOracle match = MatchAll(world, content);
  const uint32_t length = match.LongestWhole();
  std::array<std::vector<uint32_t>, kMaxWindows> paths;
  std::array<uint32_t, kMaxWindows> below = {};
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    paths[w] = Path(match, w, length, 0, world.tokens_per_block());
    below[w] = CountLower(world, w, paths[w]);
  }
  const uint64_t moved_before = CountFirstFalls(world);
  const auto offloaded =
      Call<OffloadedPrefix>(world, *session, call, {.reasons = kForSpace, .moves_named = true});
  if (content.tokens.empty()) {
    world.Refused(offloaded.status(), {Reason::kInvalidCount});
    return world.Check();
  }
  SIM_CHECK(offloaded.ok(), offloaded.status().ToString());
  const uint64_t moved = CountFirstFalls(world) - moved_before;
  SIM_CHECK(moved == offloaded->blocks, "OffloadPrefix says ", offloaded->blocks, " blocks, ",
            moved, " moved");
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    // Blocks are offloaded from the end up to the first held one. So if there is a place below, at
    // least the last block goes there if nothing holds it.
    const auto evictable = std::find_if(paths[w].rbegin(), paths[w].rend(), [&](uint32_t id) {
      return world.shadows[w].node(id).cached() && world.shadows[w].node(id).tier == kPrimaryTier;
    });
    if (evictable == paths[w].rend()) continue;
    const bool may_move =
        world.ledgers[w][*evictable].refs == 0 && !world.shadows[w].HasChildren(*evictable);
    const bool any_moved = CountLower(world, w, paths[w]) > below[w];
    const TenantId owner = world.config.OwnerOf(content.name_space);
    SIM_CHECK(!may_move || any_moved || !HasPlaceBelow(world, w, owner),
              "OffloadPrefix leaves block ", *evictable,
              " where it was, though there is a place below");
  }
  world.Check();
}

namespace {

// The first blocks that are only on disk are fetched, in their order, without those that are
// already on their way. `last`: the last fetch before the call.
void CheckFetched(World& world, const std::array<std::vector<uint32_t>, kMaxWindows>& on_disk,
                  const std::array<std::vector<uint32_t>, kMaxWindows>& in_memory, Ticket last,
                  const PrefetchedPrefix& told) {
  Ticket waits_for;
  uint32_t fetched = 0;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    if (!world.config.has_disk_in(w)) continue;
    bool stopped = false;
    for (const uint32_t id : on_disk[w]) {
      const DiskOrders::Fetch* const fetch = world.on_order.FetchOf(w, id);
      const bool is_new = fetch != nullptr && fetch->ticket > last;
      SIM_CHECK(!is_new || !stopped, "block ", id, " is fetched, and not one above it");
      if (fetch == nullptr && world.IsOnlyOnDisk(w, id)) stopped = true;
      if (fetch == nullptr || stopped) continue;
      waits_for = std::max(waits_for, fetch->ticket);
      fetched += is_new ? 1 : 0;
    }
    if (!stopped || !world.full(w) || !world.config.tenants.empty()) continue;
    // Either the most fetches are under way, or memory has no slot.
    const Tier above = world.config.above_disk();
    const uint32_t most = std::max(1u, world.config.windows[w].blocks_in(above) / 4);
    // The blocks above the fetched ones stay in memory meanwhile.
    const auto stay = std::count_if(in_memory[w].begin(), in_memory[w].end(), [&](uint32_t id) {
      return world.ledgers[w][id].refs == 0 && world.shadows[w].node(id).tier == above;
    });
    const TierOccupancy reserved = world.core->Stats().windows[w].tiers[above.value()];
    SIM_CHECK(world.on_order.fetching(w) == most || reserved.free + reserved.cached <= stay ||
                  told.blocks + world.memory.pending() > 0,
              "nothing more is fetched, though memory has a slot");
  }
  // In a sliding window a block can leave to free a slot for the next one.
  SIM_CHECK(told.fetched_blocks >= fetched, "PrefetchPrefix says ", told.fetched_blocks,
            " fetches instead of ", fetched);
  SIM_CHECK(told.fetch >= waits_for && told.fetch <= world.on_order.last(Lane::kFetch),
            "PrefetchPrefix waits for fetch ", told.fetch.value(), " instead of ",
            waits_for.value());
}

void Prefetch(World& world, SimSession* session, const Content& content) {
  NoteCall(world, "PrefetchPrefix", content);
  world.ApplyTime();
  const MatchOracle match = MatchAll(world, content);
  const uint32_t length = match.LongestWhole();
  Scope scope{.reasons = kForSpace};
  PrefetchPrefix op;
  if (world.config.has_disk) {
    if (world.random.OneIn(3)) op.target = PrefetchTarget::kMemory;
    if (world.random.OneIn(2)) op.deadline = absl::Microseconds(1 << world.random.Between(2, 20));
    scope.fetch_deadline = world.now + op.deadline;
  }
  const bool to_primary = op.target == PrefetchTarget::kPrimary;
  std::array<std::vector<uint32_t>, kMaxWindows> paths;
  // Those of them that are on disk alone, in their order.
  std::array<std::vector<uint32_t>, kMaxWindows> on_disk;
  uint32_t expected = 0;
  bool sure = true;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    paths[w] = Path(match, w, length, match.first(w, length), world.tokens_per_block());
    scope.kept[w].assign(paths[w].begin(), paths[w].end());
    std::copy_if(paths[w].begin(), paths[w].end(), std::back_inserter(on_disk[w]),
                 [&](uint32_t id) { return world.IsOnlyOnDisk(w, id); });
    std::erase_if(paths[w], [&](uint32_t id) { return world.IsOnlyOnDisk(w, id); });
    if (!world.config.windows[w].has_lower() || !to_primary) continue;
    uint32_t available = world.available(w, world.config.OwnerOf(content.name_space));
    for (const uint32_t id : paths[w]) {
      const bool here = world.shadows[w].node(id).tier == kPrimaryTier;
      if (here && world.ledgers[w][id].refs == 0) --available;
    }
    expected += std::min(available, CountLower(world, w, paths[w]));
    sure = sure && world.full(w) && world.config.tenants.empty();
  }
  const Ticket last_fetch = world.on_order.last(Lane::kFetch);
  const auto prefetched = Call<PrefetchedPrefix>(
      world, *session, Naming<PrefetchPrefix>(world, *session, content, op), scope);
  if (content.tokens.empty()) {
    world.Refused(prefetched.status(), {Reason::kInvalidCount});
    return world.Check();
  }
  SIM_CHECK(prefetched.ok(), prefetched.status().ToString());
  SIM_CHECK(prefetched->matched_tokens == length, "PrefetchPrefix finds ",
            prefetched->matched_tokens, " tokens instead of ", length);
  SIM_CHECK(prefetched->blocks == expected || (!sure && prefetched->blocks < expected),
            "PrefetchPrefix moves ", prefetched->blocks, " blocks up instead of ", expected);
  // The clocks of blocks that the call held start again.
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    if (!world.config.windows[w].has_lower()) continue;
    if (!to_primary && !world.config.has_disk_in(w)) continue;
    for (const uint32_t id : paths[w]) world.ledgers[w][id].deadline = absl::InfiniteFuture();
  }
  CheckFetched(world, on_disk, paths, last_fetch, *prefetched);
  world.Check();
}

}  // namespace

void PrefetchOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const Content content = DrawPrefix(world, *session);
  if (world.config.has_disk && !content.tokens.empty() && world.random.OneIn(2)) {
    // Another call can have ordered fetches of the blocks above.
    Content beginning = content;
    const auto size = static_cast<uint32_t>(content.tokens.size());
    beginning.Resize(world.random.Between(std::min(size, world.tokens_per_block()), size));
    CutToBlocks(world.config, beginning);
    Prefetch(world, session, beginning);
  }
  Prefetch(world, session, content);
}

void PinOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  Random& random = world.random;
  const Content content = DrawPrefix(world, *session);
  NoteCall(world, "PinPrefix", content);
  const bool wrong = Wrong(world);
  const absl::Duration lease = wrong             ? absl::ZeroDuration()
                               : random.OneIn(3) ? absl::InfiniteDuration()
                                                 : absl::Microseconds(1 << random.Between(6, 22));
  world.ApplyTime();
  const MatchOracle match = MatchAll(world, content);
  const uint32_t length = match.LongestWhole();
  SimPin pin{.tenant = world.TenantFor(*session, content.name_space),
             .tokens = length,
             .expires = world.now + lease};
  // Its own cached blocks are charged already.
  const TenantId owner = world.config.OwnerOf(content.name_space);
  bool too_many = false, no_quota = false;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    uint32_t pinned = world.ledgers[w].pinned_blocks();
    uint32_t charged = 0;  // Blocks that the pin's tenant does not hold yet.
    for (const uint32_t id :
         Path(match, w, length, match.first(w, length), world.tokens_per_block())) {
      pin.blocks.push_back({w, BlockId{id}});
      pinned += world.ledgers[w][id].pins == 0 ? 1 : 0;
      const bool has = owner == pin.tenant || world.accountants[w].Holds(id, pin.tenant);
      charged += has ? 0 : 1;
    }
    no_quota = no_quota || charged > world.accountants[w].Left(pin.tenant);
    const uint32_t budget = world.config.memory_blocks(w) * world.config.pin_budget_permille / 1000;
    too_many = too_many || pinned > budget;
  }
  const auto pinned = Call<PinnedPrefix>(
      world, *session, Naming<PinPrefix>(world, *session, content, {.lease = lease}), {});
  if (!pinned.ok()) {
    const Reason reason = ReasonOf(pinned.status());
    // A tenant can use only a part of the budget.
    too_many = too_many || (reason == Reason::kPinBudgetExceeded && !world.config.tenants.empty());
    SIM_CHECK(content.tokens.empty() || wrong || too_many || no_quota,
              "a pin is refused for no reason: ", pinned.status().ToString());
    if (content.tokens.empty()) {
      world.Refused(pinned.status(), {Reason::kInvalidCount});
    } else if (wrong) {
      world.Refused(pinned.status(), {Reason::kInvalidArgument});
    } else if (!no_quota || (too_many && reason == Reason::kPinBudgetExceeded)) {
      world.Refused(pinned.status(), {Reason::kPinBudgetExceeded});
    } else {
      // The tenant is at its quota, or the pin exceeds the whole quota.
      world.Refused(pinned.status(), {Reason::kBlocksExhausted, Reason::kInvalidCount});
    }
    return world.Check();
  }
  SIM_CHECK(!content.tokens.empty() && !wrong && !too_many && !no_quota,
            "a pin that must be refused");
  SIM_CHECK(pinned->pinned_tokens == length && pinned->blocks == pin.blocks.size(), "pinned ",
            pinned->pinned_tokens, " tokens in ", pinned->blocks, " blocks instead of ", length,
            " in ", pin.blocks.size());
  pin.id = pinned->pin;
  SIM_CHECK((pin.id == PinId{}) == (length == 0), "a pin of nothing, or none of something");
  if (length > 0) {
    world.coverage.Add(Met::kPinned);
    world.pins.push_back(std::move(pin));
  }
  world.Check();
}

void UnpinOne(World& world, PinId pin) {
  world.ApplyTime();
  const auto it = std::find_if(world.pins.begin(), world.pins.end(),
                               [&](const SimPin& one) { return one.id == pin; });
  const absl::Status status = world.core->prefixes().Unpin(pin, world.now);
  world.Absorb({});
  if (it == world.pins.end()) {
    world.Refused(status, {Reason::kUnknownPin});
  } else {
    SIM_CHECK(status.ok(), status.ToString());
    world.pins.erase(it);
  }
  world.Check();
}

void UnpinOp(World& world) {
  const auto pins = static_cast<uint32_t>(world.pins.size());
  const ListedPins list = world.core->prefixes().ListPins();
  SIM_CHECK(list.pins.size() == pins, "ListPins gives ", list.pins.size(), " pins instead of ",
            pins);
  uint32_t blocks = 0;
  for (uint32_t i = 0; i < pins; ++i) {
    SIM_CHECK(list.pins[i].pin == world.pins[i].id &&
                  list.pins[i].pinned_tokens == world.pins[i].tokens &&
                  list.pins[i].blocks == world.pins[i].blocks.size() &&
                  list.pins[i].expires == world.pins[i].expires,
              "ListPins gives another pin");
  }
  for (Ledger& ledger : world.ledgers) blocks += ledger.pinned_blocks();
  SIM_CHECK(list.pinned_blocks == blocks, "ListPins counts ", list.pinned_blocks,
            " blocks instead of ", blocks);
  UnpinOne(world, pins == 0 || Wrong(world) ? PinId{world.random.Below(1000) + 1'000'000}
                                            : world.pins[world.random.Below(pins)].id);
}

namespace {

// The cached blocks whose content begins with this one.
uint32_t CountBelow(const Shadow& shadow, uint32_t id) {
  uint32_t count = shadow.node(id).cached() ? 1 : 0;
  for (uint32_t c = shadow.node(id).first_child; c != kNone; c = shadow.node(c).next_sibling) {
    count += CountBelow(shadow, c);
  }
  return count;
}

uint32_t CountBelow(World& world, uint32_t window, const Content& content) {
  const Shadow& shadow = world.shadows[window];
  uint32_t count = 0;
  if (content.tokens.empty()) {
    for (uint32_t c = shadow.first_child(kNone, content.name_space); c != kNone;
         c = shadow.node(c).next_sibling) {
      count += CountBelow(shadow, c);
    }
    return count;
  }
  Value value = RootValue(content.name_space);
  for (const TokenKey key : KeysOf(content)) value = Extend(value, key);
  const size_t last = content.tokens.size() - 1;
  const size_t depth = last / world.tokens_per_block(), offset = last % world.tokens_per_block();
  for (uint32_t id = 0; id < shadow.num_ids(); ++id) {
    const Node& node = shadow.node(id);
    if (node.in_tree() && node.depth == depth && node.count > offset &&
        node.values[offset] == value) {
      count += CountBelow(shadow, id);
    }
  }
  return count;
}

}  // namespace

void InvalidateOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  Content content = DrawPrefix(world, *session);
  if (!content.tokens.empty() && !world.random.OneIn(6)) {
    // Long enough that some blocks stay cached.
    const auto most = static_cast<uint32_t>(content.tokens.size());
    content.Resize(world.random.Between((most + 1) / 2, most));
    CutToBlocks(world.config, content);
  }
  NoteCall(world, "InvalidatePrefix", content);
  const auto call = Naming<InvalidatePrefix>(world, *session, content);
  if (session->tenant != kDefaultTenant && world.config.shares(session->tenant)) {
    // Only operators can invalidate blocks that tenants share. A refusal changes nothing; even
    // expiries do not apply.
    const absl::Status refused = world.core->Execute(session->ref.id, call, world.now).status();
    world.Absorb({});
    world.Refused(refused, {Reason::kPermissionDenied});
    return world.Check();
  }
  world.ApplyTime();
  uint64_t expected = 0, cached = 0, left = 0;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    expected += CountBelow(world, w, content);
    cached += world.shadows[w].cached_count();
  }
  const auto invalidated =
      Call<InvalidatedPrefix>(world, *session, call, {.reasons = Bit(RemovalReason::kInvalidated)});
  SIM_CHECK(invalidated.ok(), invalidated.status().ToString());
  if (world.config.has_disk) {
    SIM_CHECK(invalidated->durable == world.on_order.last(Lane::kBackup),
              "an invalidation is durable with another ticket than its last erase's");
    std::vector<Value> values;
    Value value = RootValue(content.name_space);
    for (const TokenKey key : KeysOf(content)) values.push_back(value = Extend(value, key));
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      world.files.Condemn(w, Disk::Prefix{content.name_space, values}, invalidated->durable);
    }
  }
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    left += world.shadows[w].cached_count();
    SIM_CHECK(CountBelow(world, w, content) == 0, "InvalidatePrefix leaves blocks");
  }
  SIM_CHECK(invalidated->removed_blocks == expected && left + expected == cached,
            "InvalidatePrefix says ", invalidated->removed_blocks, " blocks, ", cached - left,
            " left; ", expected, " begin with the prefix");
  world.Check();
}

void RetentionOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const Content content = DrawPrefix(world, *session);
  NoteCall(world, "SetRetention", content);
  SequenceRetention retention = DrawRetention(world, static_cast<uint32_t>(content.tokens.size()));
  const bool wrong = Wrong(world);
  if (wrong) retention.ranges = {{.token_start = 0, .token_end = 0}};
  world.ApplyTime();
  const MatchOracle match = MatchAll(world, content);
  const uint32_t length = match.LongestWhole();
  const auto set = Call<RetentionSet>(
      world, *session, Naming<SetRetention>(world, *session, content, {.retention = retention}),
      {.sets_priorities = true});
  if (content.tokens.empty() || wrong) {
    world.Refused(set.status(),
                  {content.tokens.empty() ? Reason::kInvalidCount : Reason::kInvalidArgument});
    return world.Check();
  }
  SIM_CHECK(set.ok(), set.status().ToString());
  uint32_t named = 0;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    for (const uint32_t id : Path(match, w, length, 0, world.tokens_per_block())) {
      const Node& node = world.shadows[w].node(id);
      if (!node.cached()) continue;
      const uint32_t begin = node.depth * world.tokens_per_block();
      for (const RetentionRange& range : retention.ranges) {
        if (begin < range.token_start ||
            (range.token_end.has_value() && begin >= *range.token_end)) {
          continue;
        }
        if (world.WishOf(session->tenant, w, id, range.retention)) ++named;
      }
    }
  }
  SIM_CHECK(set->blocks == named, "SetRetention says ", set->blocks, " blocks instead of ", named);
  world.Check();
}

}  // namespace pagoda::sim
