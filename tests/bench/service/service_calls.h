// The calls that the service benchmark makes, to the cache and to its yardstick.
#ifndef PAGODA_TESTS_BENCH_SERVICE_SERVICE_CALLS_H_
#define PAGODA_TESTS_BENCH_SERVICE_SERVICE_CALLS_H_

#include <functional>
#include <memory>
#include <string>

#include "clients/cpp/ring_stream.h"
#include "grpcpp/grpcpp.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "tests/bench/noop.grpc.pb.h"

namespace pagoda::bench {

using SessionReactor =
    grpc::ClientBidiReactor<pagoda::v1::SessionRequest, pagoda::v1::SessionResponse>;

// kRings: the cache, with a session's batches through rings in shared memory.
enum class Target { kCache, kNoop, kRings };

using SessionStub =
    grpc::ClientReaderWriter<pagoda::v1::SessionRequest, pagoda::v1::SessionResponse>;

// Stops the process if the call failed, and prints the error on standard error.
void RequireOk(const grpc::Status& status, const char* what);

// The client whose calls a connection makes.
struct Caller {
  // The cache of its sessions. Empty: the configuration's cache, if it is the only one.
  std::string cache;
  std::string token;  // The token of its tenant. Empty: the server knows no tenants.
};

// A separate connection to the server. A failed call stops the process, because a benchmark's calls
// succeed. Thread-safe.
class Connection {
 public:
  // `endpoint`: "unix:/path" or "host:port".
  Connection(const std::string& endpoint, Target target, const Caller& caller = {});

  // Opens a cache for this client, with 128 bytes a block, besides the configuration's.
  void OpenCache(const std::string& name, uint64_t host_bytes);
  // The same with opaque pages, 2 MiB a block.
  void OpenPages(const std::string& name, uint64_t host_bytes);
  // Returns when the cache's memory is free.
  void DropCache(const std::string& name);

  // Always opens a session of the cache, because the yardstick's messages have a session too.
  pagoda::v1::SessionRef OpenSession();
  void CloseSession(const pagoda::v1::SessionRef& session);
  // The map socket of the daemon that opened the last session.
  const std::string& map_socket() const { return map_socket_; }

  void Execute(const pagoda::v1::ExecuteRequest& request, pagoda::v1::ExecuteResponse* response);
  void ExecuteAsync(grpc::ClientContext* context, const pagoda::v1::ExecuteRequest* request,
                    pagoda::v1::ExecuteResponse* response, std::function<void(grpc::Status)> done);
  std::unique_ptr<SessionStub> Session(grpc::ClientContext* context);
  void SessionAsync(grpc::ClientContext* context, SessionReactor* reactor);

 private:
  void OpenCache(const pagoda::v1::OpenCacheRequest& request);
  uint64_t FreeCacheBytes();

  const Target target_;
  const std::string cache_name_;
  std::string map_socket_;
  const std::shared_ptr<grpc::Channel> channel_;
  pagoda::v1::CacheService::Stub cache_;
  pagoda::v1::AdminService::Stub admin_;
  v1::NoopService::Stub noop_;
};

// A session with its stream or its rings, with one message in flight. Not thread-safe.
class SessionStream {
 public:
  SessionStream(const std::string& endpoint, Target target, const Caller& caller = {});
  // Closes the session: its blocks become free, and its sequences stay cached.
  ~SessionStream();

  // Stops the process unless every operation of the batch succeeds.
  void Call(const pagoda::v1::SessionRequest& request, pagoda::v1::SessionResponse* response);

 private:
  Connection connection_;
  const pagoda::v1::SessionRef session_;
  grpc::ClientContext context_;
  std::unique_ptr<SessionStub> stream_;  // Null with rings.
  std::unique_ptr<RingStream> rings_;    // Null with a stream.
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_SERVICE_SERVICE_CALLS_H_
