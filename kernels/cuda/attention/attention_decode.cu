#include "kernels/cuda/attention/attention_decode.h"

#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Kernel>
int LaunchKernel(const AttentionLaunch& launch, uint64_t max_items, Stream stream) {
  return Launch<Kernel>(
      {.blocks = max_items * launch.args.kv.num_kv_heads, .shared_bytes = Kernel::kSharedBytes},
      stream, launch);
}

// With four warps, or with two if the device has too little shared memory for four.
template <class T, KvFormat kFormat, uint32_t kDim, uint32_t kColumnTiles>
int LaunchWarps(const AttentionLaunch& launch, uint64_t max_items, Stream stream) {
  using Kernel = DecodeKernel<T, kFormat, kDim, kColumnTiles>;
  if constexpr (Kernel::kSharedBytes > kSharedBytesEverywhere) {
    using Smaller = DecodeKernel<T, kFormat, kDim, kColumnTiles, 2>;
    static_assert(Smaller::kSharedBytes <= kSharedBytesEverywhere);
    if (!HasSharedBytes(Kernel::kSharedBytes)) {
      return LaunchKernel<Smaller>(launch, max_items, stream);
    }
  }
  return LaunchKernel<Kernel>(launch, max_items, stream);
}

template <class T, KvFormat kFormat, uint32_t kDim>
int LaunchColumns(const AttentionLaunch& launch, uint64_t max_items, uint32_t most_rows,
                  Stream stream) {
  return most_rows <= 8 ? LaunchWarps<T, kFormat, kDim, 1>(launch, max_items, stream)
                        : LaunchWarps<T, kFormat, kDim, 2>(launch, max_items, stream);
}

template <class T, KvFormat kFormat>
int LaunchDim(const AttentionLaunch& launch, uint64_t max_items, uint32_t most_rows,
              Stream stream) {
  const uint32_t head_dim = launch.args.kv.head_dim;
  if (head_dim <= 64) return LaunchColumns<T, kFormat, 64>(launch, max_items, most_rows, stream);
  if (head_dim <= 128) return LaunchColumns<T, kFormat, 128>(launch, max_items, most_rows, stream);
  return LaunchColumns<T, kFormat, 256>(launch, max_items, most_rows, stream);
}

template <class T>
int LaunchType(const AttentionLaunch& launch, uint64_t max_items, uint32_t most_rows,
               Stream stream) {
  switch (launch.args.kv.type) {
    case ElementType::kFloat8E4M3:
      return LaunchDim<T, KvFormat::kE4M3>(launch, max_items, most_rows, stream);
    case ElementType::kFloat8E5M2:
      return LaunchDim<T, KvFormat::kE5M2>(launch, max_items, most_rows, stream);
    default:
      return LaunchDim<T, KvFormat::k16Bits>(launch, max_items, most_rows, stream);
  }
}

}  // namespace

int LaunchDecode(const AttentionLaunch& launch, uint64_t max_items, uint32_t most_rows,
                 Stream stream) {
  return launch.args.query_type == ElementType::kFloat16
             ? LaunchType<Half>(launch, max_items, most_rows, stream)
             : LaunchType<BFloat16>(launch, max_items, most_rows, stream);
}

bool IsAlignedForTensorCores(const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  const ElementType type = args.query_type;
  if (type != ElementType::kFloat16 && type != ElementType::kBFloat16) return false;
  if (kv.type != type && !IsFloat8(kv.type)) return false;
  // All rows and strides must consist of whole vectors of 16 bytes.
  const uint32_t vector = IsFloat8(kv.type) ? 16 : 8;
  if (kv.head_dim % vector != 0 || args.value_dim % vector != 0) return false;
  const uint64_t low_bits =
      reinterpret_cast<uintptr_t>(kv.keys) | reinterpret_cast<uintptr_t>(kv.values) |
      kv.slot_stride_bytes | kv.head_stride_bytes | kv.token_stride_bytes |
      reinterpret_cast<uintptr_t>(args.query) | reinterpret_cast<uintptr_t>(args.output) |
      args.query_token_stride * 2 | args.output_token_stride * 2;
  return low_bits % 16 == 0;
}

bool HasTensorKernels(const AttentionArgs& args) {
  constexpr uint32_t kMostElements = 256;
  return IsAlignedForTensorCores(args) && args.kv.head_dim <= kMostElements;
}

}  // namespace pagoda::kernels::cuda
