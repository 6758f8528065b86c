// The features of Hopper (sm_90a) that kernels use in addition to device/device.h: barriers in
// shared memory that count the bytes of copies, copies of boxes by the tensor memory accelerator
// (TMA), and products of a warpgroup (wgmma), which is four warps whose first index is a multiple
// of four. Under nvcc, hopper_ptx.h implements them for sm_90a only. Otherwise
// PAGODA_HOPPER_EMULATION names a header that does the same on the host.
//
// Two proxies access shared memory: threads load and store through the generic proxy; boxes arrive
// and products read their matrices through the asynchronous proxy. Products see a thread's stores
// only after FenceAsync and a barrier behind it.
//
// Matrices in shared memory lie in columns of 64 elements of 16 bits: contiguous rows of 128 bytes,
// whose chunks of 16 bytes are swizzled over eight rows. A column begins at a multiple of 1,024
// bytes. SwizzledOffset gives the position of a chunk, TensorMap makes boxes in this form, and a
// Matrix describes it to products.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/tensor_map.h"

namespace pagoda::kernels::cuda {

inline constexpr uint32_t kWarpgroupThreads = 128;
inline constexpr uint32_t kColumnElements = 64;
inline constexpr uint32_t kColumnRowBytes = 128;

// The offset in a column of row r's 16-byte chunk c (0 to 7).
constexpr uint32_t SwizzledOffset(uint32_t row, uint32_t chunk) {
  return row * kColumnRowBytes + (chunk ^ row % 8) * 16;
}

// A matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor Format"): 16 bits of address, leading
// and stride offsets in units of 16 bytes, the base's offset in the swizzle pattern, and the
// pattern (1: 128 bytes).
using Matrix = uint64_t;

constexpr Matrix DescribeMatrix(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t{(address & 0x3ffffu) >> 4} | uint64_t{leading_bytes >> 4} << 16 |
         uint64_t{stride_bytes >> 4} << 32 | kSwizzle128 << 62;
}

// Rows of a column, whose elements are along the product's sum: Q, and K as the right matrix.
// Groups of eight rows follow each other. The leading offset has no meaning here.
constexpr Matrix RowsOfColumn(uint32_t address) {
  return DescribeMatrix(address, 16, 8 * kColumnRowBytes);
}

// Columns side by side, `column_bytes` apart, whose rows are along the product's sum: V as the
// right matrix. Its elements are the result's columns.
constexpr Matrix ColumnsOfRows(uint32_t address, uint32_t column_bytes) {
  return DescribeMatrix(address, column_bytes, 8 * kColumnRowBytes);
}

// The same matrix, starting `bytes` further.
constexpr Matrix Advance(Matrix matrix, uint32_t bytes) { return matrix + (bytes >> 4); }

}  // namespace pagoda::kernels::cuda

#ifdef __CUDACC__
#include "kernels/cuda/hopper/hopper_ptx.h"
#else
#include PAGODA_HOPPER_EMULATION
#endif

#endif  // PAGODA_KERNELS_CUDA_HOPPER_HOPPER_H_
