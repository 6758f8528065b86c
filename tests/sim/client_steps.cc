// What clients do besides calling: entering a batch, computing, keeping their tables.
#include <algorithm>
#include <array>
#include <optional>

#include "manager/sequences/running_sequences.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

// Steps that ascend or, seldom, do not.
StepRange DrawSteps(World& world, const SimSession& session) {
  if (!session.counts_steps || world.random.OneIn(20)) return {};
  const uint64_t step = std::max<uint64_t>(1, session.steps.step + world.random.Below(3));
  const uint64_t behind = step - session.steps.completed_step;
  return {.step = step,
          .completed_step =
              session.steps.completed_step +
              world.random.Below(static_cast<uint32_t>(std::min<uint64_t>(behind, 5)) + 1)};
}

// Every answer names the losses that no commit has named. Not every client reads the answer in
// time.
void ReadShortened(World& world, SimSession& session) {
  const std::vector<ShortenedSequence> told = world.core->sequences().Shortened(session.ref.id);
  const bool reads = world.random.Percent(70);
  size_t expected = 0;
  for (SimSequence& sequence : session.sequences) {
    if (!sequence.running || sequence.losses == sequence.named_losses) continue;
    ++expected;
    const ShortenedSequence what{.sequence = sequence.id,
                                 .computed_tokens = sequence.computed,
                                 .losses = sequence.losses,
                                 .must_be_freed = !CanGoOn(world, sequence, sequence.computed)};
    SIM_CHECK(std::find(told.begin(), told.end(), what) != told.end(), "sequence ",
              sequence.id.value(), " lost computed tokens, and its client is not told");
    if (reads) sequence.known_losses = sequence.losses;
  }
  SIM_CHECK(told.size() == expected, "a client is told of ", told.size(),
            " shortened sequences instead of ", expected);
}

// From now on the session's operations belong to its latest batch.
void EnterBatch(World& world, SimSession& session) {
  world.batch_session = &session;
  // A release without a step waits for the session's deferred releases.
  world.batch_defers =
      session.batch_steps->step != 0 || std::any_of(world.deferred.begin(), world.deferred.end(),
                                                    [&](const SimDeferredRelease& release) {
                                                      return release.session == session.ref.id;
                                                    });
}

// Others came between.
void ResumeBatch(World& world, SimSession& session) {
  world.core->ResumeBatch(session.ref.id, *session.batch_steps);
  EnterBatch(world, session);
  world.Check();
}

void BeginBatch(World& world, SimSession& session) {
  if (session.counts_steps && Wrong(world)) {
    StepRange wrong = session.steps;
    world.random.OneIn(2) ? wrong.completed_step = wrong.step + 1 : wrong.step += 1;
    if (wrong.step > session.steps.step && wrong.completed_step > 0) --wrong.completed_step;
    if (wrong.step < wrong.completed_step || wrong.completed_step < session.steps.completed_step) {
      const absl::Status status = world.core->BeginBatch(session.ref.id, wrong, world.now);
      world.Absorb({});
      world.Refused(status, {Reason::kStepBackwards});
      world.Check();
    }
  }
  const StepRange steps = DrawSteps(world, session);
  world.ApplyTime();
  if (steps.step != 0) {
    session.steps = steps;
    world.EndDeferred(session.ref.id, steps.completed_step);
  }
  const absl::Status status = world.core->BeginBatch(session.ref.id, steps, world.now);
  SIM_CHECK(status.ok(), status.ToString());
  session.batch_steps = steps;
  EnterBatch(world, session);
  world.Absorb({});
  ReadShortened(world, session);
  world.Check();
}

}  // namespace

bool Wrong(World& world) { return world.random.Percent(world.config.wrong_percent); }

SimSession* EnterSession(World& world, About about) {
  absl::InlinedVector<SimSession*, kMaxSessions> open, with_sequence;
  for (SimSession& session : world.sessions) {
    if (!session.open) continue;
    open.push_back(&session);
    if (std::any_of(session.sequences.begin(), session.sequences.end(),
                    [](const SimSequence& sequence) { return sequence.running; })) {
      with_sequence.push_back(&session);
    }
  }
  if (about == About::kSequence && !with_sequence.empty() && !world.random.OneIn(32)) {
    open = with_sequence;
  }
  if (open.empty()) {
    OpenSessionOp(world);
    return nullptr;
  }
  SimSession& session = *open[world.random.Below(static_cast<uint32_t>(open.size()))];
  if (session.batch_steps.has_value() && world.random.OneIn(4)) {
    ResumeBatch(world, session);
  } else if (world.batch_session != &session || world.random.OneIn(2)) {
    BeginBatch(world, session);
  }
  return &session;
}

SimSequence& PickSequence(World& world, SimSession& session) {
  const uint32_t begin = world.random.Below(kSequencesPerSession);
  for (uint32_t i = 0; i < kSequencesPerSession; ++i) {
    SimSequence& sequence = session.sequences[(begin + i) % kSequencesPerSession];
    if (sequence.running) return sequence;
  }
  return session.sequences[begin];
}

SequenceRetention DrawRetention(World& world, uint32_t tokens) {
  Random& random = world.random;
  SequenceRetention retention;
  const auto draw = [&] {
    const uint8_t priorities[] = {0, 20, 34, 35, 36, 50, 80, 100};
    BlockRetention one{.priority = Priority{priorities[random.Below(8)]}};
    if (world.config.durations && random.OneIn(2)) {
      one.duration = absl::Microseconds(1 << random.Between(4, 20));
    }
    return one;
  };
  uint32_t begin = 0;
  while (begin < tokens && retention.ranges.size() < 3 && !random.OneIn(3)) {
    begin += random.OneIn(2) ? 0 : random.Below(world.tokens_per_block() + 1);
    const uint32_t end = begin + 1 + random.Below(2 * world.tokens_per_block());
    retention.ranges.push_back({.token_start = begin, .token_end = end, .retention = draw()});
    begin = end;
  }
  if (!retention.ranges.empty() && random.OneIn(3)) retention.ranges.back().token_end.reset();
  if (random.OneIn(2)) retention.generated = draw();
  return retention;
}

bool SetsPriorities(const SimSequence& sequence) {
  return !sequence.retention.empty() ||
         std::any_of(sequence.tables.begin(), sequence.tables.end(),
                     [](const SimTable& table) { return table.taken_over.has_value(); });
}

Scope PublishScope(SimSequence& sequence, Reasons reasons) {
  return {.reasons = reasons | Bit(RemovalReason::kTakenOver),
          .publisher = &sequence,
          .sets_priorities = SetsPriorities(sequence)};
}

void AdoptFresh(World& world, uint32_t window, const BlockHandle& handle) {
  Ledger& ledger = world.ledgers[window];
  const uint32_t id = handle.id.value();
  SIM_CHECK(handle.id != kNoBlock && handle.slot.value() < world.config.windows[window].primary(),
            "an answer names block ", id, " in slot ", handle.slot.value());
  const auto taken = [&](uint32_t other) {
    return ledger[other].refs > 0 ||
           (world.shadows[window].node(other).cached() && ledger[other].placed);
  };
  SIM_CHECK(!taken(id), "block ", id, " is handed out while it is held or cached");
  SIM_CHECK(handle.generation > ledger[id].generation, "block ", id,
            " begins a life with generation ", handle.generation.value(), " after ",
            ledger[id].generation.value());
  const SlotRef slot{kPrimaryTier, handle.slot};
  const uint32_t owner = ledger.owner(slot);
  SIM_CHECK(owner == kNone || owner == id || !taken(owner), "slot ", handle.slot.value(),
            " is handed out while block ", owner, " lies in it");
  SIM_CHECK(!world.on_order.InTransit(window, slot), "D6: slot ", handle.slot.value(),
            " is handed out while it is in transit");
  ledger[id].generation = handle.generation;
  ledger[id].unknown_life = false;
  ledger.Place(id, slot);
  ledger.Hold(handle.id, Ledger::Holder::kUser);
}

void AdoptTable(World& world, SimTable& table, uint32_t window, uint32_t first_block,
                const std::vector<BlockHandle>& blocks) {
  SIM_CHECK(first_block <= table.blocks.size(), "an answer leaves a gap in a table");
  const size_t kept = table.blocks.size();
  table.blocks.resize(first_block + blocks.size());
  table.canonical.resize(first_block + blocks.size(), kNoBlock);
  for (size_t i = first_block; i < table.blocks.size(); ++i) {
    const BlockHandle& handle = blocks[i - first_block];
    if (i < kept && table.blocks[i] == handle) continue;
    AdoptFresh(world, window, handle);
    table.blocks[i] = handle;
    table.canonical[i] = kNoBlock;
  }
}

bool CanGoOn(const World& world, const SimSequence& sequence, uint32_t computed) {
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const uint64_t reach = world.window_size(w) - 1;
    const uint64_t needed = (computed > reach ? computed - reach : 0) / world.tokens_per_block();
    const std::vector<BlockHandle>& blocks = sequence.tables[w].blocks;
    if (needed < blocks.size() && blocks[needed].id == kNoBlock) return false;
  }
  return true;
}

bool CanCompute(const World& world, const SimSequence& sequence) {
  return sequence.running && sequence.known_losses == sequence.losses &&
         world.Ready(sequence.ready) && CanGoOn(world, sequence, sequence.computed);
}

void WriteTokens(World& world, SimSequence& sequence, uint32_t end) {
  // Draft tokens, and any other bytes that an engine leaves in places without a named token.
  const bool scribble = world.random.OneIn(4);
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const std::vector<BlockHandle>& blocks = sequence.tables[w].blocks;
    const auto place = [&](uint32_t token) -> Value& {
      const BlockHandle& handle = blocks[token / world.tokens_per_block()];
      return world.memory.slot(w, {kPrimaryTier, handle.slot})[token % world.tokens_per_block()];
    };
    for (uint32_t t = sequence.computed; t < end; ++t) place(t) = sequence.values[t];
    if (!scribble) continue;
    for (uint32_t t = sequence.tokens(); t < sequence.reserved; ++t) place(t) = world.random.Next();
  }
}

namespace {

// The new block begins with some cached tails. Those that nothing held have left. The block keeps
// the highest of their retentions, unless its sequence has a wish. Returns whether there were any.
bool FollowTakenOver(World& world, uint32_t window, uint32_t parent, uint32_t id, bool has_wish) {
  const Shadow& shadow = world.shadows[window];
  const Node& node = shadow.node(id);
  const auto begins_with = [&](const Node& shorter) {
    return shorter.name_space == node.name_space && shorter.parent == parent &&
           shorter.count < node.count &&
           std::equal(shorter.keys.begin(), shorter.keys.begin() + shorter.count,
                      node.keys.begin());
  };
  bool any = false;
  for (const World::TakenOver& taken : world.taken_over) {
    if (taken.block.window != window || !begins_with(taken.node)) continue;
    any = true;
    world.coverage.Add(Met::kTailTakenOver);
    if (!has_wish) world.Raise(window, id, taken.retention);
  }
  for (uint32_t child = shadow.first_child(parent, node.name_space); child != kNone;
       child = shadow.node(child).next_sibling) {
    SIM_CHECK(!shadow.node(child).cached() || !begins_with(shadow.node(child)) ||
                  world.ledgers[window][child].refs > 0,
              "block ", child, " stays cached beside block ", id, ", which begins with it");
  }
  return any;
}

// One more block of a sequence, which must now be in the tree.
class PublishedBlock {
 public:
  // The block `index` of the sequence's table, of which `count` tokens are computed.
  PublishedBlock(World& world, SimSequence& sequence, uint32_t window, uint32_t index,
                 uint32_t count);

  // It is the sequence's own, or one that was there before. Returns false if the sequence cannot
  // publish the block and stops publishing.
  bool Follow();

 private:
  absl::Span<const TokenKey> keys() const { return {keys_.data(), count_}; }
  bool IsStoredNow();
  void FollowOwn();
  void FollowLonger();
  bool FollowEarlier(uint32_t id);
  bool GivesBytesTo(uint32_t id);
  bool Detach();

  World& world_;
  SimSequence& sequence_;
  SimTable& table_;
  Ledger& ledger_;
  const Shadow& shadow_;
  const uint32_t window_;
  const uint32_t index_;
  const uint32_t begin_;
  const uint32_t count_;
  const uint32_t own_;
  std::array<TokenKey, kMaxTokensPerBlock> keys_;
  const std::optional<BlockRetention> wish_;
  // A wish that may not lower cached blocks is applied after earlier retentions.
  const bool wish_holds_;
  const bool takes_over_;
  // A block of the primary tier that begins with the tokens of a computed tail, which is not cached
  // then. kNone: there is none.
  uint32_t longer_ = kNone;
};

PublishedBlock::PublishedBlock(World& world, SimSequence& sequence, uint32_t window, uint32_t index,
                               uint32_t count)
    : world_(world),
      sequence_(sequence),
      table_(sequence.tables[window]),
      ledger_(world.ledgers[window]),
      shadow_(world.shadows[window]),
      window_(window),
      index_(index),
      begin_(index * world.tokens_per_block()),
      count_(count),
      own_(table_.blocks[index].id.value()),
      wish_(RetentionOf(sequence.retention, sequence.prompt_tokens, begin_)),
      wish_holds_(wish_.has_value() &&
                  world.MayLower(sequence.tenant, sequence.content.name_space)),
      takes_over_(table_.taken_over.has_value() && table_.taken_over->first == index) {
  for (uint32_t i = 0; i < count; ++i) keys_[i] = sequence.content.key(begin_ + i);
  if (count == world.tokens_per_block()) return;
  const uint32_t longer =
      shadow_.FirstLonger(table_.tip.value(), sequence.content.name_space, keys());
  if (longer != kNone && shadow_.node(longer).tier == kPrimaryTier) longer_ = longer;
}

bool PublishedBlock::Follow() {
  if (IsStoredNow()) {
    FollowOwn();
    return true;
  }
  const uint32_t id = shadow_.FindChild(table_.tip.value(), sequence_.content.name_space, keys());
  if (id == kNone && longer_ != kNone) {
    FollowLonger();
    return true;
  }
  SIM_CHECK(id != kNone, "rule 7: block ", index_, " of sequence ", sequence_.id.value(),
            " is computed, and not in the tree of window ",
            WindowName(world_.config.windows[window_].size), ": ", count_, " tokens in block ",
            own_);
  return FollowEarlier(id);
}

// Whether the running call stored the sequence's own block, with these tokens.
bool PublishedBlock::IsStoredNow() {
  const Node& node = shadow_.node(own_);
  const bool same = node.cached() && node.count == count_ &&
                    node.values[count_ - 1] == sequence_.values[begin_ + count_ - 1];
  return same && std::erase(world_.stored, HeldBlock{window_, BlockId{own_}}) != 0;
}

void PublishedBlock::FollowOwn() {
  SIM_CHECK(longer_ == kNone, "block ", own_, " of ", count_,
            " tokens is cached beside a block that begins with them");
  const uint32_t parent = table_.tip.value();
  table_.tip = BlockId{own_};
  if (wish_holds_) {
    world_.Wish(window_, own_, *wish_);
  } else if (takes_over_) {
    world_.Wish(window_, own_, table_.taken_over->second);
  }
  const bool takes_place =
      FollowTakenOver(world_, window_, parent, own_, wish_holds_) || takes_over_;
  if (wish_.has_value() && !wish_holds_) {
    takes_place ? (void)world_.WishOf(sequence_.tenant, window_, own_, *wish_)
                : world_.Wish(window_, own_, *wish_);
  }
}

// The longer block is as recent as if it had been published again, unless the tenant's quota does
// not let it hold that block.
void PublishedBlock::FollowLonger() {
  world_.coverage.Add(Met::kTailInLonger);
  if (!world_.MayHold(window_, longer_, sequence_.tenant)) return;
  ledger_[longer_].deadline = absl::InfiniteFuture();
  table_.canonical[index_] = BlockId{longer_};
  ledger_.Hold(BlockId{longer_}, Ledger::Holder::kUser);
  if (wish_holds_) {
    world_.Raise(window_, longer_, *wish_);
  } else if (takes_over_) {
    world_.Raise(window_, longer_, table_.taken_over->second);
  }
  if (wish_.has_value() && !wish_holds_) {
    world_.WishOf(sequence_.tenant, window_, longer_, *wish_);
  }
}

// The tree has the block `id` with these tokens.
bool PublishedBlock::FollowEarlier(uint32_t id) {
  const bool has_bytes = ledger_[id].placed && ledger_[id].place.tier == kPrimaryTier;
  if (!has_bytes) {
    if (!GivesBytesTo(id)) return Detach();
  } else if (!world_.MayHold(window_, id, sequence_.tenant)) {
    // The sequence's block and the cached one together would exceed the quota.
    return Detach();
  }
  world_.coverage.Add(Met::kCanonical);
  table_.canonical[index_] = BlockId{id};
  table_.tip = BlockId{id};
  ledger_.Hold(BlockId{id}, Ledger::Holder::kUser);
  ledger_[id].deadline = absl::InfiniteFuture();
  if (wish_holds_) {
    world_.Wish(window_, id, *wish_);
  } else if (takes_over_) {
    world_.Raise(window_, id, table_.taken_over->second);
  }
  if (!has_bytes) FollowTakenOver(world_, window_, shadow_.node(id).parent, id, wish_holds_);
  if (wish_.has_value() && !wish_holds_) world_.WishOf(sequence_.tenant, window_, id, *wish_);
  return true;
}

// The cached block is a hole or lies in a lower tier. It gets this sequence's block if only this
// sequence has that.
bool PublishedBlock::GivesBytesTo(uint32_t id) {
  const SlotRef slot{kPrimaryTier, table_.blocks[index_].slot};
  if (ledger_[own_].refs != 1 || ledger_.owner(slot) != own_ ||
      world_.memory.Arriving(window_, slot)) {
    return false;
  }
  SIM_CHECK(shadow_.node(id).cached() && shadow_.node(id).tier == kPrimaryTier,
            "rule 10: the cached block ", id, " does not get the bytes of block ", own_);
  ledger_.AddCopy(id, slot);
  std::erase(world_.stored, HeldBlock{window_, BlockId{id}});
  world_.coverage.Add(Met::kCanonicalMoved);
  return true;
}

// The sequence stops publishing. Returns false.
bool PublishedBlock::Detach() {
  table_.detached = true;
  world_.coverage.Add(Met::kDetached);
  return false;
}

bool FollowPublished(World& world, SimSequence& sequence, uint32_t window, uint32_t index,
                     uint32_t count) {
  return PublishedBlock(world, sequence, window, index, count).Follow();
}

void FollowWindow(World& world, SimSession& session, SimSequence& sequence, uint32_t window) {
  SimTable& table = sequence.tables[window];
  const uint32_t full_blocks = sequence.computed / world.tokens_per_block();
  while (!table.detached && table.published < full_blocks &&
         FollowPublished(world, sequence, window, table.published, world.tokens_per_block())) {
    ++table.published;
  }
  if (world.full(window)) return;
  // Rule 9: blocks outside the window of the next token leave, except the last published block.
  for (uint32_t i = 0; i < table.blocks.size(); ++i) {
    const uint64_t end = (uint64_t{i} + 1) * world.tokens_per_block();
    if (end + world.window_size(window) > uint64_t{sequence.computed} + 1) break;
    if (!table.detached && i + 1 >= table.published) break;
    if (table.blocks[i].id == kNoBlock) continue;
    world.ReleaseEntry(session, sequence, window, i);
    world.coverage.Add(Met::kSlid);
  }
}

}  // namespace

void FollowCommit(World& world, SimSession& session, SimSequence& sequence) {
  for (uint32_t w = 0; w < world.num_windows(); ++w) FollowWindow(world, session, sequence, w);
}

void FollowEnd(World& world, SimSession& session, SimSequence& sequence, ComputedTail tail) {
  const uint32_t count = sequence.computed % world.tokens_per_block();
  const uint32_t index = sequence.computed / world.tokens_per_block();
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    FollowWindow(world, session, sequence, w);
    SimTable& table = sequence.tables[w];
    // A copy that failed in another window may have taken tokens that are published in this one.
    if (tail == ComputedTail::kPublished && !table.detached && count > 0 &&
        table.published == index) {
      const BlockId own = table.blocks[index].id;
      // The sequence does not store a borrowed tail that others share or have stored.
      const bool alone = world.ledgers[w][own].refs == 1 &&
                         (!world.shadows[w].node(own.value()).cached() ||
                          std::find(world.stored.begin(), world.stored.end(), HeldBlock{w, own}) !=
                              world.stored.end());
      if (!table.borrowed_tail || alone) FollowPublished(world, sequence, w, index, count);
    }
    for (auto i = static_cast<uint32_t>(table.blocks.size()); i-- > 0;) {
      world.ReleaseEntry(session, sequence, w, i);
    }
  }
  const SequenceId id = sequence.id;
  sequence = {};
  sequence.id = id;
}

}  // namespace pagoda::sim
