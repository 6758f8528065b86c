// A store in this process that a test commands: it misses, fails, holds its answers back.
#ifndef PAGODA_TESTS_MANAGER_EXCHANGE_ORACLE_STORE_H_
#define PAGODA_TESTS_MANAGER_EXCHANGE_ORACLE_STORE_H_

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "pools/store/store.h"

namespace pagoda {

// Answers within the call, or with Hold() when the test says so. Thread-safe.
class OracleStore : public Store {
 public:
  enum class Call : uint8_t { kGet, kPut, kExists };
  // The outcome of a call on a key that would succeed. Empty: all succeed.
  using Judge = std::function<StoreOutcome(Call call, const StoreKey& key)>;

  void SetJudge(Judge judge) {
    absl::MutexLock lock(&mutex_);
    judge_ = std::move(judge);
  }
  // From now on answers wait until Release.
  void Hold() {
    absl::MutexLock lock(&mutex_);
    holds_ = true;
  }
  void Release() {
    {
      absl::MutexLock lock(&mutex_);
      holds_ = false;
    }
    AnswerHeld();
  }
  // Answers the calls that wait now. Later ones wait.
  void AnswerHeld() {
    std::vector<std::function<void()>> held;
    {
      absl::MutexLock lock(&mutex_);
      held.swap(held_);
    }
    for (const std::function<void()>& answer : held) answer();
  }
  size_t held() const {
    absl::MutexLock lock(&mutex_);
    return held_.size();
  }
  void Remove(const std::array<std::byte, 32>& digest) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(values_, [&](const auto& value) { return value.first.second == digest; });
  }
  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return values_.size();
  }
  // Calls of this kind, and the timeout of the last one.
  int calls(Call call) const {
    absl::MutexLock lock(&mutex_);
    return calls_[static_cast<size_t>(call)];
  }
  absl::Duration last_timeout() const {
    absl::MutexLock lock(&mutex_);
    return last_timeout_;
  }

  void Get(std::vector<Read> batch, absl::Duration timeout, Done done) override {
    Answer(Call::kGet, timeout, [this, batch = std::move(batch), done = std::move(done)] {
      std::vector<StoreOutcome> outcomes;
      for (const Read& read : batch) outcomes.push_back(GetOne(read));
      done(outcomes);
    });
  }
  void Put(std::vector<Write> batch, absl::Duration, absl::Duration timeout, Done done) override {
    Answer(Call::kPut, timeout, [this, batch = std::move(batch), done = std::move(done)] {
      std::vector<StoreOutcome> outcomes;
      for (const Write& write : batch) outcomes.push_back(PutOne(write));
      done(outcomes);
    });
  }
  void Exists(std::vector<StoreKey> batch, absl::Duration timeout, Done done) override {
    Answer(Call::kExists, timeout, [this, batch = std::move(batch), done = std::move(done)] {
      std::vector<StoreOutcome> outcomes;
      for (const StoreKey& key : batch) {
        absl::MutexLock lock(&mutex_);
        outcomes.push_back(values_.contains(NameOf(key)) ? Judged(Call::kExists, key)
                                                         : StoreOutcome::kMissing);
      }
      done(outcomes);
    });
  }
  void Stop() override { Release(); }
  StoreStats stats() const override { return {}; }

 private:
  using Name = std::pair<std::array<std::byte, 32>, std::array<std::byte, 32>>;

  static Name NameOf(const StoreKey& key) { return {key.layout, key.digest}; }
  StoreOutcome Judged(Call call, const StoreKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return judge_ ? judge_(call, key) : StoreOutcome::kOk;
  }

  void Answer(Call call, absl::Duration timeout, std::function<void()> answer) {
    {
      absl::MutexLock lock(&mutex_);
      ++calls_[static_cast<size_t>(call)];
      last_timeout_ = timeout;
      if (holds_) return held_.push_back(std::move(answer));
    }
    answer();
  }

  StoreOutcome GetOne(const Read& read) {
    absl::MutexLock lock(&mutex_);
    const auto found = values_.find(NameOf(read.key));
    if (found == values_.end()) return StoreOutcome::kMissing;
    const StoreOutcome outcome = Judged(Call::kGet, read.key);
    size_t at = 0;
    for (const absl::Span<std::byte> piece : read.pieces) {
      for (std::byte& byte : piece) {
        // After any other outcome the memory is unspecified.
        byte = outcome == StoreOutcome::kOk ? found->second[at] : std::byte{0xbb};
        ++at;
      }
    }
    return outcome;
  }

  StoreOutcome PutOne(const Write& write) {
    absl::MutexLock lock(&mutex_);
    const StoreOutcome outcome = Judged(Call::kPut, write.key);
    if (outcome != StoreOutcome::kOk) return outcome;
    if (write.pieces.empty()) {  // It is withdrawn.
      values_.erase(NameOf(write.key));
      return outcome;
    }
    std::vector<std::byte>& value = values_[NameOf(write.key)];
    value.clear();
    for (const absl::Span<const std::byte> piece : write.pieces) {
      value.insert(value.end(), piece.begin(), piece.end());
    }
    return outcome;
  }

  mutable absl::Mutex mutex_;
  Judge judge_ ABSL_GUARDED_BY(mutex_);
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> held_ ABSL_GUARDED_BY(mutex_);
  std::map<Name, std::vector<std::byte>> values_ ABSL_GUARDED_BY(mutex_);
  std::array<int, 3> calls_ ABSL_GUARDED_BY(mutex_) = {};
  absl::Duration last_timeout_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_MANAGER_EXCHANGE_ORACLE_STORE_H_
