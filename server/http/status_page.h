// The status page: one HTML document with its style and its script in it.
#ifndef PAGODA_SERVER_HTTP_STATUS_PAGE_H_
#define PAGODA_SERVER_HTTP_STATUS_PAGE_H_

#include "absl/strings/string_view.h"
#include "server/http/http_server.h"

namespace pagoda::server {

// The files of page/, put into the binary when it is built (status_page_parts.cc, which is made).
// The document has a line `<!-- style -->` and a line `<!-- script -->`.
extern const absl::string_view kPageHtml;
extern const absl::string_view kPageCss;
extern const absl::string_view kPageJs;

// The same for everybody: what it shows it asks for at /api/v1. Its Content-Security-Policy lets it
// run this style and this script, by their SHA-256, and talk to where it came from; nothing else.
HttpResponse StatusPage();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_PAGE_H_
