// Sessions come and go, copies end, time passes, operators act.
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "pools/error.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

absl::Duration DrawLease(Random& random) {
  return random.OneIn(3) ? absl::InfiniteDuration()
                         : absl::Milliseconds(1 << random.Between(3, 14));
}

// Until its quarantine ends the session may write its raw blocks, and what its sequences have not
// published.
void HoldWritable(World& world, SimSession& session) {
  constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  const uint32_t size = world.tokens_per_block();
  for (const SimSequence& sequence : session.sequences) {
    if (!sequence.running) continue;
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      const SimTable& table = sequence.tables[w];
      Ledger& ledger = world.ledgers[w];
      const auto is_private = [&](const BlockHandle& handle) {
        return !world.shadows[w].node(handle.id.value()).cached() &&
               ledger.owner({Tier::kPrimary, handle.slot}) == handle.id.value();
      };
      auto end = static_cast<uint32_t>(table.blocks.size());
      if (table.borrowed_tail &&
          !(is_private(table.blocks.back()) && ledger[table.blocks.back().id].refs == 1)) {
        --end;
      }
      for (uint32_t i = std::min(table.published, sequence.computed / size); i < end; ++i) {
        const BlockHandle& own = table.blocks[i];
        if (own.id == kNoBlock || !is_private(own)) continue;
        SimDrain& drain = world.drains.emplace_back();
        drain = {.session = session.ref.id,
                 .tenant = sequence.tenant,
                 .step = kNever,
                 .block = {w, own.id}};
        drain.slot = {Tier::kPrimary, own.slot};
        ledger.Hold(own.id, Ledger::Holder::kDrain);
        const uint32_t begin = i * size;
        const uint32_t kept = std::max(sequence.computed, sequence.forked);
        drain.writable_begin = std::min(kept - std::min(kept, begin), size);
        drain.writable_end = world.Ready(sequence.ready) && !table.borrowed_tail ? size : 0;
      }
    }
  }
  for (const SimRaw& raw : session.raw) {
    SimDrain& drain = world.drains.emplace_back();
    drain = {.session = session.ref.id,
             .tenant = session.tenant,
             .step = kNever,
             .block = {raw.window, raw.handle.id}};
    drain.slot = {Tier::kPrimary, raw.handle.slot};
    drain.writable_end = world.Ready(raw.ready) ? size : 0;
  }
}

// What the lease's end leaves to be written by who is not there any more.
void Quarantine(World& world, SimSession& session) {
  HoldWritable(world, session);
  std::set<std::pair<uint32_t, uint32_t>> blocks;
  for (const SimDrain& drain : world.drains) {
    if (drain.session == session.ref.id) blocks.emplace(drain.block.window, drain.block.id.value());
  }
  if (blocks.empty()) return;
  world.coverage.Add(Met::kQuarantined);
  world.quarantines.push_back({.ref = session.ref, .blocks = static_cast<uint32_t>(blocks.size())});
}

enum class Ending { kByClient, kByLease };

// The call ended these sessions: what they had is free, or cached.
void FollowEndOfSessions(World& world, absl::Span<SimSession* const> ended, Ending ending) {
  for (SimSession* session : ended) {
    for (SimSequence& sequence : session->sequences) {
      if (!sequence.running) continue;
      world.prompts.Remember(sequence.content, world.random);
      FollowEnd(world, *session, sequence,
                ending == Ending::kByLease && session->writes ? ComputedTail::kDropped
                                                              : ComputedTail::kPublished);
    }
    session->raw.clear();
    session->open = false;
    session->steps = {};
    session->batch_steps.reset();
  }
}

Scope EndScope(World& world, absl::Span<SimSession* const> ended, Ending ending) {
  Scope scope{.reasons = Bit(RemovalReason::kReleased) | Bit(RemovalReason::kTakenOver)};
  for (SimSession* session : ended) {
    if (world.batch_session == session) world.batch_session = nullptr;
    if (ending == Ending::kByLease && session->writes) {
      Quarantine(world, *session);
    } else {
      world.EndDrains(session->ref.id, std::numeric_limits<uint64_t>::max());
    }
    for (SimSequence& sequence : session->sequences) {
      if (!sequence.running) continue;
      scope.publishers.push_back(&sequence);
      scope.sets_priorities = scope.sets_priorities || SetsPriorities(sequence);
    }
  }
  return scope;
}

}  // namespace

namespace {

// Half of the sessions are set aside for the tenants in equal parts; anybody may have the rest.
bool MayOpen(const World& world, TenantId tenant) {
  const uint32_t parties = world.config.num_tenants();
  const uint32_t part = kMaxSessions / 2 / parties;
  std::array<uint32_t, kMaxTenantsInSim> counts = {};
  for (const SimSession& session : world.sessions) {
    if (session.open) ++counts[session.tenant.value()];
  }
  uint32_t beyond = 0;
  for (const uint32_t count : counts) beyond += count - std::min(count, part);
  return counts[tenant.value()] < part || beyond < kMaxSessions - part * parties;
}

}  // namespace

void OpenSessionOp(World& world) {
  Random& random = world.random;
  const absl::Duration lease = DrawLease(random);
  const bool wrong = Wrong(world);
  const TenantId tenant{static_cast<uint16_t>(random.Below(world.config.num_tenants()))};
  SimSession* closed = nullptr;
  for (SimSession& session : world.sessions) {
    if (!session.open) closed = &session;
  }
  world.ApplyTime();
  const absl::StatusOr<BlockManager::OpenedSession> opened = world.core->OpenSession(
      wrong ? std::string(kMaxClientNameBytes + 1, 'x') : "sim", lease, world.now, tenant,
      SessionToken{++world.drawn_tokens, world.config.seed});
  world.Absorb({});
  const bool full = !MayOpen(world, tenant);
  if (full || wrong) {
    world.Refused(opened.status(), {wrong ? Reason::kInvalidArgument : Reason::kTooManySessions,
                                    full ? Reason::kTooManySessions : Reason::kInvalidArgument});
    return world.Check();
  }
  SIM_CHECK(opened.ok() && opened->lease == lease, opened.status().ToString());
  closed->open = true;
  closed->ref = opened->ref;
  closed->tenant = tenant;
  closed->lease = lease;
  closed->deadline = world.now + lease;
  closed->streams = 0;
  closed->counts_steps = world.config.steps && random.OneIn(2);
  closed->writes = !closed->counts_steps && random.OneIn(2);
  if (closed->writes) {
    const absl::Status status = world.core->NoteWriter(closed->ref);
    SIM_CHECK(status.ok(), status.ToString());
  }
  world.digest.Add(opened->ref.token.low());
  world.Check();
}

void EndSession(World& world, SimSession& session) {
  SimSession* const ended[] = {&session};
  if (world.Note()) world.Note(Text("  CloseSession(", session.ref.id.value(), ")"));
  world.ApplyTime();
  const Scope scope = EndScope(world, ended, Ending::kByClient);
  const absl::Status status = world.core->CloseSession(session.ref, world.now);
  SIM_CHECK(status.ok(), status.ToString());
  world.Absorb(scope);
  FollowEndOfSessions(world, ended, Ending::kByClient);
  world.Check();
}

void EndQuarantine(World& world, size_t index) {
  const SimQuarantine quarantine = world.quarantines[index];
  world.quarantines.erase(world.quarantines.begin() + static_cast<ptrdiff_t>(index));
  world.ApplyTime();
  if (quarantine.ref.id != SessionId{} && world.random.OneIn(2)) {
    const absl::Status status = world.core->CloseSession(quarantine.ref, world.now);
    SIM_CHECK(status.ok(), "an acknowledgement is refused: ", status.ToString());
  } else {
    const absl::StatusOr<uint32_t> released =
        world.core->ReleaseQuarantine(quarantine.ref.id, world.now);
    SIM_CHECK(released.ok() && *released == quarantine.blocks, "a quarantine of ",
              quarantine.blocks, " blocks ends otherwise");
  }
  world.EndDrains(quarantine.ref.id, std::numeric_limits<uint64_t>::max());
  world.Absorb({});
  world.Check();
}

// Whoever tries to acknowledge a quarantine that is not its own: with the token of a session that
// it has, with one that it has seen, with none.
void CloseForeign(World& world, const SimQuarantine& quarantine) {
  SessionRef guess = quarantine.ref;
  const SimSession& other = world.sessions[world.random.Below(kMaxSessions)];
  guess.token = world.random.OneIn(2) ? other.ref.token : SessionToken{};
  if (guess.id != SessionId{} && guess.token == quarantine.ref.token) return;
  const absl::Status status = world.core->CloseSession(guess, world.now);
  world.Absorb({});
  world.Refused(status,
                {guess.id == SessionId{} ? Reason::kUnknownSession : Reason::kStaleSession});
  world.coverage.Add(Met::kForeignCloseRefused);
  world.Check();
}

void QuarantineOp(World& world) {
  if (world.quarantines.empty()) {
    world.ApplyTime();
    const absl::StatusOr<uint32_t> released =
        world.core->ReleaseQuarantine(SessionId{1'000'000}, world.now);
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
  const bool quarantined = std::any_of(
      world.quarantines.begin(), world.quarantines.end(),
      [&](const SimQuarantine& quarantine) { return quarantine.ref.id == session.ref.id; });
  if (quarantined) return QuarantineOp(world);
  // Sessions that are not there, or are another's.
  SessionRef wrong = session.ref;
  if (session.open) wrong.token = SessionToken{wrong.token.low() + 1, wrong.token.high()};
  const Reason reason =
      session.ref.id == SessionId{} ? Reason::kUnknownSession : Reason::kStaleSession;
  const absl::Status status = world.random.OneIn(2)
                                  ? world.core->CloseSession(wrong, world.now)
                                  : world.core->KeepAlive(wrong, world.now).status();
  world.Absorb({});
  world.Refused(status, {reason});
  SIM_CHECK(ReasonOf(world.core->CheckSession(wrong)) == reason, "a session that is not there");
  world.Check();
}

void LeaseOp(World& world) {
  SimSession& session = world.sessions[world.random.Below(kMaxSessions)];
  if (!session.open) return OpenSessionOp(world);
  if (session.streams > 0 && world.random.OneIn(2)) {
    world.core->DetachStream(session.ref.id, world.now);
    --session.streams;
    session.deadline = world.now + session.lease;
  } else if (world.random.OneIn(3)) {
    const absl::Status status = world.core->AttachStream(session.ref);
    SIM_CHECK(status.ok(), status.ToString());
    ++session.streams;
  } else {
    const absl::StatusOr<absl::Duration> lease = world.core->KeepAlive(session.ref, world.now);
    SIM_CHECK(lease.ok() && *lease == session.lease, lease.status().ToString());
    session.deadline = world.now + session.lease;
  }
  world.Absorb({});
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
  Scope scope;
  if (!expired.empty()) {
    world.ApplyTime();
    scope = EndScope(world, expired, Ending::kByLease);
  }
  const size_t count = world.core->ExpireSessions(world.now);
  SIM_CHECK(count == expired.size(), count, " sessions expire instead of ", expired.size());
  world.coverage.Add(Met::kSessionExpired, count);
  world.Absorb(scope);
  FollowEndOfSessions(world, expired, Ending::kByLease);
  world.Check();
}

void CopiesOp(World& world) {
  const uint32_t count = 1 + world.random.Below(4);
  Ticket ticket;
  for (uint32_t i = 0; i < count && world.memory.PickStarted(world.random, &ticket); ++i) {
    world.EndOneCopy(ticket);
  }
  if (!world.random.OneIn(8)) return;
  // A copy that was never ordered, or has ended before.
  const Ticket unknown =
      world.random.OneIn(2) ? Ticket{world.memory.last().value() + 1} : world.memory.completed();
  world.ApplyTime();
  world.core->CompleteCopy(unknown, absl::DataLossError("sim"), world.now);
  world.Absorb({});
  world.Check();
}

void WaitOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const auto last = static_cast<uint32_t>(world.memory.last().value());
  const Ticket ticket{last - std::min(last, world.random.Below(8)) +
                      (world.random.OneIn(8) ? 2 : 0)};
  const absl::StatusOr<OperationResult> waited =
      world.core->Execute(session->ref.id, WaitForTicket{.ticket = ticket}, world.now);
  world.Absorb({});
  if (waited.ok()) {
    SIM_CHECK(world.Ready(ticket) &&
                  std::get<WaitedForTicket>(*waited).completed == world.memory.completed(),
              "WaitForTicket does not wait for copy ", ticket.value());
  } else {
    SIM_CHECK(!world.Ready(ticket) || ticket > world.memory.last(), "WaitForTicket waits for copy ",
              ticket.value());
    world.Refused(waited.status(),
                  {ticket > world.memory.last() ? Reason::kUnknownTicket : Reason::kWaitTimeout});
  }
  world.Check();
}

void ClockJumpOp(World& world) {
  world.now += absl::Microseconds(1 << world.random.Between(8, 24));
  // Not every call sees to the time; Maintain does.
  if (world.random.OneIn(2)) return MaintainOp(world);
  world.Absorb({});
  world.Check();
}

void MaintainOp(World& world) {
  const uint32_t most = world.random.OneIn(4) ? 0 : world.random.Below(6);
  if (world.Note()) world.Note(Text("  Maintain(", most, ")"));
  world.ApplyTime();
  const uint64_t before = world.coverage.counts[static_cast<size_t>(Met::kOffloaded)];
  const uint32_t moved = world.core->Maintain(world.now, most);
  // What makes room below is all that may leave: nothing is dropped ahead of need.
  world.Absorb({.reasons = most == 0 ? 0 : Bit(RemovalReason::kDisplaced)});
  const uint64_t offloaded = world.coverage.counts[static_cast<size_t>(Met::kOffloaded)] - before;
  SIM_CHECK(moved <= most && offloaded == moved, "Maintain moves ", offloaded, " blocks, says ",
            moved, " of at most ", most);
  world.Check();
}

void RestartOp(World& world) { world.Restart(); }

void ResetOp(World& world) {
  world.ApplyTime();
  uint64_t cached = 0;
  for (const Shadow& shadow : world.shadows) cached += shadow.cached_count();
  const uint64_t removed = world.core->ResetPrefixCache(world.now);
  SIM_CHECK(removed == cached, "a reset removes ", removed, " blocks of ", cached);
  world.Absorb({.reasons = Bit(RemovalReason::kCleared)});
  for (Shadow& shadow : world.shadows) {
    SIM_CHECK(shadow.cached_count() == 0, "a reset leaves blocks");
  }
  for (SimSession& session : world.sessions) {
    for (SimSequence& sequence : session.sequences) {
      for (SimTable& table : sequence.tables) table.detached = sequence.running;
    }
  }
  world.Check();
}

}  // namespace pagoda::sim
