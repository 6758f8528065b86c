// Access checks of HTTP requests: the site that they come from, and the caller.
#ifndef PAGODA_SERVER_HTTP_HTTP_FENCE_H_
#define PAGODA_SERVER_HTTP_HTTP_FENCE_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/callers/authenticator.h"
#include "server/config/listen_address.h"
#include "server/http/http_exchange.h"

namespace pagoda::server {

// Every route that shows or does more than a probe calls this first. Thread-safe.
//
// 1. A browser can send requests of foreign pages. So a server on loopback answers only if the Host
//    header names this machine: with DNS rebinding, a foreign name can point to this machine. A
//    request with an Origin must come from a page of the host that it asks.
// 2. If no callers are configured, every caller on loopback is an operator. There is no operator
//    over an address that other machines reach, nor behind a proxy that adds a header
//    (HttpRequest::proxy_header). A proxy that adds no header cannot be told from a client on this
//    machine.
class HttpFence {
 public:
  struct Options {
    TcpAddress address;          // The address on which HTTP listens.
    bool knows_callers = false;  // The configuration has tenants or operators.
  };

  // The authenticator outlives this.
  HttpFence(const Options& options, const Authenticator* authenticator)
      : on_loopback_(IsLoopback(options.address)),
        knows_callers_(options.knows_callers),
        authenticator_(authenticator) {}

  // Errors: FAILED_PRECONDITION without a reason, for HTTP status 421 (the Host header does not
  // name this machine); PERMISSION_DENIED (a page of another site).
  absl::Status CheckSite(const HttpRequest& request) const;

  // Returns a route that calls CheckSite first and refuses in plain text. The fence outlives it.
  using Route = std::function<HttpResponse(const HttpRequest&)>;
  Route Fenced(Route route) const;

  // Identifies the caller. Errors: those of CheckSite, PERMISSION_DENIED (no callers are
  // configured, and the address is open to other machines or a proxy passed the request on),
  // UNAUTHENTICATED.
  absl::StatusOr<Identity> Identify(const HttpRequest& request) const;

  // Whether the credential of an identified caller still stands for it.
  bool StillKnows(const Identity& caller) const { return authenticator_->StillKnows(caller); }

 private:
  const bool on_loopback_;
  const bool knows_callers_;
  const Authenticator* const authenticator_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_FENCE_H_
