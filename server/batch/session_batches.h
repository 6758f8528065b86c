// The batches of one session, from bytes to bytes, whatever carries the bytes.
#ifndef PAGODA_SERVER_BATCH_SESSION_BATCHES_H_
#define PAGODA_SERVER_BATCH_SESSION_BATCHES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "google/protobuf/arena.h"
#include "pagoda/v1/cache.pb.h"
#include "server/batch/batch_run.h"
#include "server/batch/session_owners.h"
#include "server/callers/identity.h"
#include "server/directory/cache_directory.h"
#include "wire/bytes/message_bytes.h"

namespace pagoda::server {

// Runs one batch at a time: reads its message, checks it, finds the cache and runs it. A Session
// stream and a pair of rings use this. Thread-compatible, except for Cancel, which can be called at
// any time.
class SessionBatches {
 public:
  // Serves the session that the first message names. From that message on it is attached: its lease
  // does not run until Detach. `caches`, `owners` and everything in `context` must outlive this.
  // `context` lacks the manager: each batch finds the manager of its session's cache, so that an
  // idle session does not keep a cache alive.
  SessionBatches(const BatchRun::Context& context, const CacheDirectory* caches,
                 SessionOwners* owners, const Identity& caller)
      : context_(context), caches_(caches), owners_(owners), caller_(caller) {}
  // Serves `session`, which is not attached. Messages need not name it.
  SessionBatches(const BatchRun::Context& context, const CacheDirectory* caches, SessionRef session)
      : context_(context), caches_(caches), session_(session) {}

  // Reads the message into its first argument. If its batch has a retry_id, sets the second one to
  // the BatchFingerprint.
  using Parse = absl::FunctionRef<absl::Status(v1::SessionRequest*, uint64_t*)>;
  // Runs the next batch. `bytes`: the size of its message. `done` is called once, on this thread
  // before Run returns or later on another, with the answer, or with the error for which the batch
  // as a whole was refused. Clear can be called from then on, and then Run. Call this when the
  // tenant's queue gives the turn.
  // Errors: MESSAGE_TOO_LARGE, INVALID_ARGUMENT and FIELD_NOT_SERVED (the message), UNKNOWN_SESSION
  // and STALE_SESSION; those of BatchRun::Done.
  void Run(size_t bytes, Parse parse, BatchRun::Done done) ABSL_LOCKS_EXCLUDED(mutex_);
  // The two halves of Run, which can be on different threads: Read, then Start if it was OK.
  absl::Status Read(size_t bytes, Parse parse);
  void Start(BatchRun::Done done) ABSL_LOCKS_EXCLUDED(mutex_);
  // The number of operations in the batch that was read.
  int num_operations() const { return request_->batch().operations_size(); }
  uint64_t batch_id() const { return batch_id_; }
  // Frees what the answered batch used.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);

  // No client reads the answers any more: ends the wait of the batch that runs, and of later ones.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);
  // The session's lease runs from now on. REQUIRES: no further call of Run.
  void Detach();

 private:
  // Checks the session that the message names, and attaches it if it is the first.
  absl::StatusOr<CachePtr> FindCache();
  absl::StatusOr<CachePtr> Attach(SessionRef named);

  const BatchRun::Context context_;
  const CacheDirectory* const caches_;
  SessionOwners* const owners_ = nullptr;  // Null: the session is known and not attached.
  const Identity caller_;                  // With owners_.

  // Holds the current message, until its batch runs.
  google::protobuf::Arena memory_{MessageArenaOptions()};
  v1::SessionRequest* request_ = nullptr;
  uint64_t fingerprint_ = 0;  // The batch's, if it has a retry_id.
  uint64_t batch_id_ = 0;     // From Start until Clear.
  CachePtr cache_;            // The batch's cache, from Read until Start.
  std::optional<SessionRef> session_;

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<BatchRun> batch_ ABSL_GUARDED_BY(mutex_);  // Until Clear.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_SESSION_BATCHES_H_
