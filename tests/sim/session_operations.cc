// Sessions open and close, copies end, time passes, operators act.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "manager/accounts/session_table.h"
#include "tests/sim/operations.h"

namespace pagoda::sim {
namespace {

absl::Duration DrawLease(Random& random) {
  return random.OneIn(3) ? absl::InfiniteDuration()
                         : absl::Milliseconds(1 << random.Between(3, 14));
}

// Half of the sessions are reserved for the tenants in equal parts of at least one. Any tenant can
// have the rest. If the parts are more than the half, it goes to the first tenants that come.
bool MayOpen(const World& world, TenantId tenant) {
  const uint32_t parties = world.config.num_tenants();
  const uint32_t part = std::max(1u, kMaxSessions / 2 / parties);
  const uint32_t reserved = std::min(kMaxSessions / 2, part * parties);
  std::array<uint32_t, kMaxTenantsInSim> counts = {};
  for (const SimSession& session : world.sessions) {
    if (session.in_table()) ++counts[session.tenant.value()];
  }
  uint32_t total = 0;
  uint32_t in_parts = 0;
  for (const uint32_t count : counts) {
    total += count;
    in_parts += std::min(count, part);
  }
  const uint32_t taken = std::min(in_parts, reserved);
  const bool has_reserved = counts[tenant.value()] < part && taken < reserved;
  return has_reserved || total - taken < kMaxSessions - reserved;
}

}  // namespace

void OpenSessionOp(World& world) {
  Random& random = world.random;
  const absl::Duration lease = DrawLease(random);
  const bool wrong = Wrong(world);
  const TenantId tenant{static_cast<uint16_t>(random.Below(world.config.num_tenants()))};
  SimSession* closed = nullptr;
  for (SimSession& session : world.sessions) {
    if (!session.in_table()) closed = &session;
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
  closed->writes = random.OneIn(2);
  if (closed->writes) {
    const absl::Status status = world.core->NoteWriter(closed->ref);
    SIM_CHECK(status.ok(), status.ToString());
  }
  world.digest.Add(opened->ref.token.low());
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

void CopiesOp(World& world) {
  const uint32_t count = 1 + world.random.Below(4);
  Ticket ticket;
  for (uint32_t i = 0; i < count && world.memory.PickStarted(world.random, &ticket); ++i) {
    world.EndOneCopy(ticket);
  }
  if (!world.random.OneIn(8)) return;
  // A copy that was never ordered, or has ended already.
  const Ticket unknown =
      world.random.OneIn(2) ? Ticket{world.memory.last().value() + 1} : world.memory.completed();
  world.core->Complete(Lane::kMemory, unknown, absl::DataLossError("sim"), world.now);
  world.Absorb({});
  world.Check();
}

namespace {

void WaitForFiles(World& world, SimSession& session) {
  const Lane lane = world.random.OneIn(2) ? Lane::kFetch : Lane::kBackup;
  const auto last = static_cast<uint32_t>(world.on_order.last(lane).value());
  const Ticket ticket{last - std::min(last, world.random.Below(6)) +
                      (world.random.OneIn(8) ? 7 : 0)};
  const absl::StatusOr<OperationResult> waited =
      world.core->Execute(session.ref.id, WaitForTicket{.ticket = ticket, .lane = lane}, world.now);
  world.Absorb({});
  const Ticket completed = world.on_order.completed(lane);
  if (waited.ok()) {
    SIM_CHECK(ticket <= completed && std::get<WaitedForTicket>(*waited).completed == completed,
              "WaitForTicket does not wait for file order ", ticket.value());
  } else {
    SIM_CHECK(ticket > completed, "WaitForTicket waits for file order ", ticket.value());
    world.Refused(waited.status(),
                  {ticket.value() > last ? Reason::kUnknownTicket : Reason::kWaitTimeout});
  }
  world.Check();
}

}  // namespace

void WaitOp(World& world) {
  SimSession* session = EnterSession(world);
  if (session == nullptr) return;
  const auto last = static_cast<uint32_t>(world.memory.last().value());
  const Ticket ticket{last - std::min(last, world.random.Below(8)) +
                      (world.random.OneIn(8) ? 2 : 0)};
  if (world.config.has_disk && world.random.OneIn(2)) return WaitForFiles(world, *session);
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
  // Not every call applies the expiries; Maintain does.
  if (world.random.OneIn(2)) return MaintainOp(world);
  world.Absorb({});
  world.Check();
}

void MaintainOp(World& world) {
  const uint32_t most = world.random.OneIn(4) ? 0 : world.random.Below(6);
  if (world.Note()) world.Note(Text("  Maintain(", most, ")"));
  world.ApplyTime();
  const uint64_t falls_before = world.coverage.count(Met::kOffloaded);
  const uint64_t first_before = CountFirstFalls(world);
  const uint32_t moved = world.core->Maintain(world.now, most);
  // A block can leave only to free a slot in a lower tier or on disk: none is dropped ahead of
  // need.
  const bool may_displace = most != 0 || world.config.has_disk;
  const size_t backups = world.on_order.backups().size();
  world.Absorb({.reasons = may_displace ? Bit(RemovalReason::kDisplaced) : 0,
                .orders_backups = world.config.has_disk});
  if (world.config.write_bytes_per_second != 0 && world.on_order.backups().size() == backups) {
    const ManagerStats stats = world.core->Stats();
    for (uint32_t w = 0; w < world.num_windows(); ++w) {
      const bool waits = stats.windows[w].disk.waiting_backups > 0 &&
                         world.on_order.HasFreeStaging(w) && world.on_order.MayOrderBackups(w);
      if (waits) world.coverage.Add(Met::kBudgetShort);
    }
  }
  const uint64_t falls = world.coverage.count(Met::kOffloaded) - falls_before;
  const uint64_t first_falls = CountFirstFalls(world) - first_before;
  // A block that leaves a middle tier to free a slot falls too, and is not counted.
  const auto& watermarks = world.config.watermark_permille;
  const bool first_alone = std::all_of(watermarks.begin() + 1, watermarks.end(),
                                       [](uint32_t permille) { return permille == 0; });
  SIM_CHECK(moved <= most && first_falls <= moved && moved <= (first_alone ? first_falls : falls),
            "Maintain says that it moves ", moved, " blocks of at most ", most, "; ", first_falls,
            " fall from the first tier, ", falls, " from all");
  SIM_CHECK(watermarks[0] != 0 || first_falls == 0, "Maintain moves ", first_falls,
            " blocks of a tier that keeps none free");
  world.Check();
}

void RestartOp(World& world) { world.Restart(); }

// One step of a reset. Other operations run before the next step.
void ResetOp(World& world) {
  const uint32_t most = world.random.OneIn(8) ? kMostIds : 1 + world.random.Below(6);
  if (world.Note()) world.Note(Text("  StepReset(", most, ")"));
  world.ApplyTime();
  uint64_t cached = 0, left = 0;
  for (const Shadow& shadow : world.shadows) cached += shadow.cached_count();
  const BlockManager::ResetStep step = world.core->StepReset(most, world.now);
  world.Absorb({.reasons = Bit(RemovalReason::kCleared)});
  for (const Shadow& shadow : world.shadows) left += shadow.cached_count();
  SIM_CHECK(left == 0 || left == cached, "a reset takes ", cached - left, " blocks of ", cached);
  SIM_CHECK(step.removed_blocks == cached - left, "a reset removes ", step.removed_blocks,
            " blocks instead of ", cached - left);
  SIM_CHECK(step.done != world.core->resetting(), "a reset that is done goes on");
  world.Check();
}

}  // namespace pagoda::sim
