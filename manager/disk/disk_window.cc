#include "manager/disk/disk_window.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/counted.h"

namespace pagoda {
namespace {

using Clock = std::chrono::steady_clock;

// The pause of the backup thread when it has caught up. No caller waits for a backup, and waking
// the thread would cost the caller time.
constexpr absl::Duration kRest = absl::Milliseconds(1);

// The status code of a report, from the file's status.
absl::StatusCode CodeOf(const absl::Status& status, bool is_fetch, bool is_backup) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return status.code();
    case absl::StatusCode::kFailedPrecondition:
      return is_fetch || is_backup ? status.code() : absl::StatusCode::kUnavailable;
    case absl::StatusCode::kResourceExhausted:
      return is_backup ? status.code() : absl::StatusCode::kUnavailable;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return is_fetch ? absl::StatusCode::kDataLoss : absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

DiskWindow::DiskWindow(PoolSet* pools, uint32_t window_index, SlabFile* file, WriteLedger ledger,
                       const DiskCarrier::Options* options,
                       const DiskCarrier::Completion* completion)
    : pools_(pools),
      window_index_(window_index),
      block_bytes_(pools->layout().windows()[window_index].block_bytes()),
      file_(file),
      options_(options),
      completion_(completion),
      ledger_(std::move(ledger)) {
  PAGODA_CHECK(options_->max_running_backups > 0, "at least one backup can run");
  started_ = backup_thread_.Start("pagoda-backup", [this] { RunBackups(); });
  if (started_.ok()) started_ = fetch_thread_.Start("pagoda-fetch", [this] { RunFetches(); });
}

// ---- On the caller's thread ----

absl::Status DiskWindow::CheckMove(const Order& order) const {
  const SlotRef &memory = order.memory(), &file = order.file();
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", memory.slot.value(), " of tier ",
                                                   memory.tier.value(), " and slot ",
                                                   file.slot.value(), " of the file: ", why));
  };
  if (file.slot.value() >= file_->num_slots()) return refuse("the file has fewer slots");
  if (memory.slot.value() >= pools_->num_slots(window_index_, memory.tier)) {
    return refuse("the tier has fewer slots");
  }
  if (pools_->place(memory.tier).kind != MemoryKind::kHost) {
    return refuse("the tier is not in host memory");
  }
  if (order.parent != kNoSlot && order.parent.value() >= file_->num_slots()) {
    return refuse("its parent's slot does not exist");
  }
  return absl::OkStatus();
}

absl::Status DiskWindow::CheckErase(const Order& order) const {
  for (const SlotIndex slot : order.slots) {
    if (slot.value() < file_->num_slots()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the file has no slot ", slot.value(), " to erase"));
  }
  return absl::OkStatus();
}

void DiskWindow::TakeTicket(Ticket ticket, Ticket& last) {
  PAGODA_CHECK(ticket > last, "file orders come in the order of their tickets");
  last = ticket;
}

void DiskWindow::Submit(const Order& order) {
  const bool is_fetch = order.lane == Lane::kFetch;
  PAGODA_CHECK(is_fetch || order.lane == Lane::kBackup, "a disk has two lanes");
  const bool moves = order.kind == Order::Kind::kMove;
  PAGODA_CHECK(moves ? is_fetch || order.content != nullptr : !is_fetch,
               "an order of a disk is a fetch, a backup with content, an erase or a drop");
  Item item = {.head = {.ticket = order.ticket, .slot = order.file().slot, .given = Clock::now()},
               .refused = moves ? CheckMove(order) : CheckErase(order),
               .memory = order.memory(),
               .after = std::max(order.after[0], order.after[1])};
  const absl::MutexLock lock(&mutex_);
  if (order.kind == Order::Kind::kDrop) {
    PAGODA_CHECK(order.target.slot.value() < file_->num_slots(), "a dropped slot exists");
    return ledger_.Drop(order.target.slot);
  }
  TakeTicket(order.ticket, is_fetch ? last_fetch_ : last_backup_);
  if (is_fetch) return AddFetch(order, std::move(item));
  if (moves) return AddBackup(order, std::move(item));
  AddErase(order, std::move(item));
}

void DiskWindow::AddFetch(const Order& order, Item item) {
  item.head.kind = Kind::kFetch;
  if (item.refused.ok()) {
    item.head.write_id = ledger_.id(order.source.slot);
    if (item.head.write_id == kNoWrite) {
      item.refused = absl::DataLossError("the slot holds no block of the core");
    }
  }
  const Ticket after = item.after;
  fetches_.emplace(after, std::move(item));
}

void DiskWindow::AddBackup(const Order& order, Item item) {
  const SlotIndex slot = order.target.slot;
  item.content = order.content;
  if (item.refused.ok() && order.parent != kNoSlot) {
    item.parent = ledger_.id(order.parent);
    if (item.parent == kNoWrite) {
      item.refused = absl::NotFoundError(
          absl::StrCat("its parent is not in slot ", order.parent.value(), " of the file"));
      // The slot still holds a block that the core gave up.
      if (ledger_.id(slot) != kNoWrite) ledger_.Drop(slot);
    }
  }
  if (item.refused.ok()) item.head.write_id = ledger_.Write(slot);
  backups_.push_back(std::move(item));
}

void DiskWindow::AddErase(const Order& order, Item item) {
  if (order.kind == Order::Kind::kEraseAll) {
    item.head.kind = Kind::kReset;
    ledger_.Clear();
  } else {
    item.head.kind = Kind::kErase;
    if (item.refused.ok()) item.erased = ledger_.Erase(order.slots);
    item.head.num_erased = item.erased.size();
  }
  backups_.push_back(std::move(item));
}

void DiskWindow::MemoryCopiesDone(Ticket completed) {
  const absl::MutexLock lock(&mutex_);
  memory_done_ = completed;
}

void DiskWindow::WaitUntilIdle() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &DiskWindow::IsIdle));
}

void DiskWindow::StopThreads() {
  if (!backup_thread_.joinable()) return;
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  file_->Stop();
  backup_thread_.Join();
  fetch_thread_.Join();
}

bool DiskWindow::CancelWaiting() {
  std::vector<Head> cancelled;
  {
    const absl::MutexLock lock(&mutex_);
    for (const Item& item : backups_) cancelled.push_back(item.head);
    for (const auto& [after, item] : fetches_) cancelled.push_back(item.head);
    backups_.clear();
    fetches_.clear();
    running_ += cancelled.size();
    for (const Head& head : cancelled) running_backups_ += head.kind == Kind::kBackup ? 1 : 0;
  }
  for (const Head& head : cancelled) End(head, absl::CancelledError("the carrier has stopped"));
  return !cancelled.empty();
}

DiskStats::Window DiskWindow::stats() const {
  SlabStats file = file_->stats();
  const absl::MutexLock lock(&mutex_);
  DiskStats::Window stats = stats_;
  stats.file = std::move(file);
  stats.queued_backups = backups_.size();
  stats.queued_fetches = fetches_.size();
  stats.running = running_;
  stats.held_slots = ledger_.num_held();
  stats.stale_slots = ledger_.num_stale();
  return stats;
}

// ---- On the window's threads ----

bool DiskWindow::HasBackup() const {
  if (backups_.empty()) return false;
  const Item& next = backups_.front();
  if (next.head.kind != Kind::kBackup) return true;
  return next.after <= memory_done_ && running_backups_ < options_->max_running_backups;
}

void DiskWindow::RunBackups() {
  // Under SCHED_BATCH the thread waits for its turn when it is woken. If the system refuses, the
  // thread is only less polite.
  const sched_param no_priority = {};
  sched_setscheduler(0, SCHED_BATCH, &no_priority);
  while (true) {
    Item item;
    bool is_last;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &DiskWindow::HasBackupOrEnds));
      if (stopping_) return;
      item = std::move(backups_.front());
      backups_.pop_front();
      is_last = backups_.empty();
      ++running_;
      running_backups_ += item.head.kind == Kind::kBackup ? 1 : 0;
    }
    if (!item.refused.ok()) {
      End(item.head, item.refused);
    } else if (item.head.kind == Kind::kBackup) {
      Write(item);
    } else {
      Erase(std::move(item));
    }
    if (is_last) absl::SleepFor(kRest);
  }
}

void DiskWindow::RunFetches() {
  while (true) {
    Item item;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &DiskWindow::HasFetchOrEnds));
      if (stopping_) return;
      item = std::move(fetches_.begin()->second);
      fetches_.erase(fetches_.begin());
      ++running_;
    }
    if (!item.refused.ok()) {
      End(item.head, item.refused);
    } else {
      Read(item);
    }
  }
}

template <class Byte>
std::vector<absl::Span<Byte>> DiskWindow::PiecesOf(SlotRef memory) const {
  std::vector<absl::Span<Byte>> pieces;
  const size_t num_pools = pools_->layout().windows()[window_index_].pools.size();
  for (uint32_t p = 0; p < num_pools; ++p) {
    pieces.push_back(pools_->pool(window_index_, p, memory.tier).slot(memory.slot));
  }
  return pieces;
}

void DiskWindow::Write(const Item& item) {
  const std::vector<std::byte> record =
      EncodeRecord(item.head.write_id, item.parent, *item.content);
  if (record.size() > slab::kMaxRecordBytes) {
    return End(item.head,
               absl::OutOfRangeError(absl::StrCat("its record takes ", record.size(),
                                                  " bytes of at most ", slab::kMaxRecordBytes)));
  }
  AtStep(DiskCarrier::Step::kBeforeWrite);
  file_->Write(item.head.slot, record, PiecesOf<const std::byte>(item.memory),
               [this, head = item.head](const absl::Status& status) {
                 AtStep(DiskCarrier::Step::kWritten);
                 EndFile(head, status);
               });
  AtStep(DiskCarrier::Step::kWriteStarted);
}

void DiskWindow::Read(const Item& item) {
  file_->Read(item.head.slot, RecordPrefix(item.head.write_id), PiecesOf<std::byte>(item.memory),
              [this, head = item.head](const absl::Status& status) { EndFile(head, status); });
}

void DiskWindow::Erase(Item item) {
  AtStep(DiskCarrier::Step::kBeforeErase);
  if (item.head.kind == Kind::kErase) {
    // An earlier backup may have failed before it touched its slot, which then still has its old
    // block.
    const absl::MutexLock lock(&mutex_);
    const std::vector<SlotIndex> stale = ledger_.Erase({});
    item.erased.insert(item.erased.end(), stale.begin(), stale.end());
    item.head.num_erased = item.erased.size();
  }
  const absl::Status status =
      item.head.kind == Kind::kReset ? file_->Reset() : file_->Erase(item.erased);
  AtStep(DiskCarrier::Step::kErased);
  if (!status.ok()) {
    const absl::MutexLock lock(&mutex_);
    ledger_.Unerase(item.erased);
  }
  EndFile(item.head, status);
}

// ---- Reports ----

std::string DiskWindow::Describe(const Head& head) const {
  const std::string window = WindowName(pools_->layout().windows()[window_index_].window);
  switch (head.kind) {
    case Kind::kBackup:
      return absl::StrCat("backup to slot ", head.slot.value(), " of window ", window);
    case Kind::kFetch:
      return absl::StrCat("fetch from slot ", head.slot.value(), " of window ", window);
    case Kind::kErase:
      return absl::StrCat("erase of ", Counted(head.num_erased, "slot"), " of window ", window);
    case Kind::kReset:
      break;
  }
  return absl::StrCat("reset of window ", window);
}

void DiskWindow::Count(const Head& head, const absl::Status& status) {
  if (const std::optional<DiskError> error = DiskErrorOf(status); error.has_value()) {
    ++stats_.errors[static_cast<size_t>(*error)];
    return;
  }
  if (head.kind == Kind::kErase || head.kind == Kind::kReset) {
    ++stats_.erases;
    stats_.erased_slots += head.num_erased;
    return;
  }
  DiskStats::Direction& direction = head.kind == Kind::kBackup ? stats_.written : stats_.read;
  ++direction.blocks;
  direction.bytes += block_bytes_;
  direction.latency.Observe(absl::FromChrono(Clock::now() - head.given));
}

void DiskWindow::EndFile(const Head& head, const absl::Status& status) {
  if (status.ok()) return End(head, status);
  const absl::StatusCode code =
      CodeOf(status, head.kind == Kind::kFetch, head.kind == Kind::kBackup);
  End(head, absl::Status(code, status.message()));
}

void DiskWindow::End(const Head& head, absl::Status status) {
  if (!status.ok()) {
    status = absl::Status(status.code(), absl::StrCat(Describe(head), ": ", status.message()));
  }
  const bool is_backup = head.kind == Kind::kBackup;
  {
    const absl::MutexLock lock(&mutex_);
    Count(head, status);
    running_backups_ -= is_backup ? 1 : 0;
    if (is_backup && !status.ok()) ledger_.Fail(head.slot, head.write_id);
  }
  (*completion_)(head.kind == Kind::kFetch ? Lane::kFetch : Lane::kBackup, head.ticket,
                 std::move(status));
  const absl::MutexLock lock(&mutex_);
  --running_;
}

}  // namespace pagoda
