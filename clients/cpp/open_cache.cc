#include "clients/cpp/open_cache.h"

#include <memory>

#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "wire/cache_info.h"
#include "wire/errors.h"

namespace pagoda {

absl::StatusOr<OpenedCache> OpenCache(const OpenCacheOptions& options, const OpenCacheCall& call) {
  v1::OpenCacheRequest request;
  OpenCacheToProto(call, &request);
  request.set_tenant(options.tenant);
  return OpenCache(options, request);
}

absl::StatusOr<OpenedCache> OpenCache(const OpenCacheOptions& options,
                                      const v1::OpenCacheRequest& request) {
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      Connect(options.endpoint, options.timeout, options.credentials);
  if (!channel.ok()) return channel.status();
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  v1::OpenCacheResponse response;
  const grpc::Status status =
      v1::CacheService::NewStub(*channel)->OpenCache(&context, request, &response);
  if (!status.ok()) return StatusFromGrpc(status);
  return OpenedCache{.info = CacheInfoFromProto(response.cache()),
                     .created = response.created(),
                     .epoch = Epoch(response.epoch())};
}

}  // namespace pagoda
