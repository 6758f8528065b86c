#include "kernels/cpu/vectors/convert_rows.h"

#include <immintrin.h>

#include <cstring>
#include <type_traits>

#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

void CopyBytes(const Rows& rows, uint64_t row_bytes) {
  for (uint64_t row = 0; row < rows.num_rows; ++row) {
    std::memcpy(rows.target + row * rows.target_stride_bytes,
                rows.source + row * rows.source_stride_bytes, row_bytes);
  }
}

template <class From, class To>
void Convert(const Rows& rows, float scale) {
  constexpr bool kMultiply = sizeof(From) == 1;
  for (uint64_t row = 0; row < rows.num_rows; ++row) {
    const auto* source =
        reinterpret_cast<const From*>(rows.source + row * rows.source_stride_bytes);
    auto* target = reinterpret_cast<To*>(rows.target + row * rows.target_stride_bytes);
    for (uint64_t i = 0; i < rows.row_elements; ++i) {
      float value = ToFloat(source[i]);
      if constexpr (kMultiply) value *= scale;
      if constexpr (sizeof(To) == 1) value /= scale;
      target[i] = FromFloat<To>(value);
    }
  }
}

}  // namespace

ConvertRows FindPortableConversion(ElementType from, ElementType to) {
  return VisitElementType(from, [&]<class From>() {
    return VisitElementType(to, []<class To>() -> ConvertRows {
      if constexpr (std::is_same_v<From, To>) {
        return [](const Rows& rows, float) { CopyBytes(rows, rows.row_elements * sizeof(From)); };
      } else if constexpr (sizeof(From) == 1 && sizeof(To) == 1) {
        return nullptr;
      } else {
        return Convert<From, To>;
      }
    });
  });
}

void FenceStores() { _mm_sfence(); }

ConvertRows FindConversion(ElementType from, ElementType to, Isa isa, Stores stores) {
  if (isa >= Isa::kAvx512) return FindAvx512Conversion(from, to, stores);
  if (isa == Isa::kAvx2) return FindAvx2Conversion(from, to, stores);
  return FindPortableConversion(from, to);
}

}  // namespace pagoda::kernels::cpu
