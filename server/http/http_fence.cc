#include "server/http/http_fence.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

// Whether the origin "https://cache.example:8443" belongs to the host "cache.example:8443". The
// scheme is ignored, because a proxy with TLS can be in between.
bool IsOf(absl::string_view origin, absl::string_view host) {
  const size_t scheme = origin.find("://");
  return scheme != absl::string_view::npos &&
         absl::EqualsIgnoreCase(origin.substr(scheme + 3), host);
}

}  // namespace

absl::Status HttpFence::CheckSite(const HttpRequest& request) const {
  if (on_loopback_ && !MeansThisMachine(request.host)) {
    return absl::FailedPreconditionError(
        absl::StrCat("this daemon listens on loopback and is not '", request.host,
                     "': use localhost or 127.0.0.1"));
  }
  if (!request.origin.has_value() || IsOf(*request.origin, request.host)) return absl::OkStatus();
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat("a page of '", *request.origin, "' may not use this daemon"));
}

absl::StatusOr<Identity> HttpFence::Identify(const HttpRequest& request) const {
  if (absl::Status status = CheckSite(request); !status.ok()) return status;
  if (!knows_callers_ && !on_loopback_) {
    return MakeError(Reason::kPermissionDenied,
                     "no tenants and no operators are configured: an address that other machines "
                     "reach then serves neither generations nor data about tenants, sessions or "
                     "tokens");
  }
  if (!knows_callers_ && !request.proxy_header.empty()) {
    return MakeError(Reason::kPermissionDenied,
                     absl::StrCat("a proxy passed this request on (", request.proxy_header,
                                  "), and no tenants and no operators are configured: the daemon "
                                  "cannot identify the caller"));
  }
  ShownCredentials shown;
  if (request.authorization.has_value()) shown.authorization = *request.authorization;
  return authenticator_->Identify(shown);
}

HttpFence::Route HttpFence::Fenced(Route route) const {
  return [this, route = std::move(route)](const HttpRequest& request) {
    const absl::Status site = CheckSite(request);
    if (site.ok()) return route(request);
    return HttpResponse{.status = absl::IsFailedPrecondition(site) ? 421 : 403,
                        .body = absl::StrCat(std::string(site.message()), "\n")};
  };
}

}  // namespace pagoda::server
