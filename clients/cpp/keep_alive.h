#ifndef PAGODA_CLIENTS_CPP_KEEP_ALIVE_H_
#define PAGODA_CLIENTS_CPP_KEEP_ALIVE_H_

#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda {

// A thread that keeps a session alive: it renews the lease three times per lease duration, until
// this object is destroyed or the session is over. Each keep-alive call waits for the connection.
// It therefore also restores a connection that broke while it was otherwise unused. Thread-safe.
class KeepAlive {
 public:
  // `on_session_over` may be empty. Otherwise it is called at most once, on this object's thread,
  // with the error that ended the session. It must not destroy this object.
  KeepAlive(const std::shared_ptr<grpc::Channel>& channel, const v1::SessionRef& session,
            absl::Duration lease, std::function<void(const absl::Status&)> on_session_over);
  // Cancels a call under way instead of waiting for its answer, and joins the thread.
  ~KeepAlive();
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

  // OK, or why its thread is missing (Thread::Start): the lease is not renewed then.
  const absl::Status& started() const { return started_; }

  // Renews the lease once more, now. Errors: UNKNOWN_SESSION or STALE_SESSION if the session is
  // over; UNAVAILABLE or DEADLINE_EXCEEDED if no answer comes within `timeout`.
  absl::Status Renew(absl::Duration timeout) const;

  // Why the session is over: UNKNOWN_SESSION or STALE_SESSION. OK until a keep-alive call learns
  // that the session is over.
  absl::Status session_error() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns false when this object is being destroyed.
  bool Pause(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Beat() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Call(grpc::ClientContext& context, absl::Duration timeout) const;

  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const v1::SessionRef session_;
  const absl::Duration lease_;
  const std::function<void(const absl::Status&)> on_session_over_;

  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* under_way_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status session_error_ ABSL_GUARDED_BY(mutex_);
  absl::Status started_;
  Thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_KEEP_ALIVE_H_
