// Lists that are fetched page by page (https://google.aip.dev/158).
#ifndef PAGODA_SERVER_ADMIN_PAGE_H_
#define PAGODA_SERVER_ADMIN_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda::server {

inline constexpr size_t kDefaultPageSize = 100;
inline constexpr size_t kMaxPageSize = 1000;

// How many rows a page has: 0 asks for the default, more than the most for the most.
size_t PageSize(uint32_t asked);

// Where a page begins: at the first row whose key is at least this one. Lists with one id as their
// key leave `minor` 0.
struct PageStart {
  uint64_t major = 0;
  uint64_t minor = 0;
  friend bool operator==(const PageStart&, const PageStart&) = default;
};

// Clients hand tokens back as they are. A list may change between two pages: what is there all the
// time is listed once.
std::string PageToken(const PageStart& start);
// An empty token is the first page. Errors: INVALID_ARGUMENT for what PageToken never makes.
absl::StatusOr<PageStart> ParsePageToken(const std::string& token);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_ADMIN_PAGE_H_
