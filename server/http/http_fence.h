// Whom HTTP answers, and as whom.
#ifndef PAGODA_SERVER_HTTP_HTTP_FENCE_H_
#define PAGODA_SERVER_HTTP_HTTP_FENCE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/callers/authenticator.h"
#include "server/http/http_exchange.h"
#include "server/listen_address.h"

namespace pagoda::server {

// Every request that shows or does more than a probe asks this first. Thread-safe.
//
// 1. A browser carries requests of pages that the operator never saw. So a server on loopback
// answers only to its own names (a page's name may be made to point to this machine: DNS
// rebinding), and a request with an Origin has to come from the host that it asks.
// 2. Where no callers are configured, everybody on loopback is an operator. Over an address that
// other machines reach, nobody is, and neither is the sender of a request that a proxy passed on
// and says so (HttpRequest::proxy_header). A proxy that adds no header cannot be told from a client
// on this machine.
class HttpFence {
 public:
  struct Options {
    TcpAddress address;          // Where HTTP listens.
    bool knows_callers = false;  // The configuration names tenants or operators.
  };

  // The authenticator outlives this.
  HttpFence(const Options& options, const Authenticator* authenticator)
      : on_loopback_(IsLoopback(options.address)),
        knows_callers_(options.knows_callers),
        authenticator_(authenticator) {}

  // Errors: FAILED_PRECONDITION without a reason, which is HTTP's 421 (the host is not this
  // machine), PERMISSION_DENIED (a page of another site).
  absl::Status CheckSite(const HttpRequest& request) const;

  // The route behind CheckSite, which refuses in plain text. The fence outlives it.
  using Route = std::function<HttpResponse(const HttpRequest&)>;
  Route Fenced(Route route) const;

  // Who asks. Errors: those of CheckSite, PERMISSION_DENIED (nobody is configured, and the address
  // is open to other machines or a proxy passed the request on), UNAUTHENTICATED.
  absl::StatusOr<Identity> Identify(const HttpRequest& request) const;

  // Whether the credential of a caller that was identified still stands for it.
  bool StillKnows(const Identity& caller) const { return authenticator_->StillKnows(caller); }

 private:
  const bool on_loopback_;
  const bool knows_callers_;
  const Authenticator* const authenticator_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_FENCE_H_
