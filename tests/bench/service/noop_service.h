#ifndef PAGODA_TESTS_BENCH_SERVICE_NOOP_SERVICE_H_
#define PAGODA_TESTS_BENCH_SERVICE_NOOP_SERVICE_H_

#include <cstdint>

#include "tests/bench/noop.grpc.pb.h"

namespace pagoda::bench {

// The size of the blocks of the service benchmark's daemon.
inline constexpr uint32_t kServiceTokensPerBlock = 16;

// See tests/bench/noop.proto. A result has as many tables and handles as the cache's result. For an
// AllocateBlocks that is the requested number of blocks. For an AppendTokens it is one new block,
// if its tokens begin one. Operations other than these and FreeBlocks get an empty answer.
// Thread-safe.
class NoopService final : public v1::NoopService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const pagoda::v1::ExecuteRequest* request,
                                    pagoda::v1::ExecuteResponse* response) override;
  grpc::ServerBidiReactor<pagoda::v1::SessionRequest, pagoda::v1::SessionResponse>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<pagoda::v1::WatchResponse>* Watch(
      grpc::CallbackServerContext* context, const pagoda::v1::WatchRequest* request) override;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_NOOP_SERVICE_H_
