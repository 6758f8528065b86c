#include "server/cache/disk_tier.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/counted.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

constexpr mode_t kOwnerOnly = 0700;  // The files hold KV of every tenant's prompts.
constexpr absl::Duration kLineInterval = absl::Seconds(1);
// The end of SlabFile::Open's message about a foreign file.
constexpr absl::string_view kForeignEnd = "; replace it, or name another file";

std::string NameOf(const Config::Cache::TierConfig& config) {
  return absl::StrCat("tier '", config.name, "'");
}

absl::Status FolderError(const Config::Cache::TierConfig& config, const char* what, int error) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("cache.tiers: ", NameOf(config), ": the folder ", config.path, what));
}

absl::Status MakeFolder(const Config::Cache::TierConfig& config) {
  const std::filesystem::path folder(config.path);
  std::error_code error;
  if (const auto above = folder.parent_path(); !above.empty()) {
    std::filesystem::create_directories(above, error);
    if (error) return FolderError(config, " cannot be made", error.value());
  }
  if (mkdir(config.path.c_str(), kOwnerOnly) != 0 && errno != EEXIST) {
    return FolderError(config, " cannot be made", errno);
  }
  if (!std::filesystem::is_directory(folder, error)) {
    return FolderError(config, " is a file", ENOTDIR);
  }
  if (access(config.path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return FolderError(config, " cannot be read and written", errno);
  }
  return absl::OkStatus();
}

// Adds the tier's name and, for a foreign file, the remedy.
absl::Status Explain(const absl::Status& status, const Config::Cache::TierConfig& config) {
  absl::string_view what = status.message();
  std::string remedy;
  if (absl::ConsumeSuffix(&what, kForeignEnd)) {
    remedy =
        "; name another path, or say on_foreign: replace for one start, which drops the file's "
        "content";
  }
  const std::string text = absl::StrCat("cache.tiers: ", NameOf(config), ": ", what, remedy);
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::Status(status.code(), text) : MakeError(reason, text);
}

}  // namespace

std::string_view SlabModeName(SlabMode mode) {
  switch (mode) {
    case SlabMode::kReadWrite:
      return "readwrite";
    case SlabMode::kReadOnly:
      return "readonly";
    case SlabMode::kOff:
      return "off";
  }
  return "unknown";
}

std::string DiskTier::Name() const { return NameOf(options_.config); }

std::string DiskTier::WindowAt(size_t window_index) const {
  return WindowName(layout_.windows()[window_index].window);
}

// ---- At the start ----

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::Open(const CacheLayout& layout, Options options,
                                                         Supervisor* supervisor) {
  const Config::Cache::TierConfig& config = options.config;
  supervisor->Status(absl::StrCat("starting: opening the files of ", NameOf(config)));
  if (absl::Status status = MakeFolder(config); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<DiskFiles>> files = DiskFiles::Open(
      layout,
      {.directory = config.path,
       .num_slots = options.num_slots,
       .on_foreign = config.on_foreign,
       .engine = config.io,
       .caching = config.direct ? SlabFile::Caching::kDirect : SlabFile::Caching::kBuffered});
  if (!files.ok()) return Explain(files.status(), config);
  auto tier = absl::WrapUnique(new DiskTier(std::move(options), layout, *std::move(files)));
  tier->LogFiles();
  tier->Recover(supervisor);
  return tier;
}

void DiskTier::LogFiles() const {
  std::vector<std::string> files;
  for (uint32_t w = 0; w < files_->num_windows(); ++w) {
    const SlabFile* const file = files_->Find(w);
    if (file == nullptr) continue;
    const SlabStats stats = file->stats();
    if (stats.found_empty) {
      Log(LogLevel::kWarning,
          absl::StrCat(Name(), ": the file of window ", WindowAt(w),
                       " was empty; it begins as a new one. Another program has emptied it, or its "
                       "first start did not end"));
    }
    files.push_back(absl::StrCat("window ", WindowAt(w), ": ", Counted(file->num_slots(), "block"),
                                 " by ", stats.engine, stats.direct ? " with" : " without",
                                 " O_DIRECT"));
  }
  Log(LogLevel::kInfo, absl::StrCat(Name(), " is on disk in ", options_.config.path, ": ",
                                    absl::StrJoin(files, "; ")));
}

void DiskTier::Recover(Supervisor* supervisor) {
  uint64_t last_percent = 0;
  recovery_ =
      RecoverDisk(*files_, {.tier = options_.tier,
                            .accepts = options_.accepts,
                            .progress = [&](uint64_t scanned, uint64_t total) {
                              const uint64_t percent = scanned * 100 / std::max<uint64_t>(total, 1);
                              if (std::exchange(last_percent, percent) == percent) return;
                              supervisor->Status(
                                  absl::StrCat("starting: scanning ", Name(), ": ", percent, " %"));
                            }});
  const bool damage = HasDamage(recovery_.report);
  Log(damage ? LogLevel::kWarning : LogLevel::kInfo,
      absl::StrCat(Name(), ": ", Describe(recovery_.report),
                   damage ? "; damaged blocks are lost: look for errors of the disk, and for "
                            "another program that writes the files"
                          : ""));
}

void DiskTier::LogRestored(const absl::StatusOr<uint64_t>& restored) const {
  if (restored.ok()) {
    Log(LogLevel::kInfo, absl::StrCat(Name(), ": ", Counted(*restored, "block"),
                                      *restored == 1 ? " is" : " are", " cached again"));
  } else {
    Log(LogLevel::kError,
        absl::StrCat(Name(), " begins empty, because ", std::string(restored.status().message())));
  }
}

absl::Status DiskTier::Start(PoolSet* pools, SharedManager* manager) {
  PAGODA_CHECK(carrier_ == nullptr, "a tier on disk is started once");
  manager_ = manager;
  modes_.assign(files_->num_windows(), SlabMode::kReadWrite);
  carrier_ = std::make_unique<DiskCarrier>(
      pools, std::move(files_), std::move(recovery_.ledgers), DiskCarrier::Options(),
      [this](Lane lane, Ticket ticket, const absl::Status& status) {
        OnDone(lane, ticket, status);
      });
  absl::Status started = carrier_->started();
  if (!started.ok()) return started;
  started = drainer_.Start("pagoda-drainer", [this] {
    finish_.WaitForNotification();
    if (is_finishing_) drain_status_ = carrier_->WaitUntilIdle();
    drained_.Notify();
  });
  if (!started.ok()) return started;
  manager_->SetCarrier({Lane::kFetch, Lane::kBackup}, carrier_.get());
  return absl::OkStatus();
}

// ---- While it is served ----

void DiskTier::OnDone(Lane lane, Ticket ticket, const absl::Status& status) {
  if (!status.ok()) LogFailure(lane, status);
  manager_->Complete(lane, ticket, status);
}

void DiskTier::LogFailure(Lane lane, const absl::Status& status) {
  const std::optional<DiskError> error = DiskErrorOf(status);
  uint64_t left_out = 0;
  switch (error.value_or(DiskError::kIo)) {
    case DiskError::kCancelled:
    case DiskError::kRefused:   // Watch logs why.
    case DiskError::kOrphaned:  // The parent's failure is logged.
      return;
    case DiskError::kTooLarge: {
      const absl::MutexLock lock(&mutex_);
      if (std::exchange(told_too_large_, true)) return;
      break;
    }
    case DiskError::kIo:
    case DiskError::kNoSpace:
    case DiskError::kBadBlock:
    case DiskError::kInvalid: {
      const absl::MutexLock lock(&mutex_);
      const absl::Time now = absl::Now();
      if (now < next_line_) {
        ++left_out_;
        return;
      }
      next_line_ = now + kLineInterval;
      left_out = std::exchange(left_out_, 0);
      break;
    }
  }
  const bool too_large = error == DiskError::kTooLarge;
  Log(too_large ? LogLevel::kWarning : LogLevel::kError,
      absl::StrCat(
          Name(), ": ", lane == Lane::kFetch ? "a read" : "a write",
          " failed: ", std::string(status.message()),
          too_large ? "; the tier does not store such blocks; this is logged once" : "",
          left_out > 0 ? absl::StrCat("; earlier failures that were not logged: ", left_out) : ""));
}

void DiskTier::Watch() {
  const absl::Time now = absl::Now();
  if (carrier_ == nullptr || now < next_look_) return;
  next_look_ = now + kLookInterval;
  // The kernel keeps an unlinked file without an error, and its blocks would be lost at the end.
  carrier_->CheckFiles();
  const DiskStats stats = carrier_->stats();
  for (size_t w = 0; w < stats.windows.size(); ++w) {
    const SlabStats& file = stats.windows[w].file;
    if (file.mode == modes_[w]) continue;
    modes_[w] = file.mode;
    Log(LogLevel::kError, absl::StrCat(Name(), ": the file of window ", WindowAt(w), " is ",
                                       file.mode == SlabMode::kOff ? "off" : "read-only",
                                       " until the next start: ", file.mode_reason));
  }
}

DiskNumbers DiskTier::numbers() const {
  PAGODA_CHECK(carrier_ != nullptr, "a tier on disk has numbers once it is started");
  return {.tier = options_.config.name,
          .path = options_.config.path,
          .write_bytes_per_second = options_.config.write_bytes_per_second,
          .stats = carrier_->stats(),
          .damaged_slots = recovery_.report.damaged_slots};
}

// ---- At the end ----

void DiskTier::Finish(absl::Time end) {
  if (carrier_ == nullptr || stopped_ || finish_.HasBeenNotified()) return;
  is_finishing_ = true;
  finish_.Notify();
  const bool in_time = drained_.WaitForNotificationWithDeadline(end);
  if (!in_time) {
    size_t waiting = 0;
    for (const DiskStats::Window& window : carrier_->stats().windows) {
      waiting += window.queued_backups + window.queued_fetches + window.running;
    }
    Log(LogLevel::kWarning,
        absl::StrCat(Name(), ": the time for the last writes is over; orders cut: ", waiting));
    Stop();
  }
  drainer_.Join();
  if (in_time && !drain_status_.ok()) {
    Log(LogLevel::kError, absl::StrCat(Name(), ": the last writes may be lost: ",
                                       std::string(drain_status_.message())));
  }
}

void DiskTier::Stop() {
  if (carrier_ == nullptr || std::exchange(stopped_, true)) return;
  // First: leases can still end, and the orders that follow must not reach a stopped carrier.
  manager_->SetCarrier({Lane::kFetch, Lane::kBackup}, nullptr);
  carrier_->Stop();
}

DiskTier::~DiskTier() {
  Stop();
  if (!finish_.HasBeenNotified()) finish_.Notify();
}

}  // namespace pagoda::server
