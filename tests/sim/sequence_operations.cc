// Sequences fork, are truncated and end.
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "tests/sim/match.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {

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
  return ledger.owner({kPrimaryTier, table.blocks[index].slot}) != own;  // Its bytes are shared.
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
