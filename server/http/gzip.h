// Compresses an HTTP answer for a client that takes it.
#ifndef PAGODA_SERVER_HTTP_GZIP_H_
#define PAGODA_SERVER_HTTP_GZIP_H_

#include "absl/strings/string_view.h"
#include "server/http/http_exchange.h"

namespace pagoda::server {

// Whether the value of the header Accept-Encoding allows gzip (RFC 9110, section 12.5.3): by its
// name or by "*", with a weight above 0 that is not below the weight of `identity`. A part that is
// not valid counts as missing.
bool AcceptsGzip(absl::string_view accept_encoding);

// Compresses the body if the request takes gzip, and says in Vary that the answer depends on it.
// Costs about 5 ms for each MiB of metrics, so it does not run on the server's loop.
HttpResponse Compressed(const HttpRequest& request, HttpResponse response);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_GZIP_H_
