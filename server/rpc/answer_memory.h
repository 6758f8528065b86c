// What batches that may be sent again were answered.
#ifndef PAGODA_SERVER_RPC_ANSWER_MEMORY_H_
#define PAGODA_SERVER_RPC_ANSWER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "manager/ids.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda::server {

// A client whose answer was lost on its way sends the batch again under the same retry_id (see
// v1::Batch). Here the first one's answer is found, so that nothing is run twice. Of each session
// the last kMostAnswers answers are kept, and of these as many as fit kMostBytes; over all sessions
// at most `most_bytes`, for which the sessions with most give up theirs. Thread-safe.
class AnswerMemory {
 public:
  static constexpr size_t kMostAnswers = 256;
  static constexpr size_t kMostBytes = size_t{1} << 20;

  explicit AnswerMemory(size_t most_bytes = size_t{256} << 20) : most_bytes_(most_bytes) {}
  AnswerMemory(const AnswerMemory&) = delete;
  AnswerMemory& operator=(const AnswerMemory&) = delete;

  enum class Begun {
    kRun,       // It is new: the caller runs it, and calls End.
    kAnswered,  // `out` is its answer.
    kWaits,     // The first one still runs: `when_answered` will be called once, `out` set by then.
  };
  // A batch begins. REQUIRES: `out` lives until `when_answered` was called; `fingerprint` depends
  // on what the batch asks for. Errors: INVALID_ARGUMENT (another batch had this retry_id).
  absl::StatusOr<Begun> Begin(SessionRef session, uint64_t retry_id, uint64_t fingerprint,
                              v1::BatchResult* out,
                              std::function<void(const absl::Status&)> when_answered)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A batch that Begin told to run is over. What failed as a whole did nothing and is not kept:
  // sent again it runs.
  void End(SessionRef session, uint64_t retry_id, const absl::Status& status,
           const v1::BatchResult& answer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets the sessions for which `lives` is false. Batches that run are not forgotten.
  void Sweep(const std::function<bool(SessionRef)>& lives) ABSL_LOCKS_EXCLUDED(mutex_);

  // Bytes of the answers that are kept.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    v1::BatchResult* out;
    std::function<void(const absl::Status&)> when_answered;
  };
  struct Entry {
    uint64_t fingerprint = 0;
    bool answered = false;
    std::string answer;           // Serialised.
    std::vector<Waiter> waiters;  // Until it is answered.
  };
  struct Answers {
    SessionRef session;
    absl::flat_hash_map<uint64_t, Entry> by_id;
    std::deque<uint64_t> order;  // The answered ones, oldest first.
    size_t bytes = 0;
  };

  // Whose answers take most. REQUIRES: there is a session. Cost: O(sessions).
  Answers& Largest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldest(Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_bytes_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<SessionId, Answers> sessions_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_ANSWER_MEMORY_H_
