#include "pools/block_view.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {

absl::Status CheckView(const PoolLayout& pool, DType view) {
  if (pool.content == PoolContent::kElements && pool.dtype == view) return absl::OkStatus();
  const std::string_view held = pool.content == PoolContent::kElements
                                    ? DTypeName(pool.dtype)
                                    : PoolContentName(pool.content);
  const std::string_view wanted = DTypeName(view);
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat("a view of ", absl::string_view(wanted.data(), wanted.size()),
                   " of a pool that holds ", absl::string_view(held.data(), held.size())));
}

}  // namespace pagoda
