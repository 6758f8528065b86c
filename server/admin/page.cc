#include "server/admin/page.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

constexpr size_t kDigits = 16;

}  // namespace

size_t PageSize(uint32_t asked) {
  return asked == 0 ? kDefaultPageSize : std::min<size_t>(asked, kMaxPageSize);
}

std::string PageToken(const PageStart& start) {
  return absl::StrCat(absl::Hex(start.major, absl::kZeroPad16),
                      absl::Hex(start.minor, absl::kZeroPad16));
}

absl::StatusOr<PageStart> ParsePageToken(const std::string& token) {
  PageStart start;
  if (token.empty()) return start;
  const absl::string_view text = token;
  if (text.size() != 2 * kDigits || !absl::SimpleHexAtoi(text.substr(0, kDigits), &start.major) ||
      !absl::SimpleHexAtoi(text.substr(kDigits), &start.minor) || PageToken(start) != token) {
    return MakeError(Reason::kInvalidArgument,
                     "page_token is not a next_page_token: leave it empty for the first page");
  }
  return start;
}

}  // namespace pagoda::server
