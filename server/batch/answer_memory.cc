#include "server/batch/answer_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda::server {

absl::StatusOr<AnswerMemory::Begun> AnswerMemory::Begin(
    SessionRef session, uint64_t retry_id, uint64_t fingerprint, v1::BatchResult* out,
    std::function<void(const absl::Status&)> when_answered) {
  absl::MutexLock lock(&mutex_);
  Answers& answers = sessions_[session.id];
  answers.session = session;
  const auto [it, is_new] = answers.by_id.try_emplace(retry_id);
  Entry& entry = it->second;
  if (is_new) {
    entry.fingerprint = fingerprint;
    return Begun::kRun;
  }
  if (entry.fingerprint != fingerprint) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("another batch of the session had retry_id ", retry_id));
  }
  if (!entry.answered) {
    entry.waiters.push_back({out, std::move(when_answered)});
    return Begun::kWaits;
  }
  PAGODA_CHECK(out->ParseFromString(entry.answer), "a stored answer can be parsed");
  return Begun::kAnswered;
}

void AnswerMemory::End(SessionRef session, uint64_t retry_id, const absl::Status& status,
                       const v1::BatchResult& answer) {
  std::vector<Waiter> waiters;
  {
    absl::MutexLock lock(&mutex_);
    Answers& answers = sessions_.at(session.id);
    const auto it = answers.by_id.find(retry_id);
    PAGODA_CHECK(it != answers.by_id.end() && !it->second.answered, "a batch ends once");
    waiters = std::move(it->second.waiters);
    std::string bytes;
    if (status.ok()) bytes = answer.SerializeAsString();
    while (!answers.order.empty() &&
           (answers.order.size() == kMostAnswers || answers.bytes + bytes.size() > kMostBytes)) {
      ForgetOldest(answers);
    }
    // Evict from the sessions with the most bytes: a session that keeps little loses nothing.
    while (bytes_ + bytes.size() > most_bytes_ && bytes_ > 0) ForgetOldest(Largest());
    if (!status.ok() || bytes.size() > std::min(kMostBytes, most_bytes_)) {
      answers.by_id.erase(it);
    } else {
      answers.bytes += bytes.size();
      bytes_ += bytes.size();
      it->second.answered = true;
      it->second.waiters = {};
      it->second.answer = std::move(bytes);
      answers.order.push_back(retry_id);
    }
  }
  for (const Waiter& waiter : waiters) {
    *waiter.out = answer;
    waiter.when_answered(status);
  }
}

AnswerMemory::Answers& AnswerMemory::Largest() {
  const auto less = [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; };
  return std::max_element(sessions_.begin(), sessions_.end(), less)->second;
}

void AnswerMemory::ForgetOldest(Answers& answers) {
  const auto it = answers.by_id.find(answers.order.front());
  answers.bytes -= it->second.answer.size();
  bytes_ -= it->second.answer.size();
  answers.by_id.erase(it);
  answers.order.pop_front();
}

void AnswerMemory::Sweep(const std::function<bool(SessionRef)>& lives) {
  std::vector<SessionRef> over;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, answers] : sessions_) over.push_back(answers.session);
  }
  // Asks without the lock, because every batch with a retry_id takes it.
  std::erase_if(over, lives);
  absl::MutexLock lock(&mutex_);
  for (const SessionRef session : over) {
    const auto it = sessions_.find(session.id);
    if (it == sessions_.end()) continue;
    while (!it->second.order.empty()) ForgetOldest(it->second);
    if (it->second.by_id.empty()) sessions_.erase(it);
  }
}

size_t AnswerMemory::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace pagoda::server
