// Sequences begin, fork, are truncated and end.
#include <algorithm>
#include <array>
#include <utility>

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
                    facts.place == SlotRef(Tier::kPrimary, blocks[i].slot) &&
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

}  // namespace

void AddSequenceOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  Random& random = world.random;
  const auto draw = [&]() -> SimSequence& {
    return session->sequences[random.Below(kSequencesPerSession)];
  };
  SimSequence* drawn = &draw();
  for (uint32_t i = 0; i < 4 && drawn->running; ++i) drawn = &draw();
  SimSequence& sequence = *drawn;
  const uint32_t most =
      random.OneIn(8) ? 40 * world.tokens_per_block() : world.config.max_prompt_tokens;
  Content content = world.prompts.Draw(random, most);
  content.name_space = world.config.Confined(session->tenant, content.name_space);
  const bool keyed = world.config.keyed(content.name_space);
  CutToBlocks(world.config, content);
  if (content.tokens.empty()) {
    world.prompts.AppendTokens(content, random, keyed ? world.tokens_per_block() : 1);
  }
  const TenantId tenant = world.TenantFor(*session, content.name_space);
  const auto tokens = static_cast<uint32_t>(content.tokens.size());
  uint32_t reserved = random.OneIn(3) ? random.Below(tokens + 2 * world.tokens_per_block()) : 0;
  if (keyed) reserved = reserved / world.tokens_per_block() * world.tokens_per_block();
  SentContent sent = SendAll(world.config, content, random);
  AddSequence op{.sequence = sequence.id,
                 .name_space = world.Ask(*session, content.name_space),
                 .tokens = std::move(sent.tokens),
                 .reserved_tokens = reserved,
                 .extra_token_ids = std::move(sent.extra_token_ids),
                 .multimodal_items = std::move(sent.items),
                 .whole_blocks_only = random.OneIn(8),
                 .keys = std::move(sent.keys)};
  if (random.Percent(world.config.retention_percent)) op.retention = DrawRetention(world, tokens);
  if (!sequence.running && Wrong(world)) {
    const Reason reason = MakeWrong(world, *session, op);
    // The check of permissions comes before the expiries.
    if (reason != Reason::kPermissionDenied) world.ApplyTime();
    const absl::Status refused = world.core->Execute(session->ref.id, op, world.now).status();
    world.Absorb({});
    world.Refused(refused, {reason});
    return world.Check();
  }
  if (world.Note()) {
    world.Note(Text("  AddSequence(", session->ref.id.value(), ", ", sequence.id.value(),
                    ", name space ", content.name_space, ", ", tokens, " tokens, reserved ",
                    reserved, ")"));
  }
  world.ApplyTime();
  const uint32_t limit = MatchLimit(world.config, content);
  const std::vector<MatchOracle> oracles =
      MatchOracle::InMemory(world, content.name_space, KeysOf(content), limit);
  std::vector<Expected> all_expected;
  for (const MatchOracle& oracle : oracles) {
    all_expected.push_back(Expect(world, oracle, limit, tokens, reserved == 0 ? tokens : reserved,
                                  tenant, op.whole_blocks_only));
  }
  const uint32_t in_all_tiers = MatchAllTiers(world, content, limit, op.whole_blocks_only);
  Scope scope{.reasons = kForSpace | Bit(RemovalReason::kTakenOver),
              .sets_priorities = !op.retention.empty()};
  for (size_t i = 0; i < oracles.size(); ++i) {
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      for (uint32_t length = 1; length <= all_expected[i].matched; ++length) {
        for (const uint32_t id : oracles[i].Sources(w, length)) scope.kept[w].push_back(id);
      }
    }
  }
  const auto added = Call<AddedSequence>(world, *session, op, scope);
  size_t choice = 0;
  while (choice + 1 < oracles.size() && !IsAnswer(all_expected[choice], added)) ++choice;
  const MatchOracle& match = oracles[choice];
  const Expected& expected = all_expected[choice];
  if (!added.ok()) {
    if (sequence.running) {
      world.Refused(added.status(), {Reason::kSequenceExists});
    } else if (expected.never) {
      world.Refused(added.status(), {Reason::kInvalidCount, Reason::kBlocksExhausted});
    } else {
      world.Refused(added.status(), {Reason::kBlocksExhausted});
      SIM_CHECK(!expected.fits || !expected.sure,
                "refused, though there is capacity: ", added.status().ToString());
    }
    return world.Check();
  }
  SIM_CHECK(!sequence.running, "a sequence begins twice");
  SIM_CHECK(expected.fits || !expected.sure, "a sequence begins without capacity for it");
  const uint32_t matched = added->matched_tokens;
  SIM_CHECK(matched == expected.matched || (!expected.sure && matched < expected.matched),
            "matched ", matched, " tokens instead of ", expected.matched);
  CheckBelow(world, oracles, in_all_tiers, *added);
  sequence = {.running = true, .id = sequence.id, .tenant = tenant};
  sequence.content = std::move(content);
  sequence.Name(0);
  sequence.prompt_tokens = tokens;
  sequence.computed = matched;
  sequence.reserved = std::max(reserved == 0 ? tokens : reserved, matched);
  sequence.ready = added->ready;
  sequence.retention = op.retention;
  world.prompts.Remember(sequence.content, random);
  AdoptMatch(world, sequence, match, matched, added->tables);
  NoteUses(world, match, matched);
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    if (match.EndsInHole(w, matched)) world.coverage.Add(Met::kBesideHole);
    for (const World::TakenOver& taken : world.taken_over) {
      if (taken.block.window != w) continue;
      const bool own = world.MayLower(tenant, sequence.content.name_space);
      if (own && taken.retention.priority == kDefaultPriority) continue;
      sequence.tables[w].taken_over = {matched / world.tokens_per_block(), taken.retention};
    }
  }
  if (matched > 0) world.coverage.Add(keyed ? Met::kKeyedMatch : Met::kMatch);
  if (keyed && matched == tokens) world.coverage.Add(Met::kMatchedAll);
  if (matched % world.tokens_per_block() != 0) world.coverage.Add(Met::kPartialMatch);
  if (world.Note()) world.Note(Text("    matched ", matched));
  world.Check();
}

void ForkOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& parent = PickSequence(world, *session);
  SimSequence& child = session->sequences[world.random.Below(kSequencesPerSession)];
  if (world.Note()) {
    world.Note(Text("  ForkSequence(", session->ref.id.value(), ", ", parent.id.value(), " -> ",
                    child.id.value(), ")"));
  }
  const auto forked = Call<ForkedSequence>(
      world, *session, ForkSequence{.sequence = parent.id, .new_sequence = child.id}, {});
  const bool goes_on = CanGoOn(world, parent, parent.computed);
  if (!forked.ok()) {
    SIM_CHECK(!parent.running || child.running || !goes_on, "a fork is refused for no reason");
    if (!parent.running) {
      world.Refused(forked.status(), {Reason::kUnknownSequence});
    } else {
      world.Refused(forked.status(), {goes_on ? Reason::kSequenceExists : Reason::kKvLost,
                                      child.running ? Reason::kSequenceExists : Reason::kKvLost});
    }
    return world.Check();
  }
  SIM_CHECK(parent.running && !child.running && goes_on, "a fork that must be refused");
  SIM_CHECK(forked->token_count == parent.tokens() && forked->computed_tokens == parent.computed,
            "a fork has ", forked->token_count, " tokens, ", forked->computed_tokens, " computed");
  const SequenceId id = child.id;
  parent.forked = std::max(parent.forked, parent.computed);
  child = parent;
  child.forked = parent.computed;
  child.id = id;
  child.ready = forked->ready;
  SIM_CHECK(forked->losses == parent.losses, "a fork begins with ", forked->losses,
            " losses instead of ", parent.losses);
  // Otherwise the client has not read them.
  if (world.random.OneIn(2)) child.known_losses = forked->losses;
  child.reserved = parent.computed;
  const uint32_t shared = world.BlocksFor(parent.computed);
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    SimTable& table = child.tables[w];
    table.blocks.resize(shared);
    table.canonical.resize(shared);
    table.borrowed_tail = parent.computed % world.tokens_per_block() != 0;
    if (table.taken_over.has_value() && table.taken_over->first >= shared) table.taken_over.reset();
    // A failed copy took the end of the blocks that its parent had published.
    if (table.published > parent.computed / world.tokens_per_block()) {
      table.published = parent.computed / world.tokens_per_block();
      table.detached = true;
    }
    SIM_CHECK(forked->tables[w].first_block == 0 && forked->tables[w].blocks == table.blocks,
              "a fork does not share its parent's table");
  }
  world.Check();
}

namespace {

// Whether the block in which `tokens` ends must be copied before it is written.
bool MustCopyCut(World& world, const SimSequence& sequence, uint32_t window, uint32_t tokens) {
  const SimTable& table = sequence.tables[window];
  const uint32_t index = tokens / world.tokens_per_block();
  if (tokens % world.tokens_per_block() == 0 || index >= table.blocks.size() ||
      (tokens >= std::max(sequence.computed, sequence.forked) && index >= table.published) ||
      (table.borrowed_tail && index + 1 == table.blocks.size())) {
    return false;
  }
  const uint32_t own = table.blocks[index].id.value();
  if (own == kNone) return false;  // Refused: the window has passed it.
  Ledger& ledger = world.ledgers[window];
  if (ledger[own].refs > 1) return true;
  if (world.core->IsCutOff(world.config.windows[window].size, BlockId{own})) return true;
  if (world.shadows[window].node(own).cached()) return world.shadows[window].HasChildren(own);
  return ledger.owner({Tier::kPrimary, table.blocks[index].slot}) != own;  // Its bytes are shared.
}

void FollowTruncate(World& world, SimSession& session, SimSequence& sequence, uint32_t window,
                    uint32_t tokens, bool must_copy, const BlockTable& told) {
  SimTable& table = sequence.tables[window];
  const auto size = static_cast<uint32_t>(table.blocks.size());
  const uint32_t index = tokens / world.tokens_per_block();
  const uint32_t keep = std::min(size, world.BlocksFor(tokens));
  const bool cuts = tokens % world.tokens_per_block() != 0 && index < size;
  SIM_CHECK(told.first_block <= keep && told.first_block + told.blocks.size() == keep,
            "a table of ", told.first_block + told.blocks.size(), " blocks instead of ", keep);
  if (cuts) {
    const bool copied =
        index >= told.first_block && told.blocks[index - told.first_block] != table.blocks[index];
    SIM_CHECK(copied == must_copy, "block ", table.blocks[index].id.value(),
              copied ? " is copied" : " is cut in place", " when it is truncated");
    if (copied) {
      world.coverage.Add(Met::kCutCopied);
      world.ReleaseEntry(session, sequence, window, index);
      table.borrowed_tail = false;
    } else if (table.canonical[index] != kNoBlock) {
      world.Release(session, sequence.tenant, window, table.canonical[index]);
      table.canonical[index] = kNoBlock;
    }
  }
  if (size > keep) table.borrowed_tail = false;
  for (uint32_t i = size; i-- > keep;) world.ReleaseEntry(session, sequence, window, i);
  table.blocks.resize(keep);
  table.canonical.resize(keep);
  if (table.taken_over.has_value() && table.taken_over->first >= keep) table.taken_over.reset();
  AdoptTable(world, table, window, told.first_block, told.blocks);
  if (table.published <= index) return;
  table.published = index;
  table.tip = index == 0                               ? kNoBlock
              : table.canonical[index - 1] != kNoBlock ? table.canonical[index - 1]
                                                       : table.blocks[index - 1].id;
  if (cuts && !table.detached) {
    const BlockHandle& cut = table.blocks[index];
    SIM_CHECK(table.borrowed_tail || !world.shadows[window].node(cut.id.value()).cached(),
              "a sequence goes on in block ", cut.id.value(), ", which is cached");
  }
}

}  // namespace

void TruncateOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& sequence = PickSequence(world, *session);
  uint32_t tokens = world.random.Below(sequence.tokens() + 1);
  if (world.random.OneIn(2)) {
    tokens = sequence.tokens() - std::min(sequence.tokens(), world.random.Below(4));
  }
  const bool keyed = sequence.running && world.config.keyed(sequence.content.name_space);
  if (keyed && !Wrong(world)) tokens -= tokens % world.tokens_per_block();
  if (Wrong(world)) tokens = world.random.OneIn(2) ? 0 : sequence.tokens() + 1;
  if (world.Note()) {
    world.Note(Text("  TruncateSequence(", session->ref.id.value(), ", ", sequence.id.value(), ", ",
                    tokens, ")"));
  }
  world.ApplyTime();
  bool passed = false, exhausted = false;
  std::array<bool, kMaxWindows> copies = {};
  for (uint32_t w = 0; w < world.num_windows() && tokens > 0 && sequence.running; ++w) {
    const std::vector<BlockHandle>& blocks = sequence.tables[w].blocks;
    uint32_t first = 0;
    while (first < blocks.size() && blocks[first].id == kNoBlock) ++first;
    const uint64_t reach = world.window_size(w) - 1;
    uint32_t needed =
        static_cast<uint32_t>(tokens > reach ? tokens - reach : 0) / world.tokens_per_block();
    const uint32_t whole = tokens / world.tokens_per_block();
    if (whole > 0) needed = std::min(needed, whole - 1);
    passed = passed || (first > 0 && needed < first);
    copies[w] = MustCopyCut(world, sequence, w, std::min(tokens, sequence.tokens()));
    exhausted = exhausted || (copies[w] && world.available(w, sequence.tenant) == 0);
  }
  const auto cut = Call<TruncatedSequence>(
      world, *session, TruncateSequence{.sequence = sequence.id, .token_count = tokens},
      {.reasons = kForSpace | Bit(RemovalReason::kTruncated), .cuts = &sequence});
  const bool wrong = tokens == 0 || tokens > sequence.tokens();
  const bool in_part = keyed && tokens % world.tokens_per_block() != 0;
  if (!cut.ok()) {
    if (!sequence.running) {
      world.Refused(cut.status(), {Reason::kUnknownSequence});
    } else if (wrong) {
      world.Refused(cut.status(), {Reason::kInvalidCount});
    } else if (in_part) {
      world.Refused(cut.status(), {Reason::kWholeBlocksOnly});
    } else {
      const Reason reason = ReasonOf(cut.status());
      world.Refused(cut.status(), {Reason::kWindowPassed, Reason::kBlocksExhausted});
      SIM_CHECK(reason == Reason::kWindowPassed ? passed : exhausted,
                "a truncation is refused for no reason: ", cut.status().ToString());
    }
    return world.Check();
  }
  SIM_CHECK(sequence.running && !wrong && !in_part && !passed && !exhausted,
            "a truncation that must be refused");
  const uint32_t old_tokens = sequence.tokens();
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    FollowTruncate(world, *session, sequence, w, tokens, copies[w], cut->tables[w]);
  }
  if (old_tokens > tokens) world.prompts.Remember(sequence.content, world.random);
  sequence.content.Resize(tokens);
  sequence.Name(tokens);
  sequence.reserved = std::min(sequence.reserved, tokens);
  sequence.computed = std::min(sequence.computed, tokens);
  sequence.prompt_tokens = std::min(sequence.prompt_tokens, tokens);
  sequence.forked = std::min(sequence.forked, tokens);
  sequence.ready = std::max(sequence.ready, cut->ready);
  SIM_CHECK(cut->token_count == tokens && cut->computed_tokens == sequence.computed,
            "a truncation answers ", cut->token_count, " tokens, ", cut->computed_tokens,
            " computed");
  world.Check();
}

void FreeSequenceOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& sequence = Wrong(world) ? session->sequences[0] : PickSequence(world, *session);
  if (world.Note()) {
    world.Note(Text("  FreeSequence(", session->ref.id.value(), ", ", sequence.id.value(), ")"));
  }
  const auto freed = Call<FreedSequence>(world, *session, FreeSequence{.sequence = sequence.id},
                                         PublishScope(sequence, 0));
  if (!sequence.running) {
    world.Refused(freed.status(), {Reason::kUnknownSequence});
    return world.Check();
  }
  SIM_CHECK(freed.ok(), freed.status().ToString());
  world.prompts.Remember(sequence.content, world.random);
  FollowEnd(world, *session, sequence);
  world.Check();
}

void DescribeOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& sequence = session->sequences[world.random.Below(kSequencesPerSession)];
  const absl::StatusOr<OperationResult> described =
      world.core->Execute(session->ref.id, DescribeSequence{.sequence = sequence.id}, world.now);
  world.Absorb({});
  if (!sequence.running) {
    world.Refused(described.status(), {Reason::kUnknownSequence});
    return world.Check();
  }
  SIM_CHECK(described.ok(), described.status().ToString());
  const auto& told = std::get<DescribedSequence>(*described);
  SIM_CHECK(told.token_count == sequence.tokens() && told.computed_tokens == sequence.computed &&
                told.reserved_tokens == sequence.reserved,
            "DescribeSequence says something else");
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    SIM_CHECK(told.tables[w].blocks == sequence.tables[w].blocks,
              "DescribeSequence gives another table");
  }
  // When this ticket is done, Check() compares the bytes.
  sequence.ready = told.ready;
  world.Check();
}

}  // namespace pagoda::sim
