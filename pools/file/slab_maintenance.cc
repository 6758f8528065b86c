// The operations on the whole slab file, which run alone: tombstones, reset, scan, sync.
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "pools/file/slab_descriptor.h"
#include "pools/file/slab_file.h"
#include "pools/file/slab_operation.h"

namespace pagoda {

// A request of RunInOrder. Guarded by the file's mutex_. A separate mutex could be destroyed while
// the last completion still unlocks it.
struct SlabFile::Ended {
  bool ended = false;
  int error = 0;
};

// Waits for the operations submitted before, and holds back later ones.
class SlabFile::Exclusive {
 public:
  explicit Exclusive(SlabFile& file) : file_(file) {
    const absl::MutexLock lock(&file_.mutex_);
    file_.mutex_.Await(absl::Condition(&file_, &SlabFile::MayEnter));
    if (file_.stopped_) return;
    file_.exclusive_ = true;
    file_.mutex_.Await(absl::Condition(&file_, &SlabFile::IsIdle));
    entered_ = true;
  }
  ~Exclusive() {
    if (!entered_) return;
    {
      const absl::MutexLock lock(&file_.mutex_);
      file_.queue_.swap(file_.held_);
      file_.exclusive_ = false;
    }
    file_.StartWaiting();
  }
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

  // False if the file has stopped.
  bool entered() const { return entered_; }

 private:
  SlabFile& file_;
  bool entered_ = false;
};

void SlabFile::RunInOrder(uint64_t count, absl::FunctionRef<FileRequest(uint64_t i)> make,
                          absl::FunctionRef<bool(uint64_t i, int error)> ended) {
  const uint64_t depth = std::min<uint64_t>(count, options_.depth);
  // Submits half of the requests at once while the other half runs. One kernel call and one wake-up
  // per request would cost more than a small read.
  const uint64_t group = (depth + 1) / 2;
  std::vector<Ended> window(depth);
  bool goes_on = true;
  uint64_t begun = 0;
  for (uint64_t over = 0; over < begun || begun < count;) {
    std::vector<FileRequest> requests;
    for (; begun < count && begun - over < depth; ++begun) {
      Ended& newest = window[begun % depth];
      newest = {};
      requests.push_back(make(begun));
      requests.back().done = [this, &newest](int error) {
        const absl::MutexLock lock(&mutex_);
        newest = {.ended = true, .error = error};
      };
    }
    if (!requests.empty()) engine_->SubmitAll(std::move(requests));
    const uint64_t end = std::min(begun, over + group);
    const auto all_ended = [&] {
      for (uint64_t i = over; i < end; ++i) {
        if (!window[i % depth].ended) return false;
      }
      return true;
    };
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&all_ended));
    }
    for (; over < end; ++over) {
      if (!goes_on || ended(over, window[over % depth].error)) continue;
      goes_on = false;
      count = begun;  // Waits for the requests that have begun.
    }
  }
}

int SlabFile::RunOne(FileRequest::Kind kind, uint64_t offset_bytes, std::byte* page) {
  int result = 0;
  RunInOrder(
      1,
      [&](uint64_t) {
        FileRequest request{.kind = kind, .offset_bytes = offset_bytes};
        if (page != nullptr) request.pieces.push_back({page, slab::kPageBytes});
        return request;
      },
      [&](uint64_t, int error) {
        result = error;
        return true;
      });
  return result;
}

int SlabFile::RunSync() {
  const int error = RunOne(FileRequest::Kind::kSync, 0, nullptr);
  if (error != 0) {
    const absl::MutexLock lock(&mutex_);
    ++stats_.write_errors;
    sync_failed_ = true;
    Degrade(SlabMode::kReadOnly, absl::StrCat("a sync ended with ", strerror(error)));
  }
  return error;
}

absl::Status SlabFile::SyncAndCheck() {
  const absl::MutexLock sync_lock(&sync_mutex_);
  {
    const absl::MutexLock lock(&mutex_);
    if (stopped_ && !exclusive_) return absl::CancelledError("the slab file has stopped");
    // The kernel reports a lost write once, then forgets it.
    if (sync_failed_) {
      return absl::DataLossError(
          "an earlier sync failed and the lost writes are unknown: call Reset");
    }
  }
  if (const int error = RunSync(); error != 0) return absl::ErrnoToStatus(error, "fdatasync");
  return DegradeIfAbsent();
}

absl::Status SlabFile::DegradeIfAbsent() {
  absl::Status status = slab::CheckPresent(
      fd_.get(), options_.path, slab::FileBytes(options_.num_slots, options_.payload_bytes));
  if (!status.ok()) {
    const absl::MutexLock lock(&mutex_);
    Degrade(SlabMode::kOff, std::string(status.message()));
  }
  return status;
}

absl::Status SlabFile::Sync() { return SyncAndCheck(); }

void SlabFile::CheckPresent() { DegradeIfAbsent().IgnoreError(); }

absl::Status SlabFile::Erase(absl::Span<const SlotIndex> slots) {
  const Exclusive exclusive(*this);
  if (!exclusive.entered()) return absl::CancelledError("the slab file has stopped");
  std::vector<SlotIndex> erased(slots.begin(), slots.end());
  {
    const absl::MutexLock lock(&mutex_);
    for (const SlotIndex slot : slots) {
      PAGODA_CHECK(slot.value() < options_.num_slots, "the slot exists");
    }
    // A failed write can have left the previous block.
    erased.insert(erased.end(), untold_.begin(), untold_.end());
    untold_.clear();
  }
  slab::Page& zeros = buffers_[0]->header();
  zeros.fill(std::byte{0});
  absl::Status status;
  RunInOrder(
      erased.size(),
      [&](uint64_t i) {
        FileRequest request{
            .kind = FileRequest::Kind::kWrite,
            .offset_bytes = slab::SlotOffset(erased[i].value(), options_.payload_bytes)};
        request.pieces.push_back({zeros.data(), slab::kPageBytes});
        return request;
      },
      [&](uint64_t i, int error) {
        if (error == 0) return true;
        status = absl::ErrnoToStatus(
            error, absl::StrCat("tombstone of slot ", erased[i].value(), ": Reset removes it"));
        const absl::MutexLock lock(&mutex_);
        Quarantine(erased[i]);
        untold_.push_back(erased[i]);
        CountWriteError(error);
        return true;
      });
  absl::Status synced = SyncAndCheck();
  return status.ok() ? synced : status;
}

absl::Status SlabFile::Reset() {
  const Exclusive exclusive(*this);
  if (!exclusive.entered()) return absl::CancelledError("the slab file has stopped");
  // The kernel reports a lost write to one sync only. That sync must not be a concurrent Sync.
  const absl::MutexLock sync_lock(&sync_mutex_);
  ++superblock_.generation;
  absl::Status status = WriteSuperblocks();
  const absl::MutexLock lock(&mutex_);
  if (!status.ok()) {
    // The disk can hold either generation now. Neither is read or written any more.
    --superblock_.generation;
    Degrade(SlabMode::kOff, absl::StrCat("a reset failed: ", status.message()));
    return status;
  }
  stats_.generation = superblock_.generation;
  untold_.clear();
  sync_failed_ = false;
  return absl::OkStatus();
}

absl::Status SlabFile::CheckScan() const {
  const absl::MutexLock lock(&mutex_);
  if (stopped_) return absl::CancelledError("the slab file has stopped");
  if (stats_.mode != SlabMode::kOff) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the slab file is off: ", stats_.mode_reason));
}

absl::StatusOr<SlabFile::ScanResult> SlabFile::Scan(OnBlock on_block,
                                                    const OnProgress& on_progress) {
  constexpr uint64_t kProgressSlots = 4096;
  const Exclusive exclusive(*this);
  if (!exclusive.entered()) return absl::CancelledError("the slab file has stopped");
  absl::Status status = CheckScan();
  if (!status.ok()) return status;
  ScanResult result;
  const auto page_of = [&](uint64_t i) -> slab::Page& {
    return buffers_[i % buffers_.size()]->header();
  };
  const auto make = [&](uint64_t i) {
    FileRequest request{.kind = FileRequest::Kind::kRead,
                        .offset_bytes = slab::SlotOffset(i, options_.payload_bytes)};
    request.pieces.push_back({page_of(i).data(), slab::kPageBytes});
    return request;
  };
  const auto count = [&](uint64_t i, int error) {
    const SlotIndex slot(static_cast<uint32_t>(i));
    {
      const absl::MutexLock lock(&mutex_);
      if (error != 0) {
        if (Quarantine(slot)) untold_.push_back(slot);
        CountReadError();
      }
      if (quarantined_[i]) {
        ++result.unreadable;
        return;
      }
    }
    slab::SlotHeader header;
    const slab::Parsed parsed = slab::Parse(page_of(i), header);
    if (parsed == slab::Parsed::kEmpty) {
      ++result.empty;
    } else if (parsed != slab::Parsed::kOk) {
      ++result.damaged;
    } else if (header.file_id != superblock_.file_id ||
               header.generation != superblock_.generation) {
      ++result.outdated;
    } else if (header.slot != i || header.payload_bytes > options_.payload_bytes) {
      ++result.damaged;
    } else {
      ++result.blocks;
      on_block(slot, header.record, header.payload_bytes);
    }
  };
  RunInOrder(options_.num_slots, make, [&](uint64_t i, int error) {
    count(i, error);
    if (on_progress && (i + 1) % kProgressSlots == 0) on_progress(i + 1, options_.num_slots);
    status = CheckScan();
    return status.ok();
  });
  if (!status.ok()) return status;
  if (on_progress) on_progress(options_.num_slots, options_.num_slots);
  return result;
}

}  // namespace pagoda
