// Sequences begin: what AddSequence must answer, and what follows from its answer.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/sim/match.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

// Makes one argument of a valid AddSequence wrong. Returns the reason with which it must be
// refused.
Reason MakeWrong(World& world, const SimSession& session, AddSequence& op) {
  const uint32_t dice = world.random.Below(6);
  const bool keyed = op.name_space.keyed;
  if (keyed && dice == 2) {
    op.tokens = {1};
    return Reason::kKeysAndTokens;
  }
  if (keyed && dice == 3) {
    // The name space with tokens, by keys.
    op.name_space.keyed = false;
    return Reason::kKeysAndTokens;
  }
  switch (dice) {
    case 0:
      op.tokens.clear();
      op.extra_token_ids.clear();
      op.multimodal_items.clear();
      op.keys.clear();
      return Reason::kInvalidCount;
    case 1:
      op.name_space.cache_salt.assign(kMaxCacheSaltBytes + 1, 'x');
      return Reason::kInvalidArgument;
    case 2:
      op.extra_token_ids.assign(op.tokens.size() + 1, 1);
      return Reason::kInvalidArgument;
    case 3:
      op.multimodal_items = {
          {.token_start = static_cast<uint32_t>(op.tokens.size()) - 1, .token_count = 2}};
      return Reason::kInvalidArgument;
    case 4:
      op.retention.ranges = {{.token_start = 2, .token_end = 1}};
      return Reason::kInvalidArgument;
    default:
      op.name_space.tenant.assign(kMaxTenantBytes + 1, 'x');
      // The tenant is checked before the length.
      return session.tenant == kDefaultTenant ? Reason::kInvalidArgument
                                              : Reason::kPermissionDenied;
  }
}

// With or without a part of a block at the end.
uint32_t LongestOf(const World& world, const MatchOracle& match, uint32_t limit,
                   bool whole_blocks_only) {
  const uint32_t size = world.tokens_per_block();
  uint32_t longest = match.Longest(limit);
  while (whole_blocks_only && longest % size != 0) longest = match.Longest(longest / size * size);
  return longest;
}

// What AddSequence must answer.
struct Expected {
  uint32_t matched = 0;
  bool fits = false;
  bool sure = true;    // False: `matched` can be lower, and `fits` can differ.
  bool never = false;  // The capacity can never hold it.
};

Expected Expect(World& world, const MatchOracle& match, uint32_t limit, uint32_t tokens,
                uint32_t wanted, TenantId tenant, bool whole_blocks_only) {
  Expected expected{.matched = LongestOf(world, match, limit, whole_blocks_only)};
  for (bool is_longest = true;; is_longest = false) {
    const uint64_t reserved = std::max(wanted, expected.matched);
    bool fits = true;
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      const MatchOracle::Demand needs = match.DemandFor(w, expected.matched, reserved, tenant);
      fits = fits && needs.fits;
      expected.sure = expected.sure && needs.sure;
      const uint64_t capacity = world.most_blocks(w, tenant);
      const uint64_t blocks = world.full(w)
                                  ? world.BlocksFor(std::max<uint64_t>(reserved, tokens))
                                  : world.BlocksFor(reserved) - match.first(w, expected.matched);
      // A shorter match can need more than the capacity although the longer one does not.
      fits = fits && blocks <= capacity;
      expected.never = expected.never || (is_longest && blocks > capacity);
    }
    expected.fits = fits;
    if (fits || expected.never || expected.matched % world.tokens_per_block() == 0) break;
    // The match drops its part of a block before the call is refused.
    world.coverage.Add(Met::kCutMatch);
    expected.matched =
        match.Longest(expected.matched / world.tokens_per_block() * world.tokens_per_block());
  }
  return expected;
}

// Whether the answer is possible.
bool IsAnswer(const Expected& expected, const absl::StatusOr<AddedSequence>& answer) {
  if (!answer.ok()) return expected.never || !expected.fits || !expected.sure;
  return answer->matched_tokens == expected.matched && (expected.fits || !expected.sure);
}

uint32_t MatchAllTiers(World& world, const Content& content, uint32_t limit,
                       bool whole_blocks_only) {
  if (!world.config.has_disk) return 0;
  return LongestOf(world, MatchOracle(world, content.name_space, KeysOf(content), limit), limit,
                   whole_blocks_only);
}

// The answer's number of tokens that are only on disk, behind the matched ones.
void CheckBelow(World& world, const std::vector<MatchOracle>& oracles, uint32_t in_all_tiers,
                const AddedSequence& added) {
  const uint32_t beyond = in_all_tiers - std::min(in_all_tiers, added.matched_tokens);
  const bool right = std::any_of(oracles.begin(), oracles.end(), [&](const MatchOracle& oracle) {
    return added.matched_below_tokens == (oracle.has_more_on_disk() ? beyond : 0);
  });
  SIM_CHECK(right, "AddSequence tells of ", added.matched_below_tokens,
            " tokens on disk; there are ", beyond);
  if (added.matched_below_tokens > 0) world.coverage.Add(Met::kMatchedBeyond);
}

// Adopts the tables of a new sequence.
void AdoptMatch(World& world, SimSequence& sequence, const MatchOracle& match, uint32_t matched,
                const std::vector<BlockTable>& tables) {
  const uint32_t whole = matched / world.tokens_per_block();
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    SIM_CHECK(tables[w].window == world.config.windows[w].size && tables[w].first_block == 0,
              "a new sequence's tables are whole, one a window");
    const std::vector<BlockHandle>& blocks = tables[w].blocks;
    SimTable& table = sequence.tables[w];
    SIM_CHECK(blocks.size() == world.BlocksFor(sequence.reserved), "a table of ", blocks.size(),
              " blocks for reserved tokens: ", sequence.reserved);
    Ledger& ledger = world.ledgers[w];
    const uint32_t first = match.first(w, matched);
    for (uint32_t i = 0; i < whole; ++i) {
      if (i < first) {
        SIM_CHECK(blocks[i] == BlockHandle{}, "entry ", i, " is not needed, and there");
        continue;
      }
      const uint32_t id = match.block(w, i);
      const BlockFacts& facts = ledger[id];
      SIM_CHECK(blocks[i].id.value() == id && facts.placed &&
                    facts.place == SlotRef(kPrimaryTier, blocks[i].slot) &&
                    blocks[i].generation == facts.generation,
                "entry ", i, " is not the block that matched: ", id);
      const std::optional<BlockRetention> wish =
          sequence.retention.ranges.empty()
              ? std::nullopt
              : RetentionOf(sequence.retention, sequence.prompt_tokens,
                            i * world.tokens_per_block());
      if (wish.has_value() && world.shadows[w].node(id).cached()) {
        world.WishOf(sequence.tenant, w, id, *wish);
      }
    }
    table.blocks.assign(blocks.begin(), blocks.begin() + whole);
    table.canonical.assign(whole, kNoBlock);
    table.published = whole;
    if (whole > 0) {
      table.tip = blocks[whole - 1].id;
      // A sliding window can have evicted it to free slots for the other blocks.
      table.detached = !world.shadows[w].node(table.tip.value()).in_tree();
    }
    AdoptTable(world, table, w, whole, {blocks.begin() + whole, blocks.end()});
  }
}

// A match has used its blocks in the largest window, and the block whose first tokens it copied.
void NoteUses(World& world, const MatchOracle& match, uint32_t matched) {
  const uint32_t window = world.num_windows() - 1;
  const auto note = [&](uint32_t id) {
    if (world.shadows[window].node(id).cached()) world.publishable.Used(id);
  };
  const uint32_t whole = matched / world.tokens_per_block();
  for (uint32_t i = match.first(window, matched); i < whole; ++i) note(match.block(window, i));
  for (const HeldBlock& copied : world.copied) {
    if (copied.window == window) note(copied.id.value());
  }
}

// A drawn call of AddSequence.
struct AddDraft {
  Content content;
  TenantId tenant;
  uint32_t tokens = 0;
  uint32_t reserved = 0;  // 0: as many as the tokens.
  AddSequence op;

  uint32_t wanted() const { return reserved == 0 ? tokens : reserved; }
};

// Mostly one that does not run.
SimSequence& PickToBegin(World& world, SimSession& session) {
  const auto draw = [&]() -> SimSequence& {
    return session.sequences[world.random.Below(kSequencesPerSession)];
  };
  SimSequence* drawn = &draw();
  for (uint32_t i = 0; i < 4 && drawn->running; ++i) drawn = &draw();
  return *drawn;
}

Content DrawPrompt(World& world, const SimSession& session) {
  const uint32_t most =
      world.random.OneIn(8) ? 40 * world.tokens_per_block() : world.config.max_prompt_tokens;
  Content content = world.prompts.Draw(world.random, most);
  content.name_space = world.config.Confined(session.tenant, content.name_space);
  CutToBlocks(world.config, content);
  if (content.tokens.empty()) {
    const bool keyed = world.config.keyed(content.name_space);
    world.prompts.AppendTokens(content, world.random, keyed ? world.tokens_per_block() : 1);
  }
  return content;
}

AddDraft DrawAddSequence(World& world, const SimSession& session, SequenceId id) {
  Random& random = world.random;
  AddDraft draft{.content = DrawPrompt(world, session)};
  const Content& content = draft.content;
  draft.tenant = world.TenantFor(session, content.name_space);
  draft.tokens = static_cast<uint32_t>(content.tokens.size());
  if (random.OneIn(3)) draft.reserved = random.Below(draft.tokens + 2 * world.tokens_per_block());
  if (world.config.keyed(content.name_space)) {
    draft.reserved = draft.reserved / world.tokens_per_block() * world.tokens_per_block();
  }
  SentContent sent = SendAll(world.config, content, random);
  draft.op = {.sequence = id,
              .name_space = world.Ask(session, content.name_space),
              .tokens = std::move(sent.tokens),
              .reserved_tokens = draft.reserved,
              .extra_token_ids = std::move(sent.extra_token_ids),
              .multimodal_items = std::move(sent.items),
              .whole_blocks_only = random.OneIn(8),
              .keys = std::move(sent.keys)};
  if (random.Percent(world.config.retention_percent)) {
    draft.op.retention = DrawRetention(world, draft.tokens);
  }
  return draft;
}

void CallWrongly(World& world, const SimSession& session, AddSequence op) {
  const Reason reason = MakeWrong(world, session, op);
  // The check of permissions comes before the expiries.
  if (reason != Reason::kPermissionDenied) world.ApplyTime();
  const absl::Status refused = world.core->Execute(session.ref.id, op, world.now).status();
  world.Absorb({});
  world.Refused(refused, {reason});
  world.Check();
}

// The answers that are possible.
struct AddForecast {
  std::vector<MatchOracle> oracles;
  std::vector<Expected> expected;  // By oracle.
  uint32_t in_all_tiers = 0;

  // The index of the oracle that the answer agrees with; of the last one if it agrees with none.
  size_t Choose(const absl::StatusOr<AddedSequence>& answer) const {
    size_t choice = 0;
    while (choice + 1 < oracles.size() && !IsAnswer(expected[choice], answer)) ++choice;
    return choice;
  }
};

AddForecast Foresee(World& world, const AddDraft& draft) {
  const uint32_t limit = MatchLimit(world.config, draft.content);
  AddForecast forecast{.oracles = MatchOracle::InMemory(world, draft.content.name_space,
                                                        KeysOf(draft.content), limit)};
  for (const MatchOracle& oracle : forecast.oracles) {
    forecast.expected.push_back(Expect(world, oracle, limit, draft.tokens, draft.wanted(),
                                       draft.tenant, draft.op.whole_blocks_only));
  }
  forecast.in_all_tiers = MatchAllTiers(world, draft.content, limit, draft.op.whole_blocks_only);
  return forecast;
}

Scope AddScope(const World& world, const AddDraft& draft, const AddForecast& forecast) {
  Scope scope{.reasons = kForSpace | Bit(RemovalReason::kTakenOver),
              .sets_priorities = !draft.op.retention.empty()};
  for (size_t i = 0; i < forecast.oracles.size(); ++i) {
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      for (uint32_t length = 1; length <= forecast.expected[i].matched; ++length) {
        for (const uint32_t id : forecast.oracles[i].Sources(w, length)) {
          scope.kept[w].push_back(id);
        }
      }
    }
  }
  return scope;
}

void FollowRefusedAdd(World& world, const SimSequence& sequence, const Expected& expected,
                      const absl::Status& refusal) {
  if (sequence.running) {
    world.Refused(refusal, {Reason::kSequenceExists});
  } else if (expected.never) {
    world.Refused(refusal, {Reason::kInvalidCount, Reason::kBlocksExhausted});
  } else {
    world.Refused(refusal, {Reason::kBlocksExhausted});
    SIM_CHECK(!expected.fits || !expected.sure,
              "refused, though there is capacity: ", refusal.ToString());
  }
}

// The sequence inherits the retention of tails that it began with.
void AdoptTakenOver(World& world, SimSequence& sequence, const MatchOracle& match,
                    uint32_t matched) {
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    if (match.EndsInHole(w, matched)) world.coverage.Add(Met::kBesideHole);
    for (const World::TakenOver& taken : world.taken_over) {
      if (taken.block.window != w) continue;
      const bool own = world.MayLower(sequence.tenant, sequence.content.name_space);
      if (own && taken.retention.priority == kDefaultPriority) continue;
      sequence.tables[w].taken_over = {matched / world.tokens_per_block(), taken.retention};
    }
  }
}

void FollowAdded(World& world, SimSequence& sequence, AddDraft draft, const MatchOracle& match,
                 const AddedSequence& added) {
  const uint32_t matched = added.matched_tokens;
  sequence = {.running = true, .id = sequence.id, .tenant = draft.tenant};
  sequence.content = std::move(draft.content);
  sequence.Name(0);
  sequence.prompt_tokens = draft.tokens;
  sequence.computed = matched;
  sequence.reserved = std::max(draft.wanted(), matched);
  sequence.ready = added.ready;
  sequence.retention = std::move(draft.op.retention);
  world.prompts.Remember(sequence.content, world.random);
  AdoptMatch(world, sequence, match, matched, added.tables);
  NoteUses(world, match, matched);
  AdoptTakenOver(world, sequence, match, matched);
  const bool keyed = world.config.keyed(sequence.content.name_space);
  if (matched > 0) world.coverage.Add(keyed ? Met::kKeyedMatch : Met::kMatch);
  if (keyed && matched == draft.tokens) world.coverage.Add(Met::kMatchedAll);
  if (matched % world.tokens_per_block() != 0) world.coverage.Add(Met::kPartialMatch);
  if (world.Note()) world.Note(Text("    matched ", matched));
}

}  // namespace

void AddSequenceOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  SimSequence& sequence = PickToBegin(world, *session);
  AddDraft draft = DrawAddSequence(world, *session, sequence.id);
  if (!sequence.running && Wrong(world)) return CallWrongly(world, *session, draft.op);
  if (world.Note()) {
    world.Note(Text("  AddSequence(", session->ref.id.value(), ", ", sequence.id.value(),
                    ", name space ", draft.content.name_space, ", ", draft.tokens,
                    " tokens, reserved ", draft.reserved, ")"));
  }
  world.ApplyTime();
  const AddForecast forecast = Foresee(world, draft);
  const auto added =
      Call<AddedSequence>(world, *session, draft.op, AddScope(world, draft, forecast));
  const size_t choice = forecast.Choose(added);
  const Expected& expected = forecast.expected[choice];
  if (!added.ok()) {
    FollowRefusedAdd(world, sequence, expected, added.status());
    return world.Check();
  }
  SIM_CHECK(!sequence.running, "a sequence begins twice");
  SIM_CHECK(expected.fits || !expected.sure, "a sequence begins without capacity for it");
  const uint32_t matched = added->matched_tokens;
  SIM_CHECK(matched == expected.matched || (!expected.sure && matched < expected.matched),
            "matched ", matched, " tokens instead of ", expected.matched);
  CheckBelow(world, forecast.oracles, forecast.in_all_tiers, *added);
  FollowAdded(world, sequence, std::move(draft), forecast.oracles[choice], *added);
  world.Check();
}

}  // namespace pagoda::sim
