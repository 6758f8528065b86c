#include "tests/sim/record/disk_orders.h"

#include <algorithm>

#include "absl/time/time.h"
#include "tests/sim/words/fail.h"

namespace pagoda::sim {
namespace {

// The length of the log of writes. Older entries are outside every short span of time.
constexpr size_t kMostSpent = 256;

}  // namespace

DiskOrders::DiskOrders(const SimConfig* config) : config_(config) {
  if (!config->has_disk) return;
  for (uint32_t w = 0; w < config->windows.size(); ++w) {
    block_bytes_[w] = config->block_bytes(w);
    slots_[w].resize(config->slots_in(w, config->disk()));
  }
}

void DiskOrders::TakeTicket(Lane lane, Ticket ticket) {
  Ticket& last = lane == Lane::kFetch ? last_fetch_ : last_backup_;
  SIM_CHECK(ticket.value() == last.value() + 1, "file order ", ticket.value(), " follows ",
            last.value());
  last = ticket;
  if (lane == Lane::kBackup) open_backups_.insert(ticket);
}

// In every span of time T at most rate * (T + 1 s) bytes are ordered, or one block if that is more.
void DiskOrders::Spend(const Spent& spent) {
  const uint64_t rate = config_->write_bytes_per_second;
  if (rate == 0) return;
  spent_.push_back(spent);
  if (spent_.size() > kMostSpent) spent_.pop_front();
  uint64_t bytes = 0;
  for (auto it = spent_.rbegin(); it != spent_.rend(); ++it) {
    bytes += it->bytes;
    const double seconds = absl::ToDoubleSeconds(spent.time - it->time);
    const double most =
        static_cast<double>(rate) * seconds + static_cast<double>(std::max(rate, spent.bytes));
    SIM_CHECK(static_cast<double>(bytes) <= most + 1e-6 * most + 1, "D4: ", bytes,
              " bytes are ordered to be written in ", seconds, " s, at ", rate, " bytes a second");
  }
}

void DiskOrders::Stage(uint32_t window, uint32_t id, SlotIndex staging, Ticket copy,
                       absl::Time now) {
  SIM_CHECK(!InTransit(window, {config_->above_disk(), staging}), "D6: staging slot ",
            staging.value(), " is handed out while a backup has it");
  SIM_CHECK(MayOrderBackups(window), "a backup is ordered during a reset, or after ",
            kMaxWriteErrors, " failed writes");
  SIM_CHECK(BackupOf(window, id) == nullptr, "block ", id, " is backed up twice");
  backups_.push_back({.window = window, .id = id, .staging = staging, .copy = copy, .ticket = {}});
  stats_[window].backup_bytes += block_bytes_[window];
  Spend({copy, now, block_bytes_[window]});
}

DiskOrders::Backup& DiskOrders::Submit(const Order& order) {
  TakeTicket(Lane::kBackup, order.ticket);
  for (Backup& backup : backups_) {
    if (backup.window != order.window_index || backup.ticket != Ticket{}) continue;
    const bool ended = backup.copied || backup.failed;
    if (backup.staging != order.memory().slot) {
      SIM_CHECK(ended, "backup ", order.ticket.value(), " is ordered before an earlier one");
      continue;
    }
    SIM_CHECK(backup.copied, "D6: a backup is ordered before its staging slot is filled");
    SIM_CHECK(!backup.left, "a backup is ordered of block ", backup.id, ", which left the tree");
    SIM_CHECK(!IsBusy(order.window_index, order.file().slot), "backup ", order.ticket.value(),
              " goes to slot ", order.file().slot.value(), " of the file, which is in use");
    backup.ticket = order.ticket;
    backup.file = order.file().slot;
    At(order.window_index, order.file().slot).writing = true;
    return backup;
  }
  Fail(Text("backup ", order.ticket.value(), " reads slot ", order.memory().slot.value(),
            ", which no copy filled for it"));
}

void DiskOrders::AddFetch(const Order& order, uint32_t id, absl::Time deadline) {
  TakeTicket(Lane::kFetch, order.ticket);
  const uint32_t w = order.window_index;
  SIM_CHECK(!InTransit(w, order.memory()), "D6: slot ", order.memory().slot.value(),
            " is fetched into while it is in transit");
  SIM_CHECK(FetchOf(w, id) == nullptr, "block ", id, " is fetched twice");
  if (!jobs_open_[w]) jobs_.push_back({.window = w, .deadline = deadline, .fetches = {}});
  jobs_open_[w] = true;
  const auto job = std::find_if(jobs_.rbegin(), jobs_.rend(),
                                [&](const Job& other) { return other.window == w; });
  job->fetches.push_back({.ticket = order.ticket,
                          .id = id,
                          .file = order.file().slot,
                          .memory = order.memory().slot,
                          .after = order.after[0]});
  ++At(w, order.file().slot).reads;
  stats_[w].fetch_bytes += block_bytes_[w];
  const uint32_t most = std::max(1u, config_->windows[w].blocks_in(config_->above_disk()) / 4);
  SIM_CHECK(fetching(w) <= most, fetching(w), " fetches are on their way, at most ", most, " may");
}

void DiskOrders::AddErase(const Order& erase) {
  TakeTicket(Lane::kBackup, erase.ticket);
  for (Erase& one : erases_) {
    if (!one.is_due) continue;
    SIM_CHECK(one.erase.window_index == erase.window_index && one.erase.kind == erase.kind &&
                  one.erase.slots == erase.slots,
              "erase ", one.erase.ticket.value(), " is tried again as another one");
    one.erase = erase;
    one.tickets.push_back(erase.ticket);
    one.is_due = false;
    return;
  }
  erases_.push_back({.erase = erase, .tickets = {erase.ticket}});
  if (erase.kind == Order::Kind::kEraseAll) ++resets_[erase.window_index];
  for (const SlotIndex slot : erase.slots) ++At(erase.window_index, slot).erases;
  stats_[erase.window_index].erased_blocks += erase.slots.size();
}

std::optional<uint32_t> DiskOrders::CopyEnded(Ticket copy, bool ok) {
  for (Backup& backup : backups_) {
    if (backup.copy != copy || backup.ticket != Ticket{}) continue;
    (ok ? backup.copied : backup.failed) = true;
    return backup.window;
  }
  return std::nullopt;
}

std::optional<DiskOrders::Backup> DiskOrders::TakeDropped(uint32_t window) {
  for (auto it = backups_.begin(); it != backups_.end(); ++it) {
    if (it->window != window || it->ticket != Ticket{}) continue;
    if (!it->copied && !it->failed) return std::nullopt;
    const Backup dropped = *it;
    backups_.erase(it);
    stats_[window].backup_bytes -= block_bytes_[window];
    std::erase_if(spent_, [&](const Spent& spent) { return spent.copy == dropped.copy; });
    return dropped;
  }
  return std::nullopt;
}

DiskOrders::EndedErase DiskOrders::EraseEnded(Ticket ticket, const absl::Status& status) {
  const auto it = std::find_if(erases_.begin(), erases_.end(),
                               [&](const Erase& one) { return one.erase.ticket == ticket; });
  SIM_CHECK(it != erases_.end(), "an erase ends that was not ordered");
  const uint32_t w = it->erase.window_index;
  EndedErase ended{.tickets = it->tickets};
  if (!status.ok() && it->tickets.size() < kMaxEraseTries) {
    it->is_due = true;
    ended.end = EraseEnd::kTryAgain;
    return ended;
  }
  if (!status.ok()) {
    ended.end = EraseEnd::kGivenUp;
    ++stats_[w].failed_erases;
  }
  if (it->erase.kind == Order::Kind::kEraseAll) --resets_[w];
  for (const SlotIndex slot : it->erase.slots) --At(w, slot).erases;
  for (const Ticket one : it->tickets) open_backups_.erase(one);
  erases_.erase(it);
  return ended;
}

DiskOrders::Backup DiskOrders::BackupEnded(Ticket ticket, const absl::Status& status) {
  open_backups_.erase(ticket);
  const auto it = std::find_if(backups_.begin(), backups_.end(),
                               [&](const Backup& one) { return one.ticket == ticket; });
  SIM_CHECK(it != backups_.end(), "a backup ends that was not ordered");
  const Backup backup = *it;
  backups_.erase(it);
  Slot& slot = At(backup.window, backup.file);
  slot.writing = false;
  uint32_t& errors = write_errors_[backup.window];
  if (status.ok()) {
    errors = 0;
    return backup;
  }
  ++stats_[backup.window].failed_backups;
  if (!absl::IsUnavailable(status) && !absl::IsFailedPrecondition(status)) return backup;
  ++errors;
  slot.retired = true;
  ++stats_[backup.window].retired_slots;
  return backup;
}

DiskOrders::Job& DiskOrders::FetchEnded(Ticket ticket, const absl::Status& status) {
  for (Job& job : jobs_) {
    for (size_t i = 0; i < job.fetches.size(); ++i) {
      Fetch& fetch = job.fetches[i];
      if (fetch.ticket != ticket) continue;
      fetch.state = status.ok() ? Fetch::State::kRead : Fetch::State::kFailed;
      --At(job.window, fetch.file).reads;
      if (!status.ok()) GiveUp(job, i);
      if (!status.ok() && !absl::IsCancelled(status)) ++stats_[job.window].failed_fetches;
      return job;
    }
  }
  Fail("a fetch ends that was not ordered");
}

bool DiskOrders::Expire(absl::Time now) {
  bool any = false;
  for (Job& job : jobs_) {
    if (job.deadline > now) continue;
    any = true;
    GiveUp(job, 0);
    const auto never = [](const Fetch&) { return false; };
    Advance(job, never, never);
  }
  CloseJobs();
  return any;
}

void DiskOrders::BlockLeft(uint32_t window, uint32_t id) {
  for (Backup& backup : backups_) {
    backup.left = backup.left || (backup.window == window && backup.id == id);
  }
  for (Job& job : jobs_) {
    for (Fetch& fetch : job.fetches) {
      fetch.left = fetch.left || (job.window == window && fetch.id == id);
    }
  }
}

void DiskOrders::AllLeft(uint32_t window) {
  for (Backup& backup : backups_) backup.left = backup.left || backup.window == window;
  for (Job& job : jobs_) {
    for (Fetch& fetch : job.fetches) fetch.left = fetch.left || job.window == window;
  }
}

const DiskOrders::Backup* DiskOrders::BackupOf(uint32_t window, uint32_t id) const {
  for (const Backup& backup : backups_) {
    if (backup.window == window && backup.id == id && !backup.left) return &backup;
  }
  return nullptr;
}

const DiskOrders::Fetch* DiskOrders::FetchOf(uint32_t window, uint32_t id) const {
  for (const Job& job : jobs_) {
    if (job.window != window) continue;
    for (const Fetch& fetch : job.fetches) {
      if (fetch.id == id && !fetch.given_up && !fetch.left) return &fetch;
    }
  }
  return nullptr;
}

bool DiskOrders::IsBusy(uint32_t window, SlotIndex file) const {
  const Slot& slot = At(window, file);
  return slot.reads != 0 || slot.erases != 0 || slot.writing || slot.retired;
}

uint32_t DiskOrders::InFlight(uint32_t window, const std::vector<bool>& owned) const {
  uint32_t count = 0;
  for (uint32_t s = 0; s < slots_[window].size(); ++s) {
    if (!owned[s] && IsBusy(window, SlotIndex{s})) ++count;
  }
  for (const Backup& backup : backups_) {
    // The carrier does not know its slot yet.
    if (backup.window == window && backup.ticket == Ticket{}) ++count;
  }
  return count;
}

bool DiskOrders::InTransit(uint32_t window, SlotRef memory, Ticket copy) const {
  if (!config_->has_disk || memory.tier != config_->above_disk()) return false;
  for (const Backup& backup : backups_) {
    if (backup.window == window && backup.staging == memory.slot) return true;
  }
  for (const Job& job : jobs_) {
    if (job.window != window) continue;
    for (const Fetch& fetch : job.fetches) {
      const bool waits = copy != Ticket{} && copy <= fetch.after;
      if (fetch.memory == memory.slot && !waits) return true;
    }
  }
  return false;
}

uint32_t DiskOrders::fetching(uint32_t window) const {
  uint32_t count = 0;
  for (const Job& job : jobs_) {
    if (job.window == window) count += static_cast<uint32_t>(job.fetches.size());
  }
  return count;
}

Ticket DiskOrders::completed(Lane lane) const {
  if (lane == Lane::kBackup) {
    return open_backups_.empty() ? last_backup_ : Ticket{open_backups_.begin()->value() - 1};
  }
  Ticket completed = last_fetch_;
  for (const Job& job : jobs_) {
    for (const Fetch& fetch : job.fetches) {
      if (!fetch.given_up) completed = std::min(completed, Ticket{fetch.ticket.value() - 1});
    }
  }
  return completed;
}

bool DiskOrders::HasFreeStaging(uint32_t window) const {
  return std::count_if(backups_.begin(), backups_.end(), [&](const Backup& backup) {
           return backup.window == window;
         }) < static_cast<ptrdiff_t>(kStagingSlots);
}

void DiskOrders::CheckStats(uint32_t window, const DiskTierStats& told) const {
  const DiskTierStats& own = stats_[window];
  const auto same = [&](const char* what, uint64_t by_core, uint64_t counted) {
    SIM_CHECK(by_core == counted, "the core counts ", by_core, " ", what, " of window ",
              WindowName(config_->windows[window].size), " instead of ", counted);
  };
  same("backups", told.backups, own.backups);
  same("bytes of backups", told.backup_bytes, own.backup_bytes);
  same("failed backups", told.failed_backups, own.failed_backups);
  same("fetches", told.fetches, own.fetches);
  same("bytes of fetches", told.fetch_bytes, own.fetch_bytes);
  same("failed fetches", told.failed_fetches, own.failed_fetches);
  same("late fetches", told.late_fetches, own.late_fetches);
  same("erased blocks", told.erased_blocks, own.erased_blocks);
  same("failed erases", told.failed_erases, own.failed_erases);
  same("retired slots", told.retired_slots, own.retired_slots);
}

}  // namespace pagoda::sim
