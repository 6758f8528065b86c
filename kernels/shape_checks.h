// Argument checks that the kernels share.
#ifndef PAGODA_KERNELS_SHAPE_CHECKS_H_
#define PAGODA_KERNELS_SHAPE_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// InvalidArgument unless the strides hold heads, tokens and elements without overlap of neighbours
// and the pointers are set.
absl::Status CheckKvLayer(const KvLayer& kv);

template <class... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_SHAPE_CHECKS_H_
