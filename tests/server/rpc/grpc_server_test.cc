#include "server/rpc/grpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

enum class Unguarded { kRefused, kAllowed };

// Starts a server at the address although another library's recvmsg is bound. gRPC serves nothing
// without a service.
absl::Status StartUnguarded(const std::string& host, Unguarded unguarded) {
  v1::CacheService::CallbackService service;
  return GrpcServer::Start({.tcp = TcpAddress{host, 0},
                            .services = {&service},
                            .header_guard = absl::FailedPreconditionError("recvmsg is another's"),
                            .allow_unguarded = unguarded == Unguarded::kAllowed})
      .status();
}

TEST(GrpcServerTest, WithoutTheHeaderGuardOtherMachinesAreNotServed) {
  const absl::Status refused = StartUnguarded("0.0.0.0", Unguarded::kRefused);
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("other machines can reach 0.0.0.0:0"),
                    HasSubstr("recvmsg is another's"), HasSubstr("server.insecure: true")));
  EXPECT_EQ(StartUnguarded("0.0.0.0", Unguarded::kAllowed), absl::OkStatus());
  EXPECT_EQ(StartUnguarded("127.0.0.1", Unguarded::kRefused), absl::OkStatus());
}

TEST(GrpcServerTest, WithTheHeaderGuardOtherMachinesAreServed) {
  v1::CacheService::CallbackService service;
  const absl::Status started =
      GrpcServer::Start(
          {.tcp = TcpAddress{"0.0.0.0", 0}, .services = {&service}, .header_guard = {}})
          .status();
  EXPECT_EQ(started, absl::OkStatus());
}

}  // namespace
}  // namespace pagoda::server
