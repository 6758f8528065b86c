#include "server/http/status_page.h"

#include <openssl/sha.h>

#include <array>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace pagoda::server {
namespace {

// The name of a text in a policy: 'sha256-...'.
std::string SourceOf(absl::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  return absl::StrCat("'sha256-", absl::Base64Escape(bytes), "'");
}

HttpResponse MakePage() {
  HttpResponse page{
      .content_type = "text/html; charset=utf-8",
      .body = absl::StrReplaceAll(
          kPageHtml, {{"<!-- style -->", absl::StrCat("<style>", kPageCss, "</style>")},
                      {"<!-- script -->", absl::StrCat("<script>", kPageJs, "</script>")}}),
      .headers = {}};
  page.headers = {
      {"Content-Security-Policy",
       absl::StrCat("default-src 'none'; script-src ", SourceOf(kPageJs), "; style-src ",
                    SourceOf(kPageCss),
                    "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'")},
      {"Referrer-Policy", "no-referrer"},
  };
  return page;
}

}  // namespace

HttpResponse StatusPage() {
  static const HttpResponse* const page = new HttpResponse(MakePage());
  return *page;
}

}  // namespace pagoda::server
