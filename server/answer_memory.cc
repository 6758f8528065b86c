#include "server/answer_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "pools/check.h"
#include "pools/error.h"

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
  PAGODA_CHECK(out->ParseFromString(entry.answer), "an answer is read as it was written");
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
           (answers.order.size() == kMostAnswers || answers.bytes + bytes.size() > kMostBytes ||
            bytes_ + bytes.size() > most_bytes_)) {
      ForgetOldest(answers);
    }
    if (!status.ok() || bytes.size() > kMostBytes || bytes_ + bytes.size() > most_bytes_) {
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

void AnswerMemory::ForgetOldest(Answers& answers) {
  const auto it = answers.by_id.find(answers.order.front());
  answers.bytes -= it->second.answer.size();
  bytes_ -= it->second.answer.size();
  answers.by_id.erase(it);
  answers.order.pop_front();
}

void AnswerMemory::Sweep(const std::function<bool(SessionRef)>& lives) {
  absl::MutexLock lock(&mutex_);
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const auto session = it++;
    Answers& answers = session->second;
    if (lives(answers.session)) continue;
    while (!answers.order.empty()) ForgetOldest(answers);
    if (answers.by_id.empty()) sessions_.erase(session);
  }
}

size_t AnswerMemory::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace pagoda::server
