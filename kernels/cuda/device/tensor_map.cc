#include "kernels/cuda/device/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::kernels::cuda {
namespace {

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));
static_assert(alignof(TensorMap) >= alignof(CUtensorMap));

using EncodeCall = decltype(&cuTensorMapEncodeTiled);

// Null if the driver has no such function. The version is the first one with the function.
EncodeCall FindEncode() {
  constexpr unsigned kVersion = 12000;
  void* call = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &call,
                                                             kVersion, cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &call, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) cudaGetLastError();  // Clears the error.
  const bool usable = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return usable ? reinterpret_cast<EncodeCall>(call) : nullptr;
}

}  // namespace

absl::Status EncodeTensorMap(const TensorShape& shape, TensorMap* map) {
  static const EncodeCall encode = FindEncode();
  if (encode == nullptr) {
    return absl::FailedPreconditionError("the driver has no cuTensorMapEncodeTiled");
  }
  const cuuint64_t dimensions[4] = {shape.elements, shape.tokens, shape.heads, shape.slots};
  const cuuint64_t strides[3] = {shape.token_stride_bytes, shape.head_stride_bytes,
                                 shape.slot_stride_bytes};
  const cuuint32_t box[4] = {64, shape.box_tokens, 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult error =
      encode(reinterpret_cast<CUtensorMap*>(map), CU_TENSOR_MAP_DATA_TYPE_UINT16, 4,
             const_cast<std::byte*>(shape.base), dimensions, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cuTensorMapEncodeTiled: ", static_cast<int>(error), " for ",
                   Counted(shape.elements, "element"), ", ", Counted(shape.tokens, "token"), ", ",
                   Counted(shape.heads, "head"), ", ", Counted(shape.slots, "slot"), ", strides ",
                   shape.token_stride_bytes, ", ", shape.head_stride_bytes, ", ",
                   shape.slot_stride_bytes, ", boxes of ", Counted(shape.box_tokens, "token")));
}

absl::Status FindHopper(HopperDevice* device) {
  int index = 0;
  if (const cudaError_t error = cudaGetDevice(&index); error != cudaSuccess) {
    return StatusOf("cudaGetDevice", error);
  }
  // Entries keep their addresses, and thus their names.
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<int, cudaDeviceProp>;
  const std::lock_guard lock(*mutex);
  auto found = known->find(index);
  if (found == known->end()) {
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) return StatusOf("cudaGetDeviceProperties", error);
    found = known->emplace(index, properties).first;
  }
  const cudaDeviceProp& properties = found->second;
  *device = {.present = properties.major == 9 && properties.minor == 0,
             .num_multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount),
             .name = properties.name};
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cuda
