// How sessions and quarantines end: one call begins the ending, and chunks free the blocks, with
// other operations in between.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "manager/sequences/session_endings.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kEverything = std::numeric_limits<uint32_t>::max();

enum class How { kByClient, kByLease };

// From now on every call of the session is refused.
void BeginEnding(World& world, SimSession& session, How how) {
  if (world.batch_session == &session) world.batch_session = nullptr;
  session.open = false;
  session.ending = true;
  session.writes = session.writes && how == How::kByLease;
  session.drops_tails = session.writes;
  const auto deferred_of_it = [&](const SimDeferredRelease& release) {
    return release.session == session.ref.id;
  };
  session.deferred_below =
      session.writes && std::any_of(world.deferred.begin(), world.deferred.end(), deferred_of_it);
  session.batch_steps.reset();
  world.endings.push_back({.id = session.ref.id, .session = &session});
}

// Until its quarantine ends, the session may write the blocks that the sequence has not published.
void HoldWritable(World& world, const SimSession& session, const SimSequence& sequence) {
  const uint32_t size = world.tokens_per_block();
  for (uint32_t w = 0; w < world.num_windows(); ++w) {
    const SimTable& table = sequence.tables[w];
    Ledger& ledger = world.ledgers[w];
    const auto is_private = [&](const BlockHandle& handle) {
      return !world.InTree(w, handle.id) &&
             ledger.owner({kPrimaryTier, handle.slot}) == handle.id.value();
    };
    auto end = static_cast<uint32_t>(table.blocks.size());
    if (table.borrowed_tail &&
        !(is_private(table.blocks.back()) && ledger[table.blocks.back().id].refs == 1)) {
      --end;
    }
    for (uint32_t i = std::min(table.published, sequence.computed / size); i < end; ++i) {
      const BlockHandle& own = table.blocks[i];
      if (own.id == kNoBlock || !is_private(own)) continue;
      SimDeferredRelease& release = world.deferred.emplace_back();
      release = {.session = session.ref.id,
                 .tenant = sequence.tenant,
                 .step = kNever,
                 .block = {w, own.id}};
      release.slot = {kPrimaryTier, own.slot};
      ledger.Hold(own.id, Ledger::Holder::kDefer);
      const uint32_t begin = i * size;
      const uint32_t kept = std::max(sequence.computed, sequence.forked);
      release.writable_begin = std::min(kept - std::min(kept, begin), size);
      release.writable_end = world.Ready(sequence.ready) && !table.borrowed_tail ? size : 0;
    }
  }
}

bool HasDeferred(const World& world, SessionId session) {
  return std::any_of(world.deferred.begin(), world.deferred.end(),
                     [&](const SimDeferredRelease& release) { return release.session == session; });
}

SimSequence* FirstSequence(SimSession& session) {
  SimSequence* first = nullptr;
  for (SimSequence& sequence : session.sequences) {
    if (sequence.running && (first == nullptr || sequence.id < first->id)) first = &sequence;
  }
  return first;
}

bool Continue(World& world, uint32_t max_blocks) {
  world.ApplyTime();
  if (world.Note()) world.Note(Text("  ContinueEndings(", max_blocks, ")"));
  return world.core->endings().ContinueEndings(world.now, max_blocks);
}

// Its deferred releases end. Those of a quarantine end a few at a time. Only the core knows their
// order, so in between only the core's invariants are checked.
bool ContinueDeferred(World& world, const World::Ending& ending) {
  const uint64_t ended = world.core->endings().ended();
  bool more = Continue(world, ending.session == nullptr ? world.random.Between(1, 8) : kEverything);
  while (ending.session == nullptr && world.core->endings().ended() == ended) {
    world.core->CheckInvariants();
    more = Continue(world, world.random.Between(1, 8));
  }
  world.EndDeferred(ending.id, kNever);
  world.Absorb({});
  return more;
}

bool ContinueSequence(World& world, SimSession& session, SimSequence& sequence) {
  if (session.writes) HoldWritable(world, session, sequence);
  const Scope scope = PublishScope(sequence, Bit(RemovalReason::kReleased));
  const bool more = Continue(world, 1);
  world.Absorb(scope);
  world.prompts.Remember(sequence.content, world.random);
  // Its releases must not end before the deferred releases of blocks below.
  if (session.deferred_below) {
    world.batch_session = &session;
    world.batch_defers = true;
  }
  FollowEnd(world, session, sequence,
            session.drops_tails ? ComputedTail::kDropped : ComputedTail::kPublished);
  world.batch_session = nullptr;
  return more;
}

bool ContinueRaw(World& world, SimSession& session) {
  const auto raw = std::min_element(
      session.raw.begin(), session.raw.end(), [](const SimRaw& a, const SimRaw& b) {
        return std::pair(a.window, a.handle.id) < std::pair(b.window, b.handle.id);
      });
  if (session.writes) {
    SimDeferredRelease& release = world.deferred.emplace_back();
    release = {.session = session.ref.id,
               .tenant = session.tenant,
               .step = kNever,
               .block = {raw->window, raw->handle.id}};
    release.slot = {kPrimaryTier, raw->handle.slot};
    release.writable_end = world.Ready(raw->ready) ? world.tokens_per_block() : 0;
  }
  session.raw.erase(raw);
  const bool more = Continue(world, 1);
  world.Absorb({.reasons = Bit(RemovalReason::kReleased)});
  return more;
}

// Only the blocks that the session can still write are left.
void CloseEnded(World& world, SimSession& session) {
  std::set<std::pair<uint32_t, uint32_t>> blocks;
  for (const SimDeferredRelease& release : world.deferred) {
    if (release.session == session.ref.id)
      blocks.emplace(release.block.window, release.block.id.value());
  }
  if (!blocks.empty()) {
    world.coverage.Add(Met::kQuarantined);
    world.quarantines.push_back(
        {.ref = session.ref, .blocks = static_cast<uint32_t>(blocks.size())});
  }
  session.ending = false;
  session.steps = {};
}

}  // namespace

void ContinueEnding(World& world) {
  if (world.endings.empty()) {
    SIM_CHECK(!world.core->endings().ContinueEndings(world.now, 1),
              "something ends where nothing does");
    world.Absorb({});
    return world.Check();
  }
  const World::Ending ending = world.endings.front();
  SimSession* const session = ending.session;
  const bool deferred_end = session == nullptr || !session->writes;
  // If nothing is to be quarantined, no release has to be deferred any more.
  if (session != nullptr && deferred_end) session->deferred_below = false;
  SimSequence* const sequence = session == nullptr ? nullptr : FirstSequence(*session);
  bool more = false;
  bool counted = false;
  if (deferred_end && HasDeferred(world, ending.id)) {
    more = ContinueDeferred(world, ending);
  } else if (sequence != nullptr) {
    more = ContinueSequence(world, *session, *sequence);
  } else if (session != nullptr && !session->raw.empty()) {
    more = ContinueRaw(world, *session);
  } else {
    more = Continue(world, kEverything);  // Counts the blocks to be quarantined.
    world.Absorb({});
    counted = true;
  }
  const bool is_over = session == nullptr
                           ? !HasDeferred(world, ending.id)
                           : FirstSequence(*session) == nullptr && session->raw.empty() &&
                                 (counted || !HasDeferred(world, ending.id));
  if (is_over) {
    if (session != nullptr) CloseEnded(world, *session);
    world.endings.pop_front();
  }
  world.coverage.Add(Met::kEndingContinued);
  SIM_CHECK(more == !world.endings.empty(), "ContinueEndings is ", more ? "not " : "",
            "done, where ", world.endings.size(), " endings are left");
  world.Check();
}

void EndSession(World& world, SimSession& session) {
  if (world.Note()) world.Note(Text("  CloseSession(", session.ref.id.value(), ")"));
  BeginEnding(world, session, How::kByClient);
  const absl::Status status =
      world.core->endings().CloseSession(session.ref, world.now, EndIn::kChunks);
  SIM_CHECK(status.ok(), status.ToString());
  world.Absorb({});
  world.Check();
}

void EndQuarantine(World& world, size_t index) {
  const SimQuarantine quarantine = world.quarantines[index];
  world.quarantines.erase(world.quarantines.begin() + static_cast<ptrdiff_t>(index));
  world.endings.push_back({.id = quarantine.ref.id});
  if (quarantine.ref.id != SessionId{} && world.random.OneIn(2)) {
    const absl::Status status =
        world.core->endings().CloseSession(quarantine.ref, world.now, EndIn::kChunks);
    SIM_CHECK(status.ok(), "an acknowledgement is refused: ", status.ToString());
  } else {
    const absl::StatusOr<uint32_t> released =
        world.core->endings().ReleaseQuarantine(quarantine.ref.id, world.now, EndIn::kChunks);
    SIM_CHECK(released.ok() && *released == quarantine.blocks, "a quarantine of ",
              quarantine.blocks, " blocks ends otherwise");
  }
  world.Absorb({});
  world.Check();
}

namespace {

// Tries to acknowledge a quarantine of another session: with the token of an open session, with a
// token seen earlier, or without a token.
void CloseForeign(World& world, const SimQuarantine& quarantine) {
  SessionRef guess = quarantine.ref;
  const SimSession& other = world.sessions[world.random.Below(kMaxSessions)];
  guess.token = world.random.OneIn(2) ? other.ref.token : SessionToken{};
  if (guess.id != SessionId{} && guess.token == quarantine.ref.token) return;
  const absl::Status status = world.core->endings().CloseSession(guess, world.now, EndIn::kChunks);
  world.Absorb({});
  world.Refused(status,
                {guess.id == SessionId{} ? Reason::kUnknownSession : Reason::kStaleSession});
  world.coverage.Add(Met::kForeignCloseRefused);
  world.Check();
}

// The client of a session whose lease has run out reports that it writes no more, while the
// session's blocks are being freed.
void AcknowledgeEnding(World& world, SimSession& session) {
  const absl::Status status =
      world.core->endings().CloseSession(session.ref, world.now, EndIn::kChunks);
  SIM_CHECK(status.ok(), "an acknowledgement is refused: ", status.ToString());
  session.writes = false;
  world.coverage.Add(Met::kEndingAcknowledged);
  world.Absorb({});
  world.Check();
}

}  // namespace

void QuarantineOp(World& world) {
  if (world.quarantines.empty()) {
    const absl::StatusOr<uint32_t> released =
        world.core->endings().ReleaseQuarantine(SessionId{1'000'000}, world.now, EndIn::kChunks);
    world.Absorb({});
    world.Refused(released.status(), {Reason::kUnknownQuarantine});
    return world.Check();
  }
  const uint32_t index = world.random.Below(static_cast<uint32_t>(world.quarantines.size()));
  CloseForeign(world, world.quarantines[index]);
  EndQuarantine(world, index);
}

void CloseSessionOp(World& world) {
  SimSession& session = world.sessions[world.random.Below(kMaxSessions)];
  if (session.open && !Wrong(world)) return EndSession(world, session);
  if (session.ending && session.writes) return AcknowledgeEnding(world, session);
  const bool quarantined = std::any_of(
      world.quarantines.begin(), world.quarantines.end(),
      [&](const SimQuarantine& quarantine) { return quarantine.ref.id == session.ref.id; });
  if (quarantined) return QuarantineOp(world);
  // Sessions that do not exist, or belong to another client.
  SessionRef wrong = session.ref;
  if (session.open) wrong.token = SessionToken{wrong.token.low() + 1, wrong.token.high()};
  const Reason reason =
      session.ref.id == SessionId{} ? Reason::kUnknownSession : Reason::kStaleSession;
  const absl::Status status =
      world.random.OneIn(2) ? world.core->endings().CloseSession(wrong, world.now, EndIn::kChunks)
                            : world.core->KeepAlive(wrong, world.now).status();
  world.Absorb({});
  world.Refused(status, {reason});
  SIM_CHECK(ReasonOf(world.core->CheckSession(wrong)) == reason, "a session that is not there");
  world.Check();
}

void ExpireSessionsOp(World& world) {
  absl::InlinedVector<SimSession*, kMaxSessions> expired;
  for (SimSession& session : world.sessions) {
    if (session.open && session.streams == 0 && session.deadline <= world.now) {
      expired.push_back(&session);
    }
  }
  // The oldest session ends first.
  std::sort(expired.begin(), expired.end(),
            [](const SimSession* a, const SimSession* b) { return a->ref.id < b->ref.id; });
  for (SimSession* session : expired) BeginEnding(world, *session, How::kByLease);
  const size_t count = world.core->endings().ExpireSessions(world.now, EndIn::kChunks);
  SIM_CHECK(count == expired.size(), count, " sessions expire instead of ", expired.size());
  world.coverage.Add(Met::kSessionExpired, count);
  world.Absorb({});
  world.Check();
}

}  // namespace pagoda::sim
