#include "manager/shared_manager.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/processor_turn.h"
#include "manager/cache_lists.h"
#include "manager/sequences/operation_checks.h"
#include "manager/sequences/running_sequences.h"
#include "manager/sequences/session_endings.h"

namespace pagoda {

absl::Time SharedManager::Now() {
  using Steady = std::chrono::steady_clock;
  struct Anchor {
    absl::Time wall = absl::Now();
    Steady::time_point steady = Steady::now();
  };
  static const Anchor anchor;
  return anchor.wall + absl::FromChrono(Steady::now() - anchor.steady);
}

SessionToken SharedManager::DrawToken() {
  std::array<uint64_t, 2> bits;
  ssize_t drawn = 0;
  // getrandom returns so few bytes at once. Only a signal shortly after the machine's start
  // interrupts it.
  do {
    drawn = getrandom(bits.data(), sizeof(bits), 0);
  } while (drawn < 0 && errno == EINTR);
  PAGODA_CHECK(drawn == ssize_t{sizeof(bits)}, "the system has random numbers");
  return SessionToken(bits[0], bits[1]);
}

SharedManager::SharedManager(std::unique_ptr<BlockManager> core, EventLog* log, Clock clock,
                             TokenSource tokens)
    : clock_(std::move(clock)),
      tokens_(std::move(tokens)),
      log_(log),
      core_(std::move(core)),
      info_(core_->info()),
      tenants_(core_->tenants()),
      num_prefix_nodes_(core_->lists().num_prefix_nodes()),
      epoch_(core_->epoch()) {
  FairMutexLock lock(&mutex_);
  leases_ran_to_ = clock_();
  Publish();
}

void SharedManager::Publish() {
  while (true) {
    if (slot_sink_ != nullptr) {
      std::vector<SlotChange> changes = core_->TakeSlotChanges();
      if (!changes.empty()) slot_sink_->Apply(std::move(changes));
    }
    const std::vector<Order> orders = core_->TakeOrders();
    if (orders.empty()) break;
    HandOver(orders);
  }
  log_->Append(core_->TakeEvents());
}

void SharedManager::HandOver(absl::Span<const Order> orders) {
  while (!orders.empty()) {
    Carrier* const carrier = CarrierOf(orders.front().lane);
    size_t count = 1;
    while (count < orders.size() && CarrierOf(orders[count].lane) == carrier) ++count;
    if (carrier != nullptr) {
      carrier->Submit(orders.first(count));
    } else {
      for (const Order& order : orders.first(count)) {
        if (order.ticket == Ticket{}) continue;  // Nobody waits for it.
        const absl::Status status = order.lane == Lane::kMemory
                                        ? absl::OkStatus()
                                        : absl::CancelledError("the cache has no disk");
        core_->Complete(order.lane, order.ticket, status, clock_());
      }
      TellCopiesDone();
    }
    orders.remove_prefix(count);
  }
}

void SharedManager::TellCopiesDone() {
  if (slot_sink_ != nullptr) slot_sink_->CopiesDone(core_->completed_ticket());
  const Carrier* told = nullptr;
  for (Carrier* const carrier : carriers_) {
    if (carrier == nullptr || carrier == told) continue;
    carrier->MemoryCopiesDone(core_->completed_ticket());
    told = carrier;
  }
}

std::vector<std::function<void()>> SharedManager::TakeDone() {
  std::vector<std::function<void()>> done;
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    auto& waiters = waiters_[lane];
    if (waiters.empty()) continue;
    const auto end = waiters.upper_bound(core_->completed_ticket(static_cast<Lane>(lane)));
    for (auto it = waiters.begin(); it != end; ++it) done.push_back(std::move(it->second));
    waiters.erase(waiters.begin(), end);
  }
  return done;
}

void SharedManager::SetCarrier(std::initializer_list<Lane> lanes, Carrier* carrier) {
  FairMutexLock lock(&mutex_);
  for (const Lane lane : lanes) carriers_[static_cast<size_t>(lane)] = carrier;
  if (carrier == nullptr) return;
  carrier->MemoryCopiesDone(core_->completed_ticket());
  Publish();
}

void SharedManager::SetSlotSink(SlotChangeSink* sink) {
  FairMutexLock lock(&mutex_);
  slot_sink_ = sink;
  if (slot_sink_ == nullptr) return;
  Publish();
  slot_sink_->CopiesDone(core_->completed_ticket());
}

void SharedManager::Complete(Lane lane, Ticket ticket, const absl::Status& status) {
  std::vector<std::function<void()>> done;
  {
    FairMutexLock lock(&mutex_);
    core_->Complete(lane, ticket, status, clock_());
    Publish();
    if (lane == Lane::kMemory) TellCopiesDone();
    done = TakeDone();
  }
  for (const std::function<void()>& waiter : done) waiter();
}

void SharedManager::RemovePools() {
  FairMutexLock lock(&mutex_);
  core_->RemovePools(clock_());
  Publish();
}

void SharedManager::NotifyWhenDone(Lane lane, Ticket ticket, std::function<void()> done) {
  {
    FairMutexLock lock(&mutex_);
    if (ticket > core_->completed_ticket(lane)) {
      waiters_[static_cast<size_t>(lane)].emplace(ticket, std::move(done));
      return;
    }
  }
  done();
}

uint32_t SharedManager::Maintain(uint32_t max_blocks) {
  std::vector<std::function<void()>> done;
  uint32_t moved = 0;
  {
    FairMutexLock lock(&mutex_);
    moved = core_->Maintain(clock_(), max_blocks);
    Publish();
    while (core_->HasExpired(clock_())) {
      if (mutex_.wanted()) mutex_.LetOthersIn();
      core_->Maintain(clock_(), 0);
      Publish();
    }
    done = TakeDone();
  }
  for (const std::function<void()>& waiter : done) waiter();
  return moved;
}

absl::StatusOr<BlockManager::OpenedSession> SharedManager::OpenSession(std::string client_name,
                                                                       absl::Duration lease,
                                                                       TenantId tenant) {
  const SessionToken token = tokens_();
  FairMutexLock lock(&mutex_);
  absl::StatusOr<BlockManager::OpenedSession> session =
      core_->OpenSession(std::move(client_name), lease, clock_(), tenant, token);
  Publish();
  return session;
}

absl::StatusOr<absl::Duration> SharedManager::KeepAlive(SessionRef session) {
  FairMutexLock lock(&mutex_);
  return core_->KeepAlive(session, clock_());
}

absl::Status SharedManager::AttachStream(SessionRef session) {
  FairMutexLock lock(&mutex_);
  return core_->AttachStream(session);
}

void SharedManager::DetachStream(SessionId session) {
  FairMutexLock lock(&mutex_);
  core_->DetachStream(session, clock_());
}

absl::Status SharedManager::CloseSession(SessionRef session) {
  FairMutexLock lock(&mutex_);
  absl::Status status = core_->endings().CloseSession(session, clock_(), EndIn::kChunks);
  FinishEndings();
  return status;
}

absl::StatusOr<TenantId> SharedManager::TenantOf(SessionRef session) const {
  FairMutexLock lock(&mutex_);
  if (absl::Status status = core_->CheckSession(session); !status.ok()) return status;
  return core_->TenantOf(session.id);
}

absl::Status SharedManager::NoteWriter(SessionRef session) {
  FairMutexLock lock(&mutex_);
  return core_->NoteWriter(session);
}

void SharedManager::NoteWriterGone(SessionId session) {
  FairMutexLock lock(&mutex_);
  core_->NoteWriterGone(session);
}

absl::Status SharedManager::EndSession(SessionId session) {
  FairMutexLock lock(&mutex_);
  absl::Status status = core_->endings().EndSession(session, clock_(), EndIn::kChunks);
  FinishEndings();
  return status;
}

std::vector<bool> SharedManager::Remembers(absl::Span<const SessionRef> sessions) const {
  std::vector<bool> remembered;
  remembered.reserve(sessions.size());
  FairMutexLock lock(&mutex_);
  for (const SessionRef session : sessions) {
    remembered.push_back(core_->CheckSession(session).ok() ||
                         core_->endings().IsEnding(session.id) ||
                         core_->endings().IsQuarantined(session.id));
  }
  return remembered;
}

std::vector<SessionId> SharedManager::QuarantinedSessions() const {
  std::vector<SessionId> sessions;
  SessionId from;
  while (true) {
    FairMutexLock lock(&mutex_);
    const std::vector<SessionId> piece =
        core_->endings().QuarantinedSessions(from, kQuarantinePiece);
    sessions.insert(sessions.end(), piece.begin(), piece.end());
    if (piece.size() < kQuarantinePiece) return sessions;
    from = SessionId{piece.back().value() + 1};
  }
}

absl::StatusOr<uint32_t> SharedManager::ReleaseQuarantine(SessionId session) {
  FairMutexLock lock(&mutex_);
  absl::StatusOr<uint32_t> released =
      core_->endings().ReleaseQuarantine(session, clock_(), EndIn::kChunks);
  FinishEndings();
  return released;
}

size_t SharedManager::ExpireSessions(absl::Duration most) {
  FairMutexLock lock(&mutex_);
  // One reading, of the clock that all leases run by. Whatever follows it, a wait for the lock or a
  // standstill, is part of the next call's time.
  const absl::Time now = clock_();
  const absl::Duration pause = now - leases_ran_to_ - most;
  leases_ran_to_ = now;
  const size_t expired =
      core_->endings().ExpireSessions(now, EndIn::kChunks, std::max(pause, absl::ZeroDuration()));
  FinishEndings();
  return expired;
}

void SharedManager::FinishEndings() {
  // Endings that begin meanwhile belong to the calls that begin them.
  const uint64_t last = core_->endings().begun();
  while (core_->endings().ended() < last) {
    core_->endings().ContinueEndings(clock_(), kEndPiece);
    Publish();
    if (mutex_.wanted()) mutex_.LetOthersIn();
  }
  Publish();
}

uint64_t SharedManager::ResetPrefixCache() {
  absl::MutexLock one_at_a_time(&reset_mutex_);
  FairMutexLock lock(&mutex_);
  for (uint64_t removed = 0;;) {
    const BlockManager::ResetStep step = core_->StepReset(kResetPiece, clock_());
    Publish();
    removed += step.removed_blocks;
    if (step.done) return removed;
    if (mutex_.wanted()) mutex_.LetOthersIn();
  }
}

absl::StatusOr<BatchResult> SharedManager::ExecuteUntilWait(SessionRef session,
                                                            absl::Span<const Operation> operations,
                                                            StepRange steps,
                                                            size_t handles_before) {
  if (operations.size() > kMaxBatchOperations) {
    return MakeError(Reason::kBatchTooLarge,
                     absl::StrCat("a batch of ", operations.size(), " operations; at most ",
                                  kMaxBatchOperations));
  }
  BatchResult batch;
  batch.results.reserve(operations.size());
  // Checks that need no state and can take long run before the lock is taken.
  std::vector<std::pair<const Operation*, absl::Status>> checked;
  for (const Operation& operation : operations) {
    if (HasLongContent(operation)) checked.emplace_back(&operation, CheckContent(operation));
  }
  auto next_checked = checked.begin();
  FairMutexLock lock(&mutex_);
  RestartProcessorTurn();
  absl::Time now = clock_();
  if (absl::Status status = core_->KeepAlive(session, now).status(); !status.ok()) return status;
  if (absl::Status status = core_->BeginBatch(session.id, steps, now); !status.ok()) return status;
  size_t handles = handles_before;
  std::optional<absl::Time> turn_ends;  // Set while other threads wait.
  for (const Operation& operation : operations) {
    const bool gives_way = ProcessorTurnIsOver();
    if (gives_way || mutex_.wanted()) {
      const absl::Time at = absl::Now();
      if (!turn_ends.has_value()) turn_ends = at + kLockTurn;
      if (gives_way || at >= *turn_ends) {
        turn_ends.reset();
        if (absl::Status status = LetOthersIn(session, steps); !status.ok()) {
          // Operations that ran keep their results.
          batch.results.resize(operations.size(), std::move(status));
          batch.revision = core_->revision();
          NoteCompleted(batch);
          return batch;
        }
        now = clock_();
      }
    }
    const auto* wait = std::get_if<WaitForTicket>(&operation);
    if (wait != nullptr && wait->ticket <= core_->last_ticket(wait->lane) &&
        wait->ticket > core_->completed_ticket(wait->lane)) {
      break;
    }
    if (handles >= kMaxBatchHandles) {
      batch.results.push_back(MakeError(
          Reason::kBatchTooLarge, absl::StrCat("not run: the batch's answer holds ",
                                               Counted(handles, "block handle"), " already")));
      continue;
    }
    while (next_checked != checked.end() && next_checked->first < &operation) ++next_checked;
    const bool is_checked = next_checked != checked.end() && next_checked->first == &operation;
    batch.results.push_back(
        core_->Execute(session.id, operation, now, is_checked ? &next_checked->second : nullptr));
    if (batch.results.back().ok()) handles += CountHandles(*batch.results.back());
  }
  Publish();
  batch.revision = core_->revision();
  NoteCompleted(batch);
  batch.shortened = core_->sequences().Shortened(session.id);
  return batch;
}

void SharedManager::NoteCompleted(BatchResult& batch) const {
  batch.completed = core_->completed_ticket();
  batch.completed_fetch = core_->completed_ticket(Lane::kFetch);
  batch.completed_backup = core_->completed_ticket(Lane::kBackup);
}

absl::Status SharedManager::LetOthersIn(SessionRef session, StepRange steps) {
  Publish();
  mutex_.LetOthersIn();
  if (absl::Status status = core_->CheckSession(session); !status.ok()) return status;
  core_->ResumeBatch(session.id, steps);
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> SharedManager::Execute(SessionRef session,
                                                   absl::Span<const Operation> operations,
                                                   StepRange steps) {
  absl::StatusOr<BatchResult> whole = ExecuteUntilWait(session, operations, steps);
  absl::Time deadline = absl::InfiniteFuture();
  while (whole.ok() && whole->results.size() < operations.size()) {
    const size_t ran = whole->results.size();
    const auto& [ticket, lane] = std::get<WaitForTicket>(operations[ran]);
    // Copies take real time, whatever the core's clock says.
    deadline = std::min(deadline, absl::Now() + kMaxTicketWait);
    const auto done = std::make_shared<absl::Notification>();
    NotifyWhenDone(lane, ticket, [done] { done->Notify(); });
    // The session's lease does not run while its own batch waits.
    const bool attached = AttachStream(session).ok();
    const bool in_time = done->WaitForNotificationWithDeadline(deadline);
    if (attached) DetachStream(session.id);
    size_t skipped = 0;
    if (!in_time) {
      whole->results.push_back(
          MakeError(Reason::kWaitTimeout,
                    absl::StrCat("the copies up to ticket ", ticket.value(), " are not done")));
      skipped = 1;
    }
    size_t handles = 0;
    for (const auto& result : whole->results) {
      if (result.ok()) handles += CountHandles(*result);
    }
    absl::StatusOr<BatchResult> part =
        ExecuteUntilWait(session, operations.subspan(ran + skipped), steps, handles);
    if (!part.ok()) {
      // Operations that ran keep their results.
      whole->results.resize(operations.size(), part.status());
      break;
    }
    std::move(part->results.begin(), part->results.end(), std::back_inserter(whole->results));
    whole->shortened = std::move(part->shortened);
    whole->revision = part->revision;
    whole->completed = part->completed;
    whole->completed_fetch = part->completed_fetch;
    whole->completed_backup = part->completed_backup;
  }
  return whole;
}

namespace {

class LocalCacheClient final : public CacheClient {
 public:
  LocalCacheClient(SharedManager* manager, SessionRef session, const PoolSet* owned)
      : manager_(manager), session_(session), owned_(owned) {}

  ~LocalCacheClient() override {
    const absl::Status status = manager_->CloseSession(session_);
    PAGODA_CHECK(status.ok(), "a local session exists as long as its client");
  }

  const CacheInfo& info() const override { return manager_->info(); }

  using CacheClient::Execute;
  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    return manager_->Execute(session_, operations, steps);
  }

  // By descriptor if the owner of the pools is known, because memory on a device and in huge pages
  // has no name. Otherwise by name. The pools belong to this process and end with it.
  absl::StatusOr<std::vector<std::unique_ptr<MappedPool>>> MapPools(MemoryAccess access) override {
    const absl::StatusOr<DescribedPools> described = RunOne<DescribedPools>(*this, DescribePools{});
    if (!described.ok()) return described.status();
    absl::StatusOr<std::vector<FileDescriptor>> descriptors = Descriptors(access);
    if (!descriptors.ok()) return descriptors.status();
    std::vector<std::unique_ptr<MappedPool>> pools;
    auto next = descriptors->begin();
    for (const PoolMapping& mapping : described->pools) {
      absl::StatusOr<std::unique_ptr<MappedPool>> pool = absl::UnknownError("not mapped");
      if (descriptors->empty()) {
        pool = MappedPool::Open(mapping, access);
      } else {
        const auto end = next + static_cast<ptrdiff_t>(mapping.segments.size());
        pool = MappedPool::FromDescriptors(
            mapping, {std::make_move_iterator(next), std::make_move_iterator(end)}, access);
        next = end;
      }
      if (!pool.ok()) return pool.status();
      pools.push_back(*std::move(pool));
    }
    return pools;
  }

 private:
  // One for each segment if the owner of the pools is known; else none.
  absl::StatusOr<std::vector<FileDescriptor>> Descriptors(MemoryAccess access) const {
    if (owned_ == nullptr) return std::vector<FileDescriptor>();
    return owned_->OpenDescriptors(access);
  }

  SharedManager* const manager_;
  const SessionRef session_;
  const PoolSet* const owned_;  // May be null.
};

}  // namespace

absl::StatusOr<std::unique_ptr<CacheClient>> OpenLocalCacheClient(SharedManager* manager,
                                                                  std::string client_name,
                                                                  const PoolSet* pools) {
  absl::StatusOr<BlockManager::OpenedSession> session =
      manager->OpenSession(std::move(client_name), absl::InfiniteDuration());
  if (!session.ok()) return session.status();
  return absl::make_unique<LocalCacheClient>(manager, session->ref, pools);
}

}  // namespace pagoda
