// The status page: one HTML document that contains its style and its script.
#ifndef PAGODA_SERVER_HTTP_STATUS_PAGE_H_
#define PAGODA_SERVER_HTTP_STATUS_PAGE_H_

#include "absl/strings/string_view.h"
#include "server/http/http_server.h"

namespace pagoda::server {

// The files of page/. The build embeds them by generating status_page_parts.cc. The document has a
// line `<!-- style -->` and a line `<!-- script -->`.
extern const absl::string_view kPageHtml;
extern const absl::string_view kPageCss;
extern const absl::string_view kPageJs;

// The page is the same for every caller; it reads its data from /api/v1. Its
// Content-Security-Policy allows only this style and this script, by their SHA-256, and requests to
// the page's own server.
HttpResponse StatusPage();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_STATUS_PAGE_H_
