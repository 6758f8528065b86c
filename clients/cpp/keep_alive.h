#ifndef PAGODA_CLIENTS_CPP_KEEP_ALIVE_H_
#define PAGODA_CLIENTS_CPP_KEEP_ALIVE_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda {

// A session's signs of life: a thread that renews the lease three times in its length, until this
// is destroyed or the session is over. A sign waits for the connection, and so mends one that broke
// while nobody else used it. Thread-safe.
class KeepAlive {
 public:
  // `on_session_over` may be empty. Else it is called at most once, on a thread of this, with the
  // reason why there is no session any more; it must not destroy this.
  KeepAlive(const std::shared_ptr<grpc::Channel>& channel, const v1::SessionRef& session,
            absl::Duration lease, std::function<void(const absl::Status&)> on_session_over);
  // Returns when no sign will be sent any more; does not wait for the answer to one.
  ~KeepAlive();
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

  // Why the session is over: UNKNOWN_SESSION or STALE_SESSION. OK as long as no sign was refused.
  absl::Status session_error() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // False where this is being destroyed.
  bool Pause(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const v1::SessionRef session_;
  const absl::Duration lease_;
  const std::function<void(const absl::Status&)> on_session_over_;

  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* under_way_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status session_error_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_KEEP_ALIVE_H_
