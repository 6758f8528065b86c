#include "server/batch/answer_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda::server {

absl::StatusOr<AnswerMemory::Begun> AnswerMemory::Begin(SessionRef session, uint64_t retry_id,
                                                        uint64_t fingerprint, BatchAnswer* answer,
                                                        WhenAnswered when_answered) {
  absl::MutexLock lock(&mutex_);
  Answers& answers = sessions_[session];
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
  if (entry.answer == nullptr) {
    entry.waiters.push_back(std::move(when_answered));
    return Begun::kWaits;
  }
  *answer = entry.answer;
  return Begun::kAnswered;
}

void AnswerMemory::End(SessionRef session, uint64_t retry_id,
                       const absl::StatusOr<BatchAnswer>& outcome) {
  std::vector<WhenAnswered> waiters;
  {
    absl::MutexLock lock(&mutex_);
    const auto of_session = sessions_.find(session);
    PAGODA_CHECK(of_session != sessions_.end(), "a batch ends once");
    Answers& answers = of_session->second;
    const auto it = answers.by_id.find(retry_id);
    PAGODA_CHECK(it != answers.by_id.end() && it->second.answer == nullptr, "a batch ends once");
    waiters = std::exchange(it->second.waiters, {});
    const size_t size = outcome.ok() ? (*outcome)->size() : 0;
    if (outcome.ok() && size <= std::min(kMostBytes, most_bytes_)) {
      MakeRoom(answers, size);
      Resize(of_session->first, answers, answers.bytes + size);
      it->second.answer = *outcome;
      answers.order.push_back(retry_id);
    } else {
      answers.by_id.erase(it);
      // Batches with a wrong token leave nothing behind.
      if (answers.by_id.empty()) sessions_.erase(of_session);
    }
  }
  for (const WhenAnswered& waiter : waiters) waiter(outcome);
}

void AnswerMemory::MakeRoom(Answers& answers, size_t size) {
  const SessionRef session = answers.session;
  while (!answers.order.empty() &&
         (answers.order.size() == kMostAnswers || answers.bytes + size > kMostBytes)) {
    ForgetOldest(session, answers);
  }
  // Evict from the sessions with the most bytes: a session that keeps little loses nothing.
  while (bytes_ + size > most_bytes_ && bytes_ > 0) {
    const SessionRef largest = by_bytes_.rbegin()->second;
    ForgetOldest(largest, sessions_.at(largest));
  }
}

void AnswerMemory::Resize(SessionRef session, Answers& answers, size_t bytes) {
  if (answers.bytes != 0) by_bytes_.erase({answers.bytes, session});
  bytes_ = bytes_ - answers.bytes + bytes;
  answers.bytes = bytes;
  if (bytes != 0) by_bytes_.emplace(bytes, session);
}

void AnswerMemory::ForgetOldest(SessionRef session, Answers& answers) {
  const auto it = answers.by_id.find(answers.order.front());
  Resize(session, answers, answers.bytes - it->second.answer->size());
  answers.by_id.erase(it);
  answers.order.pop_front();
}

void AnswerMemory::Sweep(const std::function<bool(SessionRef)>& lives) {
  std::vector<SessionRef> over;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [session, answers] : sessions_) over.push_back(session);
  }
  // Asks without the lock, because every batch with a retry_id takes it.
  std::erase_if(over, lives);
  absl::MutexLock lock(&mutex_);
  for (const SessionRef session : over) {
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) continue;
    while (!it->second.order.empty()) ForgetOldest(session, it->second);
    if (it->second.by_id.empty()) sessions_.erase(it);
  }
}

size_t AnswerMemory::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace pagoda::server
