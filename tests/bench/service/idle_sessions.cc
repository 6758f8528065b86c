#include "tests/bench/service/idle_sessions.h"

#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/check.h"

namespace pagoda::bench {
namespace {

constexpr int kOperations = 256;

// A read is always outstanding, so that gRPC's threads answer the server's pings. No thread watches
// the connection of a blocking stream that is not in use.
class IdleStream final : public SessionReactor {
 public:
  // Returns when the batch has been answered.
  IdleStream(const std::string& endpoint, Target target)
      : connection_(endpoint, target), session_(connection_.OpenSession()) {
    *request_.mutable_session() = session_;
    for (int i = 0; i < kOperations; ++i) {
      request_.mutable_batch()->add_operations()->mutable_match_prefix()->add_tokens(1);
    }
    connection_.SessionAsync(&context_, this);
    AddHold();  // For the destructor's part.
    StartRead(&response_);
    StartWrite(&request_);
    StartCall();
    answered_.WaitForNotification();
  }
  ~IdleStream() override {
    StartWritesDone();
    RemoveHold();
    done_.WaitForNotification();
    connection_.CloseSession(session_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    PAGODA_CHECK(!answered_.HasBeenNotified() && response_.result().results_size() == kOperations,
                 "the batch is answered once");
    answered_.Notify();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    RequireOk(status, "an idle stream lives until it is closed");
    done_.Notify();
  }

 private:
  Connection connection_;
  const pagoda::v1::SessionRef session_;
  grpc::ClientContext context_;
  pagoda::v1::SessionRequest request_;
  pagoda::v1::SessionResponse response_;
  absl::Notification answered_, done_;
};

}  // namespace

int HoldIdleSessions(const std::string& endpoint, Target target, int count) {
  std::vector<std::unique_ptr<IdleStream>> sessions;
  for (int i = 0; i < count; ++i) {
    sessions.push_back(std::make_unique<IdleStream>(endpoint, target));
  }
  std::cout << "ready" << std::endl;
  WaitUntilStdinCloses();
  return EXIT_SUCCESS;
}

}  // namespace pagoda::bench
