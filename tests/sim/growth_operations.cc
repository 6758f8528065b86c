// Sequences grow: reserved capacity, tokens, computed tokens.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "manager/sequences/running_sequences.h"
#include "manager/tree/sequence.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

// The expected answer when a sequence grows.
struct Growth {
  bool fits = true;
  bool never = false;  // The capacity can never hold the sequence.
  // The windows in which a tail must be copied first, and whether there are any.
  std::array<bool, kMaxWindows> copies = {};
  bool copies_tail = false;
};

// A borrowed tail that others have too.
bool MustCopyTail(World& world, const SimSequence& sequence, uint32_t window) {
  const SimTable& table = sequence.tables[window];
  if (!table.borrowed_tail) return false;
  const BlockId own = table.blocks.back().id;
  return world.ledgers[window][own].refs > 1 || world.InTree(window, own);
}

Growth Expect(World& world, const SimSequence& sequence, uint64_t reserved) {
  Growth growth;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const std::vector<BlockHandle>& blocks = sequence.tables[w].blocks;
    const bool copies = growth.copies[w] = MustCopyTail(world, sequence, w);
    growth.copies_tail = growth.copies_tail || copies;
    const uint64_t needed = world.BlocksFor(reserved) - blocks.size() + (copies ? 1 : 0);
    growth.fits = growth.fits && needed <= world.available(w, sequence.tenant);
    uint64_t first = 0;
    while (!world.full(w) && first < blocks.size() && blocks[first].id == kNoBlock) ++first;
    growth.never =
        growth.never || world.BlocksFor(reserved) > first + world.most_blocks(w, sequence.tenant);
  }
  return growth;
}

Scope GrowthScope(World& world, const SimSession& session, SimSequence& sequence) {
  Scope scope = PublishScope(sequence, kForSpace);
  if (world.Draining(session)) return scope;
  for (uint32_t w = 0; w < world.num_windows() && sequence.running; ++w) {
    if (!MustCopyTail(world, sequence, w)) continue;
    scope.let_go.push_back({w, sequence.tables[w].blocks.back().id});
  }
  return scope;
}

// The sequence has more capacity: adopts the new ends of its tables.
void FollowGrowth(World& world, SimSession& session, SimSequence& sequence, const Growth& growth,
                  uint32_t reserved, Ticket ready, const std::vector<BlockTable>& added) {
  const uint32_t old_size = world.BlocksFor(sequence.reserved);
  const uint32_t first = growth.copies_tail ? old_size - 1 : old_size;
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    SimTable& table = sequence.tables[w];
    SIM_CHECK(added[w].window == world.config.windows[w].size && added[w].first_block == first &&
                  first + added[w].blocks.size() == world.BlocksFor(reserved),
              "growth to reserved tokens: ", reserved, " gives entries [", added[w].first_block,
              ", ", added[w].first_block + added[w].blocks.size(), ")");
    if (growth.copies[w]) {
      SIM_CHECK(added[w].blocks.front().id != table.blocks.back().id,
                "rule 6: a shared tail is written without a copy");
      world.coverage.Add(Met::kTailCopied);
      world.ReleaseEntry(session, sequence, w, first);
    }
    AdoptTable(world, table, w, first, added[w].blocks);
    if (reserved > sequence.reserved) table.borrowed_tail = false;
  }
  sequence.reserved = reserved;
  sequence.ready = std::max(sequence.ready, ready);
}

// The computed tokens that a call declares: those that its engine has just written, none, or wrong
// ones.
struct Declared {
  uint32_t computed = 0;
  uint32_t known_losses = 0;
  std::vector<Reason> refusals;  // The reasons for which it must be refused, if any.
};

bool IsKeyed(const World& world, const SimSequence& sequence) {
  return sequence.running && world.config.keyed(sequence.content.name_space);
}

Declared DeclareAny(World& world, SimSequence& sequence, uint32_t new_tokens) {
  Random& random = world.random;
  Declared declared{.known_losses = sequence.known_losses};
  if (!sequence.running) return declared;
  if (!CanGoOn(world, sequence, sequence.computed)) {
    declared.computed = random.OneIn(2) ? 0 : 1 + random.Below(sequence.tokens() + new_tokens);
    declared.refusals = {Reason::kKvLost};
    return declared;
  }
  if (Wrong(world)) {
    declared.known_losses = sequence.losses + 1;
    declared.refusals = {Reason::kInvalidArgument};
    return declared;
  }
  if (sequence.known_losses < sequence.losses) {
    if (random.OneIn(2)) return declared;
    declared.computed = 1 + random.Below(sequence.tokens() + new_tokens);
    declared.refusals = {Reason::kKvLost};
    return declared;
  }
  if (Wrong(world)) {
    if (random.OneIn(2)) {
      declared.computed = sequence.tokens() + new_tokens + 1 + random.Below(3);
      declared.refusals = {Reason::kComputedBeyondTokens};
    } else if (sequence.computed > 1) {
      declared.computed = 1 + random.Below(sequence.computed - 1);
      declared.refusals = {Reason::kComputedBackwards};
    }
    return declared;
  }
  if (random.OneIn(3) || !CanCompute(world, sequence)) return declared;
  const uint32_t most = std::min(sequence.tokens(), sequence.reserved);
  if (most <= sequence.computed) return declared;
  declared.computed = random.OneIn(3) ? random.Between(sequence.computed, most) : most;
  if (IsKeyed(world, sequence)) declared.computed -= declared.computed % world.tokens_per_block();
  WriteTokens(world, sequence, declared.computed);
  return declared;
}

// Rules of keyed sequences are checked before all others: the sequence takes no tokens, and
// computes whole blocks.
Declared Declare(World& world, SimSequence& sequence, uint32_t new_tokens, bool by_keys) {
  Declared declared = DeclareAny(world, sequence, new_tokens);
  if (!sequence.running) return declared;
  const bool keyed = IsKeyed(world, sequence);
  if (new_tokens > 0 && by_keys != keyed) {
    declared.refusals = {Reason::kKeysAndTokens};
  } else if (keyed && declared.computed % world.tokens_per_block() != 0) {
    declared.refusals = {Reason::kWholeBlocksOnly};
  }
  return declared;
}

// By keys if the sequence is keyed; seldom the wrong way.
bool DrawByKeys(World& world, const SimSequence& sequence) {
  if (!world.config.name_spaces.back().keyed) return false;
  return IsKeyed(world, sequence) != Wrong(world);
}

// Whole blocks, if keys name them.
uint32_t Count(const World& world, uint32_t count, bool by_keys) {
  return by_keys ? world.BlocksFor(count) * world.tokens_per_block() : count;
}

// The tokens, or the keys of the blocks that they fill.
template <class Operation>
Operation Naming(const World& world, const std::vector<TokenId>& tokens, bool by_keys,
                 Operation operation) {
  if (by_keys) {
    operation.keys = ClientKeysOf(tokens, world.tokens_per_block());
  } else {
    operation.tokens = tokens;
  }
  return operation;
}

// Adds the tokens, and the computed tokens that the call declared.
void FollowTokens(World& world, SimSession& session, SimSequence& sequence,
                  const std::vector<TokenId>& tokens, const Declared& declared) {
  const uint32_t before = sequence.tokens();
  for (const TokenId token : tokens) sequence.content.Append(token);
  sequence.Name(before);
  sequence.named_losses = std::max(sequence.named_losses, declared.known_losses);
  if (declared.computed <= sequence.computed) return;
  sequence.computed = declared.computed;
  FollowCommit(world, session, sequence);
}

// Runs the append as a step of one sequence. (append_step_test shows that a step of many equals its
// appends.)
absl::StatusOr<AppendedTokens> AppendAsStep(World& world, SimSession& session,
                                            const SimSequence& sequence, const AppendTokens& op,
                                            const Scope& scope) {
  const auto step =
      Call<AppendedStep>(world, session,
                         AppendStep{.sequences = {op.sequence},
                                    .token_counts = {static_cast<uint32_t>(op.tokens.size())},
                                    .computed_tokens = {op.computed_tokens},
                                    .known_losses = {op.known_losses},
                                    .tokens = op.tokens},
                         scope);
  if (!step.ok()) return step.status();
  if (!step->failed.empty()) return step->failed[0].status;
  const bool grew = !step->grown.empty();
  AppendedTokens appended{
      .token_count = static_cast<uint32_t>(sequence.tokens() + op.tokens.size()),
      .ready = grew ? step->grown[0].ready : Ticket{}};
  auto block = step->blocks.begin();
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const uint32_t blocks = grew ? step->grown[0].blocks : 0;
    appended.added.push_back(
        {.window = world.config.windows[w].size,
         .first_block = grew ? step->grown[0].first_block : world.BlocksFor(sequence.reserved),
         .blocks = {block, block + blocks}});
    block += blocks;
  }
  return appended;
}

// Sometimes calls the method by its name, without operation values.
absl::StatusOr<AppendedTokens> Append(World& world, SimSession& session, const SimSequence& known,
                                      const AppendTokens& op, const Scope& scope) {
  if (world.random.OneIn(3) && op.keys.empty()) {
    return AppendAsStep(world, session, known, op, scope);
  }
  if (!world.random.OneIn(3)) return Call<AppendedTokens>(world, session, op, scope);
  world.ApplyTime();
  const absl::StatusOr<SequenceGrowth> growth =
      world.core->sequences().AppendTokens(session.ref.id, op.sequence, op.tokens,
                                           op.computed_tokens, world.now, op.known_losses, op.keys);
  world.Absorb(scope);
  if (!growth.ok()) return growth.status();
  const Sequence& sequence = *growth->sequence;
  AppendedTokens appended{.token_count = sequence.token_count, .ready = growth->ready};
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const std::vector<BlockHandle>& table = sequence.windows[w].table;
    SIM_CHECK(growth->first_block + growth->blocks == table.size(), "Growth of ", growth->blocks,
              " blocks from ", growth->first_block, " on in a table of ", table.size());
    appended.added.push_back({.window = world.config.windows[w].size,
                              .first_block = growth->first_block,
                              .blocks = {table.begin() + growth->first_block, table.end()}});
  }
  return appended;
}

bool Contains(const std::vector<Reason>& reasons, const absl::Status& status) {
  return std::find(reasons.begin(), reasons.end(), ReasonOf(status)) != reasons.end();
}

std::vector<TokenId> DrawTokens(World& world, uint32_t count) {
  Content content;
  world.prompts.AppendTokens(content, world.random, count);
  return content.tokens;
}

}  // namespace

void AppendOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& sequence = PickSequence(world, *session);
  Random& random = world.random;
  const bool by_keys = DrawByKeys(world, sequence);
  const uint32_t drawn = random.OneIn(4) ? random.Below(2 * world.tokens_per_block() + 1) : 1;
  const uint32_t count = Count(world, drawn, by_keys);
  const std::vector<TokenId> tokens = DrawTokens(world, count);
  const Declared declared = Declare(world, sequence, count, by_keys);
  if (world.Note()) {
    world.Note(Text("  AppendTokens(", session->ref.id.value(), ", ", sequence.id.value(), ", ",
                    count, ", computed ", declared.computed, ")"));
  }
  world.ApplyTime();
  const uint32_t reserved =
      std::max(sequence.reserved, static_cast<uint32_t>(sequence.tokens() + tokens.size()));
  const Growth growth = sequence.running && reserved > sequence.reserved
                            ? Expect(world, sequence, reserved)
                            : Growth{};
  const auto appended = Append(world, *session, sequence,
                               Naming(world, tokens, by_keys,
                                      AppendTokens{.sequence = sequence.id,
                                                   .tokens = {},
                                                   .computed_tokens = declared.computed,
                                                   .known_losses = declared.known_losses}),
                               GrowthScope(world, *session, sequence));
  if (!appended.ok()) {
    if (!sequence.running) {
      world.Refused(appended.status(), {Reason::kUnknownSequence});
    } else if (Contains(declared.refusals, appended.status())) {
      world.Refused(appended.status(), {declared.refusals.front()});
    } else {
      world.Refused(appended.status(),
                    {growth.never ? Reason::kInvalidCount : Reason::kBlocksExhausted,
                     Reason::kBlocksExhausted});
      SIM_CHECK(!growth.fits, "refused, though there is capacity: ", appended.status().ToString());
    }
    return world.Check();
  }
  SIM_CHECK(sequence.running && declared.refusals.empty() && growth.fits,
            "an append that must be refused");
  FollowGrowth(world, *session, sequence, growth, reserved, appended->ready, appended->added);
  FollowTokens(world, *session, sequence, tokens, declared);
  SIM_CHECK(appended->token_count == sequence.tokens(), "an append answers ", appended->token_count,
            " tokens instead of ", sequence.tokens());
  world.Check();
}

void ReserveOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& sequence = PickSequence(world, *session);
  uint32_t count = 1 + world.random.Below(2 * world.tokens_per_block());
  const bool keyed = IsKeyed(world, sequence);
  if (keyed && !Wrong(world)) count = Count(world, count, keyed);
  if (Wrong(world)) count = world.random.OneIn(2) ? 0 : 1u << world.random.Between(8, 31);
  if (world.Note()) {
    world.Note(Text("  ReserveTokens(", session->ref.id.value(), ", ", sequence.id.value(), ", ",
                    count, ")"));
  }
  world.ApplyTime();
  const uint64_t wanted = uint64_t{sequence.reserved} + count;
  const Growth growth = sequence.running ? Expect(world, sequence, wanted) : Growth{};
  const auto reserved =
      Call<ReservedTokens>(world, *session, ReserveTokens{.sequence = sequence.id, .count = count},
                           GrowthScope(world, *session, sequence));
  const bool in_part = keyed && count % world.tokens_per_block() != 0;
  if (!reserved.ok()) {
    if (!sequence.running) {
      world.Refused(reserved.status(), {Reason::kUnknownSequence});
    } else if (!CanGoOn(world, sequence, sequence.computed)) {
      world.Refused(reserved.status(), {Reason::kKvLost, Reason::kInvalidCount});
    } else if (count == 0) {
      world.Refused(reserved.status(), {Reason::kInvalidCount});
    } else if (in_part) {
      world.Refused(reserved.status(), {Reason::kWholeBlocksOnly});
    } else {
      world.Refused(reserved.status(),
                    {growth.never ? Reason::kInvalidCount : Reason::kBlocksExhausted,
                     Reason::kBlocksExhausted});
      SIM_CHECK(!growth.fits, "refused, though there is capacity: ", reserved.status().ToString());
    }
    return world.Check();
  }
  SIM_CHECK(sequence.running && count > 0 && !in_part && growth.fits &&
                CanGoOn(world, sequence, sequence.computed),
            "a reservation that must be refused");
  FollowGrowth(world, *session, sequence, growth, static_cast<uint32_t>(wanted), reserved->ready,
               reserved->added);
  world.Check();
}

void CommitOp(World& world) {
  SimSession* session = EnterSession(world, About::kSequence);
  if (session == nullptr) return;
  SimSequence& sequence = PickSequence(world, *session);
  Random& random = world.random;
  const uint32_t left = sequence.reserved - std::min(sequence.reserved, sequence.tokens());
  const bool by_keys = DrawByKeys(world, sequence);
  uint32_t count = random.OneIn(2) ? 0 : random.Below(left + 1);
  if (by_keys && IsKeyed(world, sequence)) count -= count % world.tokens_per_block();
  if (Wrong(world)) count = left + 1 + random.Below(3);
  count = Count(world, count, by_keys);
  const std::vector<TokenId> tokens = DrawTokens(world, count);
  Declared declared = Declare(world, sequence, count, by_keys);
  const bool too_many =
      sequence.running && count > 0 && sequence.tokens() + count > sequence.reserved;
  if (too_many) declared.refusals.push_back(Reason::kReservationExceeded);
  if (declared.computed > sequence.reserved)
    declared.refusals.push_back(Reason::kReservationExceeded);
  if (world.Note()) {
    world.Note(Text("  CommitTokens(", session->ref.id.value(), ", ", sequence.id.value(), ", ",
                    count, ", computed ", declared.computed, ")"));
  }
  const auto committed =
      Call<CommittedTokens>(world, *session,
                            Naming(world, tokens, by_keys,
                                   CommitTokens{.sequence = sequence.id,
                                                .tokens = {},
                                                .computed_tokens = declared.computed,
                                                .known_losses = declared.known_losses}),
                            PublishScope(sequence, 0));
  if (!committed.ok()) {
    if (!sequence.running) {
      world.Refused(committed.status(), {Reason::kUnknownSequence});
    } else {
      SIM_CHECK(Contains(declared.refusals, committed.status()),
                "a commit is refused for no reason: ", committed.status().ToString());
      world.Refused(committed.status(), {ReasonOf(committed.status())});
    }
    return world.Check();
  }
  SIM_CHECK(sequence.running && declared.refusals.empty(), "a commit that must be refused");
  FollowTokens(world, *session, sequence, tokens, declared);
  SIM_CHECK(committed->token_count == sequence.tokens(), "a commit answers ",
            committed->token_count, " tokens instead of ", sequence.tokens());
  world.Check();
}

}  // namespace pagoda::sim
