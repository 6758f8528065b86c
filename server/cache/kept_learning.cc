#include "server/cache/kept_learning.h"

#include <cstddef>
#include <cstdint>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "manager/restart/slot_stamps.h"
#include "manager/warm_restart.h"
#include "pools/memory/shared_memory.h"
#include "pools/types.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

std::string TableName(const std::string& instance, WindowSize window) {
  return absl::StrCat("/pagoda-", instance, "-w", WindowName(window), "-learned");
}

// A line for the log.
void Tell(LogLevel level, WindowSize window, const std::string& what) {
  Log(level, absl::StrCat("warm restart: window ", WindowName(window), ": ", what));
}

void Restore(const KeptTable& table, WindowSize window, uint32_t window_index, BlockManager& core) {
  const absl::StatusOr<std::optional<std::vector<std::byte>>> left = table.Read();
  absl::Status status = left.status();
  if (left.ok()) {
    if (!left->has_value()) return;  // The first run.
    status = core.restart().RestoreLearned(window_index, **left);
  }
  if (status.ok()) {
    Tell(LogLevel::kInfo, window, "the eviction policy knows what the last run learned");
  } else {
    Tell(LogLevel::kWarning, window,
         absl::StrCat("the eviction policy begins anew, because ", std::string(status.message())));
  }
}

}  // namespace

absl::Status RemoveLeftLearning(const CacheLayout& layout, const std::string& instance) {
  for (const WindowLayout& window : layout.windows()) {
    absl::Status status = SharedMemory::RemoveLeftover(TableName(instance, window.window));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KeptLearning>> KeptLearning::Open(const CacheLayout& layout,
                                                                 std::string instance,
                                                                 BlockManager* core) {
  auto kept = absl::WrapUnique(new KeptLearning(layout, std::move(instance)));
  for (uint32_t w = 0; w < layout.windows().size(); ++w) {
    kept->tables_.emplace_back();
    if (core->restart().Learned(w).empty()) continue;
    const WindowSize window = layout.windows()[w].window;
    absl::StatusOr<KeptTable> table = KeptTable::Create(TableName(kept->instance_, window),
                                                        StampsFingerprint(layout, w, kPrimaryTier));
    if (!table.ok()) return table.status();
    kept->tables_.back().emplace(*std::move(table));
    Restore(*kept->tables_.back(), window, w, *core);
  }
  return kept;
}

void KeptLearning::Keep() {
  for (size_t w = 0; w < tables_.size(); ++w) {
    if (tables_[w].has_value()) {
      tables_[w]->KeepName();
      continue;
    }
    const WindowSize window = layout_.windows()[w].window;
    const absl::Status status = SharedMemory::RemoveLeftover(TableName(instance_, window));
    if (!status.ok()) Tell(LogLevel::kWarning, window, std::string(status.message()));
  }
}

void KeptLearning::Save(const SharedManager& manager) {
  for (uint32_t w = 0; w < tables_.size(); ++w) {
    if (!tables_[w].has_value()) continue;
    const std::vector<std::byte> learned =
        manager.Read([&](const BlockManager& core) { return core.restart().Learned(w); });
    if (tables_[w]->Write(learned)) continue;
    Tell(LogLevel::kError, layout_.windows()[w].window,
         "what the eviction policy learned is too large to be kept");
  }
}

void KeptLearning::Tick(const SharedManager& manager, absl::Time now) {
  if (now < next_save_) return;
  next_save_ = now + kInterval;
  Save(manager);
}

}  // namespace pagoda::server
