// Page sizes and page tokens of lists (https://google.aip.dev/158).
#ifndef PAGODA_SERVER_ADMIN_PAGE_H_
#define PAGODA_SERVER_ADMIN_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda::server {

inline constexpr size_t kDefaultPageSize = 100;
inline constexpr size_t kMaxPageSize = 1000;

// The rows of a page. 0 means kDefaultPageSize; a number above kMaxPageSize means kMaxPageSize.
size_t PageSize(uint32_t asked);

// A page begins at the first row whose key is at least this one. A list whose key is a single id
// leaves `minor` 0.
struct PageStart {
  uint64_t major = 0;
  uint64_t minor = 0;
  friend bool operator==(const PageStart&, const PageStart&) = default;
};

// A client returns the token unchanged. A list can change between two pages; a row that exists
// the whole time is listed exactly once.
std::string PageToken(const PageStart& start);
// An empty token means the first page. Errors: INVALID_ARGUMENT for a text that PageToken never
// makes.
absl::StatusOr<PageStart> ParsePageToken(const std::string& token);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_PAGE_H_
