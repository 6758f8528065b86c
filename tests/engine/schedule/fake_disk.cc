#include "tests/engine/schedule/fake_disk.h"

#include <algorithm>
#include <variant>

#include "absl/types/span.h"
#include "base/check.h"

namespace pagoda {

FakeDisk::FakeDisk(TestCache* cache) : cache_(*cache) { cache_.manager().SetDisk(this); }

FakeDisk::~FakeDisk() {
  HoldFetches(false);
  Run();
  cache_.manager().SetDisk(nullptr);
}

void FakeDisk::Submit(FileCommands commands) {
  absl::MutexLock lock(&mutex_);
  for (FileCommand& command : commands) commands_.push_back(std::move(command));
}

void FakeDisk::Run() {
  do {
    cache_.manager().Maintain(0);  // Orders backups.
    cache_.WaitForCopies();
  } while (RunCommands());
}

// Returns whether there was anything to do.
bool FakeDisk::RunCommands() {
  FileCommands commands;
  {
    absl::MutexLock lock(&mutex_);
    commands = std::exchange(commands_, {});
  }
  SharedManager& manager = cache_.manager();
  for (const FileCommand& command : commands) {
    if (const auto* erase = std::get_if<FileErase>(&command)) {
      manager.CompleteFile(Lane::kBackup, erase->ticket, absl::OkStatus());
    } else if (const auto* order = std::get_if<FileOrder>(&command)) {
      if (order->lane == Lane::kFetch) {
        fetches_.push_back(*order);
        continue;
      }
      Write(*order);
      manager.CompleteFile(Lane::kBackup, order->ticket, absl::OkStatus());
    }
  }
  if (holds_fetches_ || fetches_.empty()) return !commands.empty();
  for (const FileOrder& fetch : std::exchange(fetches_, {})) {
    const absl::Status status = outcome_();
    if (status.ok()) Read(fetch);
    manager.CompleteFile(Lane::kFetch, fetch.ticket, status);
  }
  return true;
}

void FakeDisk::Write(const FileOrder& backup) {
  AwaitCopies(backup.after);
  std::vector<std::vector<std::byte>>& block = blocks_[{backup.window_index, backup.file.slot}];
  block.clear();
  for (const absl::Span<std::byte> bytes : Bytes(backup.window_index, backup.memory)) {
    block.emplace_back(bytes.begin(), bytes.end());
  }
}

void FakeDisk::Read(const FileOrder& fetch) {
  AwaitCopies(fetch.after);
  const auto& block = blocks_.at({fetch.window_index, fetch.file.slot});
  size_t pool = 0;
  for (const absl::Span<std::byte> bytes : Bytes(fetch.window_index, fetch.memory)) {
    std::copy(block[pool].begin(), block[pool].end(), bytes.begin());
    ++pool;
  }
  ++blocks_read_;
}

void FakeDisk::AwaitCopies(Ticket after) {
  cache_.WaitForCopies();
  PAGODA_CHECK(cache_.manager().Read(
                   [](const BlockManager& core) { return core.completed_ticket(); }) >= after,
               "a copy was ordered before the file");
}

std::vector<absl::Span<std::byte>> FakeDisk::Bytes(uint32_t window_index, SlotRef slot) {
  std::vector<absl::Span<std::byte>> bytes;
  const WindowLayout& window = cache_.pools().layout().windows()[window_index];
  for (uint32_t p = 0; p < window.pools.size(); ++p) {
    SharedMemoryPool& pool = cache_.pools().pool(window_index, p, slot.tier);
    const uint64_t stride = pool.layout().slot_stride_bytes();
    bytes.push_back({pool.bytes().data() + slot.slot.value() * stride, stride});
  }
  return bytes;
}

}  // namespace pagoda
