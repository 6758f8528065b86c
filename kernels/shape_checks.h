// Argument checks that the kernels share.
#ifndef PAGODA_KERNELS_SHAPE_CHECKS_H_
#define PAGODA_KERNELS_SHAPE_CHECKS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// InvalidArgument, naming the argument, unless the pointers are set and aligned to the elements,
// and the strides keep slots, heads and tokens apart: a slot's stride covers the block, and either
// the head's stride covers a head's tokens or the token's stride covers a token's heads.
absl::Status CheckKvLayer(const KvLayer& kv);

template <class... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_SHAPE_CHECKS_H_
