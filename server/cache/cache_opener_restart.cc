// The file from which the next run learns which caches clients have opened.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/cache/cache_opener.h"
#include "server/log/log.h"

namespace pagoda::server {

BroughtCaches CacheOpener::ReadRemembered() const {
  absl::StatusOr<BroughtCaches> found = file_->Read();
  if (found.ok()) return *std::move(found);
  Log(LogLevel::kError, absl::StrCat("cannot reopen the caches of the last run: ",
                                     std::string(found.status().message())));
  return {};
}

void CacheOpener::OpenRemembered(const BroughtCaches& remembered) {
  next_number_ = std::max(next_number_, remembered.next_number);
  for (const BroughtCache& brought : remembered.caches) {
    next_number_ = std::max(next_number_, brought.number + 1);
    const absl::Status status = Reopen(brought);
    if (!status.ok()) {
      Log(LogLevel::kError, absl::StrCat("cannot reopen the cache ", brought.call.name,
                                         " of the last run: ", std::string(status.message())));
    }
  }
}

void CacheOpener::Remember() {
  if (!file_.has_value()) return;
  BroughtCaches all{.next_number = next_number_, .caches = {}};
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, brought] : brought_) all.caches.push_back(brought.as_opened);
  }
  if (const absl::Status status = file_->Write(all); !status.ok()) {
    Log(LogLevel::kError, absl::StrCat("a restart will not find the caches that clients opened: ",
                                       std::string(status.message())));
  }
}

}  // namespace pagoda::server
