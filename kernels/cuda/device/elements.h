// Access to single elements in device memory whose type is only known at run time.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_ELEMENTS_H_
#define PAGODA_KERNELS_CUDA_DEVICE_ELEMENTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/numeric.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

template <class T>
PAGODA_DEVICE float LoadAs(const std::byte* base, uint64_t index) {
  return ToFloat(reinterpret_cast<const T*>(base)[index]);
}

PAGODA_DEVICE float LoadElement(ElementType type, const std::byte* base, uint64_t index) {
  switch (type) {
    case ElementType::kFloat16:
      return LoadAs<Half>(base, index);
    case ElementType::kBFloat16:
      return LoadAs<BFloat16>(base, index);
    case ElementType::kFloat8E4M3:
      return LoadAs<Float8E4M3>(base, index);
    case ElementType::kFloat8E5M2:
      return LoadAs<Float8E5M2>(base, index);
    case ElementType::kFloat32:
      break;
  }
  return LoadAs<float>(base, index);
}

template <class T>
PAGODA_DEVICE void StoreAs(std::byte* base, uint64_t index, float value) {
  reinterpret_cast<T*>(base)[index] = FromFloat<T>(value);
}

PAGODA_DEVICE void StoreElement(ElementType type, std::byte* base, uint64_t index, float value) {
  switch (type) {
    case ElementType::kFloat16:
      return StoreAs<Half>(base, index, value);
    case ElementType::kBFloat16:
      return StoreAs<BFloat16>(base, index, value);
    case ElementType::kFloat8E4M3:
      return StoreAs<Float8E4M3>(base, index, value);
    case ElementType::kFloat8E5M2:
      return StoreAs<Float8E5M2>(base, index, value);
    case ElementType::kFloat32:
      break;
  }
  StoreAs<float>(base, index, value);
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_ELEMENTS_H_
