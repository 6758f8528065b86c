// A carrier over files whose disks fail or stall on demand, and calls that wait for its reports.
#ifndef PAGODA_TESTS_MANAGER_DISK_DISK_CARRIER_FIXTURE_H_
#define PAGODA_TESTS_MANAGER_DISK_DISK_CARRIER_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "manager/disk/disk_carrier.h"
#include "manager/disk/disk_recovery.h"
#include "tests/manager/disk/disk_cache.h"
#include "tests/pools/file/simulated_disk.h"
#include "tests/pools/file/slab_test_file.h"

namespace pagoda {

// Holds requests back until it is opened.
class Gate {
 public:
  void Close() { Set(false); }
  void Open() { Set(true); }
  void Pass() {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_open_));
  }

 private:
  void Set(bool is_open) {
    const absl::MutexLock lock(&mutex_);
    is_open_ = is_open;
  }
  absl::Mutex mutex_;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = true;
};

class DiskCarrierFixture : public testing::Test {
 protected:
  using Kind = FileRequest::Kind;

  static constexpr uint32_t kSliding = 0, kFull = 1;  // Windows.

  DiskCarrierFixture() {
    pools_ = *PoolSet::Create(DiskCache::Layout(), {.tiers = {{8, 8}, {3, 3}}},
                              absl::StrCat("test-", getpid(), "-carrier"));
    files_ = DiskCache::FileOptions(directory_);
    files_.max_write_errors = 3;
    files_.max_read_errors = 3;
    files_.make_engine = [this](uint32_t w, int fd, uint32_t depth) {
      return absl::StatusOr<std::unique_ptr<FileEngine>>(std::make_unique<FaultyEngine>(
          *MakeThreadEngine(fd, depth), [this, w](const FileRequest& request) {
            gates_[w][static_cast<size_t>(request.kind)].Pass();
            return w == kFull && request.kind == failing_ ? error_.load() : 0;
          }));
    };
    Start();
  }
  ~DiskCarrierFixture() override { carrier_.reset(); }

  // A new run on the same files.
  void Start() {
    carrier_.reset();
    {
      const absl::MutexLock lock(&mutex_);
      reports_.clear();
    }
    ticket_ = 0;
    absl::StatusOr<std::unique_ptr<DiskFiles>> files = DiskFiles::Open(DiskCache::Layout(), files_);
    ASSERT_TRUE(files.ok()) << files.status();
    DiskRecovery recovery = RecoverDisk(**files);
    recovered_ = recovery.windows[kFull].blocks.size();
    carrier_ = std::make_unique<DiskCarrier>(
        pools_.get(), *std::move(files), std::move(recovery.ledgers), carrier_options_,
        [this](Lane lane, Ticket ticket, absl::Status status) {
          if (on_report_) on_report_(lane);
          const absl::MutexLock lock(&mutex_);
          const bool is_new = reports_.emplace(std::pair(lane, ticket), std::move(status)).second;
          EXPECT_TRUE(is_new) << "reported twice: " << ticket.value();
        });
  }

  static DiskPath PathOf(uint32_t number) {
    return {.tokens = {std::vector<TokenId>(DiskCache::kTokensPerBlock, number)}};
  }
  absl::Span<std::byte> Memory(uint32_t w, uint32_t slot, uint32_t pool) {
    return pools_->pool(w, pool).slot(SlotIndex(slot));
  }
  void Fill(uint32_t w, uint32_t memory, const Bytes& bytes) {
    size_t begin = 0;
    for (uint32_t p = 0; p < pools_->layout().windows()[w].pools.size(); ++p) {
      const absl::Span<std::byte> to = Memory(w, memory, p);
      std::memcpy(to.data(), &bytes[begin], to.size());
      begin += to.size();
    }
  }
  Bytes Held(uint32_t w, uint32_t memory) {
    Bytes held;
    for (uint32_t p = 0; p < pools_->layout().windows()[w].pools.size(); ++p) {
      const absl::Span<std::byte> bytes = Memory(w, memory, p);
      held.insert(held.end(), bytes.begin(), bytes.end());
    }
    return held;
  }

  Order BackupOf(uint32_t w, uint32_t slot, uint32_t number, uint32_t memory = 0) {
    return {.lane = Lane::kBackup,
            .ticket = Ticket(++ticket_),
            .window_index = w,
            .source = {kPrimaryTier, SlotIndex(memory)},
            .target = {Tier(1), SlotIndex(slot)},
            .content = std::make_shared<const SlotContent>(
                SlotContent{.tokens = PathOf(number).tokens[0]})};
  }
  Order FetchOf(uint32_t w, uint32_t slot, uint32_t memory = 1) {
    return {.lane = Lane::kFetch,
            .ticket = Ticket(++ticket_),
            .window_index = w,
            .source = {Tier(1), SlotIndex(slot)},
            .target = {kPrimaryTier, SlotIndex(memory)}};
  }
  // Waits for the report.
  absl::Status Await(Lane lane, Ticket ticket) {
    const auto is_there = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return reports_.contains({lane, ticket});
    };
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&is_there));
    return reports_.at({lane, ticket});
  }
  bool IsReported(Lane lane, Ticket ticket) {
    const absl::MutexLock lock(&mutex_);
    return reports_.contains({lane, ticket});
  }
  size_t num_reports() {
    const absl::MutexLock lock(&mutex_);
    return reports_.size();
  }
  absl::Status Run(const Order& order) {
    carrier_->Submit({order});
    return Await(order.lane, order.ticket);
  }
  absl::Status Backup(uint32_t w, uint32_t slot, uint32_t number) {
    Fill(w, 0, BytesOf(PathOf(number), w));
    return Run(BackupOf(w, slot, number));
  }
  // OK only if the bytes are those of block `number`.
  absl::Status Fetch(uint32_t w, uint32_t slot, uint32_t number) {
    Fill(w, 1, Bytes(pools_->layout().windows()[w].block_bytes()));
    absl::Status status = Run(FetchOf(w, slot));
    EXPECT_TRUE(!status.ok() || Held(w, 1) == BytesOf(PathOf(number), w)) << "a wrong block";
    return status;
  }
  absl::Status Erase(uint32_t w, std::vector<SlotIndex> slots,
                     Order::Kind kind = Order::Kind::kErase) {
    return Run({.lane = Lane::kBackup,
                .kind = kind,
                .ticket = Ticket(++ticket_),
                .window_index = w,
                .slots = std::move(slots)});
  }
  void Drop(uint32_t w, uint32_t slot) {
    carrier_->Submit({Order{.lane = Lane::kBackup,
                            .kind = Order::Kind::kDrop,
                            .window_index = w,
                            .target = {Tier(1), SlotIndex(slot)}}});
  }
  DiskStats::Window Stats(uint32_t w) { return carrier_->stats().windows[w]; }
  void Fail(Kind kind, int error) {
    failing_ = kind;
    error_ = error;
  }
  Gate& GateOf(uint32_t w, Kind kind) { return gates_[w][static_cast<size_t>(kind)]; }

  const TestFolder folder_{"/dev/shm"};
  const std::string directory_ = std::filesystem::path(folder_.file()).parent_path();
  std::unique_ptr<PoolSet> pools_;
  DiskFiles::Options files_;
  DiskCarrier::Options carrier_options_;
  std::atomic<Kind> failing_ = Kind::kRead;
  std::atomic<int> error_ = 0;
  Gate gates_[2][3];
  uint64_t ticket_ = 0;
  uint64_t recovered_ = 0;
  std::function<void(Lane)> on_report_;
  absl::Mutex mutex_;
  std::map<std::pair<Lane, Ticket>, absl::Status> reports_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<DiskCarrier> carrier_;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_DISK_DISK_CARRIER_FIXTURE_H_
