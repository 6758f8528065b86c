#ifndef PAGODA_TESTS_BENCH_NOOP_SERVICE_H_
#define PAGODA_TESTS_BENCH_NOOP_SERVICE_H_

#include <cstdint>

#include "tests/bench/noop.grpc.pb.h"

namespace pagoda::bench {

// What the service benchmark's daemon caches.
inline constexpr uint32_t kServiceTokensPerBlock = 16;

// See noop.proto. A result has as many tables and handles as the cache's would: an AllocateBlocks
// the count that it asks for, an AppendTokens a new block where its tokens begin one. Other
// operations than these and FreeBlocks are answered with nothing. Thread-safe.
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

#endif  // PAGODA_TESTS_BENCH_NOOP_SERVICE_H_
