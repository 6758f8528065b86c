// The answers of batches that a client may send again.
#ifndef PAGODA_SERVER_BATCH_ANSWER_MEMORY_H_
#define PAGODA_SERVER_BATCH_ANSWER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "manager/words/ids.h"
#include "wire/bytes/batch_bytes.h"

namespace pagoda::server {

// A client that lost an answer sends the batch again under the same retry_id (see v1::Batch). The
// first run's answer is then found here, so nothing runs twice. Each session keeps its last
// kMostAnswers answers, as far as they fit in kMostBytes. All sessions together keep at most
// `most_bytes`; beyond it, the session with the most bytes loses its oldest answers. Thread-safe.
class AnswerMemory {
 public:
  static constexpr size_t kMostAnswers = 256;
  static constexpr size_t kMostBytes = size_t{1} << 20;

  explicit AnswerMemory(size_t most_bytes = size_t{256} << 20) : most_bytes_(most_bytes) {}
  AnswerMemory(const AnswerMemory&) = delete;
  AnswerMemory& operator=(const AnswerMemory&) = delete;

  enum class Begun {
    kRun,       // New: the caller runs it, and then calls End.
    kAnswered,  // `answer` is its answer.
    kWaits,     // The first one still runs. `when_answered` is called once.
  };
  // Called once, with the answer of the first run, or with the error for which it was refused.
  using WhenAnswered = std::function<void(const absl::StatusOr<BatchAnswer>&)>;
  // Call this when a batch begins. Nothing here checks the session: a wrong token finds no answer
  // of the session's, because only batches with the same token share answers. `fingerprint`: see
  // BatchFingerprint. Errors: INVALID_ARGUMENT (another batch had this retry_id).
  absl::StatusOr<Begun> Begin(SessionRef session, uint64_t retry_id, uint64_t fingerprint,
                              BatchAnswer* answer, WhenAnswered when_answered)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Call this when a batch with kRun has ended. A batch that failed as a whole had no effect. Its
  // answer is not kept: sent again, it runs.
  void End(SessionRef session, uint64_t retry_id, const absl::StatusOr<BatchAnswer>& outcome)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets the answers of the sessions for which `lives` is false. Running batches are kept.
  void Sweep(const std::function<bool(SessionRef)>& lives) ABSL_LOCKS_EXCLUDED(mutex_);

  // Bytes of the kept answers.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    uint64_t fingerprint = 0;
    BatchAnswer answer;                 // Null while the batch runs.
    std::vector<WhenAnswered> waiters;  // Until the answer is there.
  };
  struct Answers {
    SessionRef session;
    absl::flat_hash_map<uint64_t, Entry> by_id;
    std::deque<uint64_t> order;  // The answered batches, oldest first.
    size_t bytes = 0;
  };

  // Forgets answers until one of `size` bytes fits.
  void MakeRoom(Answers& answers, size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Resize(SessionRef session, Answers& answers, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldest(SessionRef session, Answers& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_bytes_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<SessionRef, Answers> sessions_ ABSL_GUARDED_BY(mutex_);
  // The sessions that have answers, by the bytes of these.
  absl::btree_set<std::pair<size_t, SessionRef>> by_bytes_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_ANSWER_MEMORY_H_
