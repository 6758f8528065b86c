#include "server/http/gzip.h"

#include <zlib.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace pagoda::server {
namespace {

// A small answer fits into one packet anyway.
constexpr size_t kLeastBytes = 1024;
constexpr int kGzipWindow = 15 + 16;  // The largest window of deflate; 16 asks for gzip's header.
constexpr int kDefaultMemory = 8;     // zlib's default.

// "gzip;q=0.5" is 0.5, and "gzip" is 1; nothing if the weight is not a number from 0 to 1.
std::optional<double> WeightOf(absl::string_view parameters) {
  parameters = absl::StripAsciiWhitespace(parameters);
  if (parameters.empty()) return 1;
  double weight = 0;
  if (!absl::StartsWithIgnoreCase(parameters, "q=") ||
      !absl::SimpleAtod(parameters.substr(2), &weight) || !(weight >= 0 && weight <= 1)) {
    return std::nullopt;
  }
  return weight;
}

// Nothing if there is no memory for it. Does not change the text, but zlib's type is not const.
std::optional<std::string> Gzip(std::string& text) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kDefaultMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  PAGODA_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflateBound() is a bound");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace

bool AcceptsGzip(absl::string_view accept_encoding) {
  std::optional<double> gzip, any, identity;
  for (const absl::string_view part : absl::StrSplit(accept_encoding, ',')) {
    const std::pair<absl::string_view, absl::string_view> coding =
        absl::StrSplit(part, absl::MaxSplits(';', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(coding.first);
    const std::optional<double> weight = WeightOf(coding.second);
    if (!weight.has_value()) continue;
    if (absl::EqualsIgnoreCase(name, "gzip") || absl::EqualsIgnoreCase(name, "x-gzip")) {
      gzip = weight;
    } else if (absl::EqualsIgnoreCase(name, "identity")) {
      identity = weight;
    } else if (name == "*") {
      any = weight;
    }
  }
  const double wanted = gzip.has_value() ? *gzip : any.value_or(0);
  return wanted > 0 && wanted >= identity.value_or(0);
}

HttpResponse Compressed(const HttpRequest& request, HttpResponse response) {
  response.headers.emplace_back("Vary", "Accept-Encoding");
  if (response.body.size() < kLeastBytes || !AcceptsGzip(request.accept_encoding)) return response;
  std::optional<std::string> packed = Gzip(response.body);
  if (!packed.has_value()) return response;
  response.headers.emplace_back("Content-Encoding", "gzip");
  response.body = *std::move(packed);
  return response;
}

}  // namespace pagoda::server
