// Brings prefixes into a daemon's cache from other machines.
#ifndef PAGODA_CLIENTS_CPP_PREFIX_FETCHER_H_
#define PAGODA_CLIENTS_CPP_PREFIX_FETCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "clients/cpp/grpc_cache_client.h"
#include "events/block_key.h"
#include "events/client_key.h"
#include "grpcpp/channel.h"
#include "manager/words/fetch_outcome.h"
#include "pagoda/v1/types.pb.h"
#include "pools/types.h"

namespace pagoda {

// A prompt, and where to search for its blocks.
struct PrefixToFetch {
  NamespaceKey name_space;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> extra_token_ids = {};
  std::vector<MultimodalItem> multimodal_items = {};
  std::vector<ClientKey> keys = {};  // In a keyed namespace, instead of tokens.
  std::string tenant = {};           // Who is charged: see AddSequence.
  std::string source = {};           // The peer address of another daemon. Empty: the store.
  // A limit in addition to those of the daemon's configuration.
  std::optional<absl::Duration> deadline = std::nullopt;
};

struct FetchedFromAfar {
  FetchOutcome outcome = FetchOutcome::kFailed;
  uint32_t matched_tokens = 0;  // An AddSequence would match them now.
  uint32_t fetched_tokens = 0;  // From the store or the other daemon.
};

// Thread-safe. Fetches do not wait behind the batches of a cache client.
class PrefixFetcher {
 public:
  // With a session of its own, whose lease a thread renews. Errors: those of OpenGrpcCacheClient.
  static absl::StatusOr<std::unique_ptr<PrefixFetcher>> Open(const GrpcCacheClientOptions& options);
  // In a cache client's session: see OpenGrpcCacheClient.
  PrefixFetcher(const std::shared_ptr<grpc::Channel>& channel, const v1::SessionRef& session);
  // Cancels the fetches under way, and waits until they have ended.
  ~PrefixFetcher();

  using Done = std::function<void(const absl::StatusOr<FetchedFromAfar>&)>;
  // Calls `done` once, on a thread of gRPC. It must not block, and must not destroy this object.
  // Errors: those of FetchPrefix in pagoda/v1/cache.proto; UNKNOWN_SESSION or STALE_SESSION if the
  // session is over: open another fetcher. Returns the fetch's number, for Cancel.
  uint64_t Fetch(const PrefixToFetch& prefix, Done done);
  // Ends a fetch early, with CANCELLED. Does nothing for one that has ended. Does not wait.
  void Cancel(uint64_t fetch);
  // The same, on the caller's thread.
  absl::StatusOr<FetchedFromAfar> Fetch(const PrefixToFetch& prefix);

 private:
  class Calls;

  const std::unique_ptr<Calls> calls_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_PREFIX_FETCHER_H_
