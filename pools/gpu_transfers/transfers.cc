#include "pools/gpu_transfers/transfers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/error.h"
#include "base/thread.h"
#include "pools/copy_work.h"
#include "pools/cuda/context.h"
#include "pools/gpu_transfers/copy_batch.h"

namespace pagoda::cuda {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kHostRunner = kNumLanes;  // The index after the lanes.

// 1. An order is waiting, then taken by its runner, then (on a stream) given to the driver, then
// reported and forgotten.
// 2. An order becomes ready when each order of its `after` is reported or, if both are on streams,
// given to the driver. Orders that are ready at the same time thus touch different slots. An order
// on a stream can touch the slots of orders already given to the driver. These run first: the
// stream keeps its own order, and waits for the events of other streams.
// 3. Orders are given to the driver one batch after another. The report of an order waits only for
// orders given earlier, and a lane's batches are reported in the order in which they were given.
// The batch that was given first thus never waits for another one.
class CudaTransfers final : public Transfers {
 public:
  CudaTransfers(PoolSet* pools, const TransferOptions& options, Completion completion)
      : pools_(pools), options_(options), completion_(std::move(completion)) {}
  ~CudaTransfers() override;

  // Retains the context, and starts the streams and the threads. Called once, before anything else.
  absl::Status Start();

  void Submit(absl::Span<const Order> orders) override ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitUntilIdle() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() override ABSL_LOCKS_EXCLUDED(mutex_);
  TransferStats stats() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class State : uint8_t { kWaiting, kTaken, kGiven };
  using Tickets = absl::InlinedVector<Ticket, 2>;

  struct Pending {
    Order order;
    SteadyClock::time_point given;
    size_t runner = kHostRunner;  // kHostRunner or a lane.
    State state = State::kWaiting;
    CUevent event = nullptr;  // In kGiven: the batch's event; null if it was not recorded.
    uint32_t waits_for = 0;
    // The orders that wait until this one is given to the driver, and those that wait for its
    // report.
    Tickets after_given;
    Tickets after_report;
  };
  struct Item {
    Order order;
    SteadyClock::time_point given;
    CopyOutcome outcome;
  };
  // The orders that one event covers.
  struct Batch {
    std::vector<Item> items;
    CUevent event = nullptr;  // Null if it was not recorded.
    absl::Status status;      // The result of giving the batch to the driver.
    SteadyClock::time_point given;
  };
  // Before a batch, a stream waits for an event, or (event == null) for all work of another stream.
  struct Wait {
    CUevent event = nullptr;
    size_t lane = 0;
  };
  struct StreamLane {
    CUstream stream = nullptr;
    std::deque<Ticket> ready;
    std::deque<Batch> running;  // Given to the driver and not reported.
  };

  size_t RunnerOf(const Order& order) const;
  uint64_t BytesAtMost(const Order& order) const;

  void Enqueue(const Order& order, SteadyClock::time_point now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Tickets& followers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The thread that gives orders to the driver. At the end it cancels the waiting orders.
  void RunDispatcher() ABSL_LOCKS_EXCLUDED(mutex_);
  bool CanGive(const StreamLane& lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !lane.ready.empty() && lane.running.size() < options_.max_running_batches;
  }
  bool DispatcherHasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBatch(size_t lane, const absl::Status& context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Wait> TakeBatch(size_t lane, Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status GiveToDriver(size_t lane, const std::vector<Wait>& waits, Batch& batch) const;
  absl::Status RecordEvent(size_t lane, CUevent& event) const;
  void CancelNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The thread of a lane. It waits for events.
  void RunLane(size_t index) ABSL_LOCKS_EXCLUDED(mutex_);
  // The thread that copies within the host.
  void RunHost() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reports an order when its earlier orders are reported, then releases its followers. Unlocks in
  // between.
  void Report(const Order& order, const CopyOutcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_.empty(); }
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ && pending_.empty(); }

  PoolSet* const pools_;
  const TransferOptions options_;
  const Completion completion_;
  const Driver* driver_ = nullptr;
  int device_ = -1;  // Its context is held while this is not -1.
  uint64_t context_ = 0;
  DriverCalls calls_ = DriverCalls::kOneByOne;

  mutable absl::Mutex mutex_;  // A leaf: no other function is called under it.
  std::map<Ticket, Pending> pending_ ABSL_GUARDED_BY(mutex_);  // Submitted and not reported.
  std::array<StreamLane, kNumLanes> lanes_;  // `stream` is set once; mutex_ guards the rest.
  std::deque<Ticket> host_ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<CUevent> free_events_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;   // The orders of pending_ in State::kWaiting.
  Ticket last_ ABSL_GUARDED_BY(mutex_);          // The last ticket submitted.
  TransferStats stats_ ABSL_GUARDED_BY(mutex_);  // Without `running` and `queued`.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // Used by Start and Stop only.
};

absl::Status CudaTransfers::Start() {
  const MemoryPlace place = pools_->place(kPrimaryTier);
  if (place.kind != MemoryKind::kCuda) {
    return MakeError(Reason::kInvalidArgument, "no pool lies on a CUDA device");
  }
  const absl::StatusOr<uint64_t> context = RetainContext(place.device);
  if (!context.ok()) return context.status();
  device_ = place.device;
  context_ = *context;
  driver_ = &TheDriver();
  const Current current(context_);
  if (!current.status().ok()) return current.status();
  // The batched call takes host addresses. Not every device uses them unchanged.
  int same_addresses = 0;
  absl::Status status = driver_->Check(
      "cuDeviceGetAttribute",
      driver_->cuDeviceGetAttribute(
          &same_addresses, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device_));
  if (!status.ok()) return status;
  if (same_addresses != 0) calls_ = DriverCalls::kBatched;
  for (StreamLane& lane : lanes_) {
    status = driver_->Check("cuStreamCreate",
                            driver_->cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING));
    if (!status.ok()) return status;
  }
  status = StartThreads(
      "pagoda-copies", 1, [this] { RunDispatcher(); }, &threads_);
  if (!status.ok()) return status;
  status = StartThreads(
      "pagoda-copies", 1, [this] { RunHost(); }, &threads_);
  for (size_t lane = 0; lane < kNumLanes && status.ok(); ++lane) {
    status = StartThreads(
        "pagoda-copies", 1, [this, lane] { RunLane(lane); }, &threads_);
  }
  return status;
}

CudaTransfers::~CudaTransfers() {
  Stop();
  if (device_ < 0) return;
  {
    const Current current(context_);
    absl::MutexLock lock(&mutex_);
    for (const CUevent event : free_events_) driver_->cuEventDestroy(event);
    for (const StreamLane& lane : lanes_) {
      if (lane.stream != nullptr) driver_->cuStreamDestroy(lane.stream);
    }
  }
  ReleaseContext(device_);
}

size_t CudaTransfers::RunnerOf(const Order& order) const {
  const bool from_host = pools_->place(order.source.tier).kind == MemoryKind::kHost;
  const bool to_host = pools_->place(order.target.tier).kind == MemoryKind::kHost;
  if (from_host && to_host) return kHostRunner;
  return static_cast<size_t>(from_host ? Lane::kUp : to_host ? Lane::kDown : Lane::kWithin);
}

uint64_t CudaTransfers::BytesAtMost(const Order& order) const {
  const std::vector<WindowLayout>& windows = pools_->layout().windows();
  return order.window_index < windows.size() ? windows[order.window_index].block_bytes() : 0;
}

void CudaTransfers::Submit(absl::Span<const Order> orders) {
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(!stopped_, "no copy is ordered after Stop");
  const auto now = SteadyClock::now();
  for (const Order& order : orders) Enqueue(order, now);
}

void CudaTransfers::Enqueue(const Order& order, SteadyClock::time_point now) {
  TakeTicket(order.ticket, last_);
  Pending pending{.order = order, .given = now, .runner = RunnerOf(order)};
  for (const Ticket earlier : order.after) {
    const auto it = pending_.find(earlier);
    if (it == pending_.end()) continue;
    Pending& before = it->second;
    const bool on_streams = pending.runner != kHostRunner && before.runner != kHostRunner;
    if (on_streams && before.state == State::kGiven) continue;  // The device keeps the order.
    (on_streams ? before.after_given : before.after_report).push_back(order.ticket);
    ++pending.waits_for;
  }
  const bool ready = pending.waits_for == 0;
  const size_t runner = pending.runner;
  pending_.emplace(order.ticket, std::move(pending));
  ++waiting_;
  if (ready) (runner == kHostRunner ? host_ready_ : lanes_[runner].ready).push_back(order.ticket);
}

void CudaTransfers::Release(Tickets& followers) {
  for (const Ticket ticket : followers) {
    Pending& follower = pending_.find(ticket)->second;
    if (--follower.waits_for > 0) continue;
    (follower.runner == kHostRunner ? host_ready_ : lanes_[follower.runner].ready)
        .push_back(ticket);
  }
  followers.clear();
}

void CudaTransfers::Take(Pending& pending) {
  pending.state = State::kTaken;
  --waiting_;
}

bool CudaTransfers::DispatcherHasWork() const {
  if (stopping_) return waiting_ > 0 || pending_.empty();
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [this](const StreamLane& lane) { return CanGive(lane); });
}

void CudaTransfers::RunDispatcher() {
  const Current current(context_);
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &CudaTransfers::DispatcherHasWork));
    if (stopping_) {
      if (pending_.empty()) return;
      CancelNext();
      continue;
    }
    for (size_t lane = 0; lane < kNumLanes && !stopping_; ++lane) {
      if (CanGive(lanes_[lane])) GiveBatch(lane, current.status());
    }
  }
}

void CudaTransfers::GiveBatch(size_t lane, const absl::Status& context) {
  Batch batch;
  const std::vector<Wait> waits = TakeBatch(lane, batch);
  mutex_.Unlock();
  batch.given = SteadyClock::now();
  batch.status = context.ok() ? GiveToDriver(lane, waits, batch) : context;
  // After a failure too: the report must wait for the work that was given earlier.
  const absl::Status recorded = RecordEvent(lane, batch.event);
  if (batch.status.ok()) batch.status = recorded;
  CUevent unused = nullptr;
  if (!recorded.ok()) std::swap(unused, batch.event);
  mutex_.Lock();
  if (unused != nullptr) free_events_.push_back(unused);
  for (const Item& item : batch.items) {
    Pending& pending = pending_.find(item.order.ticket)->second;
    pending.state = State::kGiven;
    pending.event = batch.event;
    Release(pending.after_given);
  }
  lanes_[lane].running.push_back(std::move(batch));
}

std::vector<CudaTransfers::Wait> CudaTransfers::TakeBatch(size_t lane, Batch& batch) {
  std::vector<Wait> waits;
  std::deque<Ticket>& ready = lanes_[lane].ready;
  uint64_t bytes = 0;
  while (!ready.empty() && batch.items.size() < options_.max_batch_orders) {
    Pending& pending = pending_.find(ready.front())->second;
    bytes += BytesAtMost(pending.order);
    if (!batch.items.empty() && bytes > options_.max_batch_bytes) break;
    ready.pop_front();
    Take(pending);
    batch.items.push_back({.order = pending.order, .given = pending.given, .outcome = {}});
    for (const Ticket earlier : pending.order.after) {
      const auto before = pending_.find(earlier);
      if (before == pending_.end() || before->second.runner == lane) continue;
      waits.push_back({.event = before->second.event, .lane = before->second.runner});
    }
  }
  if (!free_events_.empty()) {
    batch.event = free_events_.back();
    free_events_.pop_back();
  }
  return waits;
}

absl::Status CudaTransfers::GiveToDriver(size_t lane, const std::vector<Wait>& waits,
                                         Batch& batch) const {
  CopyBatch copies(static_cast<Lane>(lane));
  for (Item& item : batch.items) {
    const absl::StatusOr<uint64_t> bytes = copies.Add(item.order, *pools_);
    item.outcome.status = bytes.status();
    item.outcome.bytes = bytes.ok() ? *bytes : 0;
  }
  const CUstream stream = lanes_[lane].stream;
  for (const Wait& wait : waits) {
    absl::Status status =
        wait.event != nullptr
            ? driver_->Check("cuStreamWaitEvent", driver_->cuStreamWaitEvent(stream, wait.event, 0))
            : driver_->Check("cuStreamSynchronize",
                             driver_->cuStreamSynchronize(lanes_[wait.lane].stream));
    if (!status.ok()) return status;
  }
  return copies.Issue(*driver_, stream, calls_);
}

absl::Status CudaTransfers::RecordEvent(size_t lane, CUevent& event) const {
  if (event == nullptr) {
    // A thread that waits for the event sleeps. Nothing reads its time.
    const CUresult made =
        driver_->cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    if (absl::Status status = driver_->Check("cuEventCreate", made); !status.ok()) {
      event = nullptr;
      return status;
    }
  }
  return driver_->Check("cuEventRecord", driver_->cuEventRecord(event, lanes_[lane].stream));
}

// Cancels the first waiting order. All orders that it waits for are given to the driver, taken by
// the host's thread, or reported.
void CudaTransfers::CancelNext() {
  const auto first = std::find_if(pending_.begin(), pending_.end(), [](const auto& entry) {
    return entry.second.state == State::kWaiting;
  });
  Take(first->second);
  const Order order = first->second.order;
  CopyOutcome outcome;
  outcome.status = CancelledCopy();
  Report(order, outcome);
}

void CudaTransfers::RunLane(size_t index) {
  const Current current(context_);
  StreamLane& lane = lanes_[index];
  SteadyClock::time_point last_done = SteadyClock::now();
  absl::MutexLock lock(&mutex_);
  const auto has_work_or_ends = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !lane.running.empty() || Over();
  };
  while (true) {
    mutex_.Await(absl::Condition(&has_work_or_ends));
    if (lane.running.empty()) return;
    Batch batch = std::move(lane.running.front());  // Keeps its place until it is reported.
    mutex_.Unlock();
    const absl::Status ended =
        batch.event != nullptr
            ? driver_->Check("a copy", driver_->cuEventSynchronize(batch.event))
            : driver_->Check("a copy", driver_->cuStreamSynchronize(lane.stream));
    if (batch.status.ok()) batch.status = ended;
    const SteadyClock::time_point done = SteadyClock::now();
    const absl::Duration busy = absl::FromChrono(done - std::max(last_done, batch.given));
    last_done = done;
    mutex_.Lock();
    for (Item& item : batch.items) {
      if (item.outcome.status.ok()) item.outcome.status = batch.status;
      item.outcome.busy = busy / static_cast<int64_t>(batch.items.size());
      item.outcome.latency = absl::FromChrono(done - item.given);
      Report(item.order, item.outcome);
    }
    if (batch.event != nullptr) free_events_.push_back(batch.event);
    lane.running.pop_front();
  }
}

void CudaTransfers::RunHost() {
  absl::MutexLock lock(&mutex_);
  const auto has_work_or_ends = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (!stopping_ && !host_ready_.empty()) || Over();
  };
  while (true) {
    mutex_.Await(absl::Condition(&has_work_or_ends));
    if (Over()) return;
    Pending& pending = pending_.find(host_ready_.front())->second;
    host_ready_.pop_front();
    Take(pending);
    const Order order = pending.order;
    const SteadyClock::time_point given = pending.given;
    mutex_.Unlock();
    const CopyOutcome outcome = CarryOutOnHost(order, *pools_, given);
    mutex_.Lock();
    Report(order, outcome);
  }
}

void CudaTransfers::Report(const Order& order, const CopyOutcome& outcome) {
  const auto is_next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::none_of(order.after.begin(), order.after.end(),
                        [this](Ticket earlier) { return pending_.contains(earlier); });
  };
  mutex_.Await(absl::Condition(&is_next));
  mutex_.Unlock();
  completion_(order.lane, order.ticket, outcome.status);
  mutex_.Lock();
  if (absl::IsCancelled(outcome.status)) {
    ++stats_.cancelled;
  } else {
    CountOutcome(order, outcome, stats_);
  }
  const auto done = pending_.find(order.ticket);
  Release(done->second.after_given);
  Release(done->second.after_report);
  pending_.erase(done);
}

void CudaTransfers::WaitUntilIdle() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &CudaTransfers::Idle));
}

void CudaTransfers::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (Thread& thread : threads_) thread.Join();
  threads_.clear();
  absl::MutexLock lock(&mutex_);
  PAGODA_CHECK(pending_.empty(), "every order is reported");
  stopped_ = true;
}

TransferStats CudaTransfers::stats() const {
  absl::MutexLock lock(&mutex_);
  TransferStats stats = stats_;
  stats.queued = waiting_;
  stats.running = pending_.size() - waiting_;
  return stats;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transfers>> MakeTransfers(PoolSet* pools, TransferOptions options,
                                                         Transfers::Completion completion) {
  PAGODA_CHECK(options.max_batch_orders > 0 && options.max_running_batches > 0,
               "a batch holds an order, and a batch can run");
  auto transfers = std::make_unique<CudaTransfers>(pools, options, std::move(completion));
  if (absl::Status status = transfers->Start(); !status.ok()) return status;
  return transfers;
}

}  // namespace pagoda::cuda
