#include "server/http/shared_answers.h"

#include <algorithm>

#include "manager/shared_manager.h"

namespace pagoda::server {

std::shared_ptr<SharedAnswers::Answer> SharedAnswers::Find(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  if (entries_.size() == kMostAnswers && !entries_.contains(key)) {
    entries_.erase(std::min_element(
        entries_.begin(), entries_.end(),
        [](const auto& a, const auto& b) { return a.second.requested < b.second.requested; }));
  }
  Entry& entry = entries_[key];
  if (entry.answer == nullptr) entry.answer = std::make_shared<Answer>();
  entry.requested = SharedManager::Now();
  return entry.answer;
}

absl::StatusOr<std::string> SharedAnswers::Get(
    const std::string& key, absl::FunctionRef<absl::StatusOr<std::string>()> make) {
  const std::shared_ptr<Answer> answer = Find(key);
  absl::MutexLock lock(&answer->mutex);
  if (SharedManager::Now() - answer->made < interval_) return answer->text;
  absl::StatusOr<std::string> made = make();
  if (made.ok()) {
    answer->text = *made;
    answer->made = SharedManager::Now();
  } else {
    absl::MutexLock entries_lock(&mutex_);
    // Meanwhile the entry can have been dropped, and another one have the name.
    const auto entry = entries_.find(key);
    if (entry != entries_.end() && entry->second.answer == answer) entries_.erase(entry);
  }
  return made;
}

}  // namespace pagoda::server
