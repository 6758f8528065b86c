#include "manager/disk/disk_carrier.h"

#include <utility>

#include "base/check.h"
#include "manager/disk/disk_window.h"

namespace pagoda {

DiskCarrier::DiskCarrier(PoolSet* pools, std::unique_ptr<DiskFiles> files,
                         std::vector<WriteLedger> ledgers, Options options, Completion completion)
    : options_(std::move(options)),
      completion_(std::move(completion)),
      files_(std::move(files)),
      windows_(files_->num_windows()) {
  PAGODA_CHECK(ledgers.size() == windows_.size(), "each window has a ledger");
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    SlabFile* const file = files_->Find(w);
    if (file == nullptr) continue;
    PAGODA_CHECK(ledgers[w].num_slots() == file->num_slots(), "a ledger is of its file");
    windows_[w] = std::make_unique<DiskWindow>(pools, w, file, std::move(ledgers[w]), &options_,
                                               &completion_);
  }
}

DiskCarrier::~DiskCarrier() { Stop(); }

absl::Status DiskCarrier::started() const {
  absl::Status started;
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    if (one != nullptr) started.Update(one->started());
  }
  return started;
}

DiskWindow& DiskCarrier::window(uint32_t window_index) const {
  PAGODA_CHECK(window_index < windows_.size() && windows_[window_index] != nullptr,
               "a window with file orders has a file");
  return *windows_[window_index];
}

void DiskCarrier::Submit(absl::Span<const Order> orders) {
  PAGODA_CHECK(!stopped_.load(), "the carrier has not stopped");
  for (const Order& order : orders) window(order.window_index).Submit(order);
}

void DiskCarrier::MemoryCopiesDone(Ticket completed) {
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    if (one != nullptr) one->MemoryCopiesDone(completed);
  }
}

absl::Status DiskCarrier::WaitUntilIdle() {
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    if (one != nullptr) one->WaitUntilIdle();
  }
  absl::Status first;
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    if (one != nullptr) first.Update(one->Sync());
  }
  return first;
}

void DiskCarrier::CheckFiles() {
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    if (one != nullptr) one->CheckPresent();
  }
}

// A completion of one window may submit to another.
void DiskCarrier::Stop() {
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    if (one != nullptr) one->StopThreads();
  }
  for (bool again = true; again;) {
    again = false;
    for (const std::unique_ptr<DiskWindow>& one : windows_) {
      if (one != nullptr && one->CancelWaiting()) again = true;
    }
  }
  stopped_ = true;
}

DiskStats DiskCarrier::stats() const {
  DiskStats stats;
  for (const std::unique_ptr<DiskWindow>& one : windows_) {
    stats.windows.push_back(one == nullptr ? DiskStats::Window() : one->stats());
  }
  return stats;
}

}  // namespace pagoda
