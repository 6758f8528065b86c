// What kernels for Hopper (sm_90a) use of it beside device.h: barriers in shared memory that count
// the bytes of copies, copies of boxes by the tensor memory accelerator (TMA), and products of a
// warpgroup (wgmma), four warps from a multiple of four on. Under nvcc hopper_ptx.h, for sm_90a
// alone; else PAGODA_HOPPER_EMULATION names what does the same on the host.
//
// Two proxies reach shared memory: the generic one, by which threads load and store, and the
// asynchronous one, by which boxes come and products read their matrices. What a thread stored is
// for products only after FenceAsync, and a barrier behind it.
//
// Matrices in shared memory lie in columns of 64 elements of 16 bits: rows of 128 bytes, one after
// another, whose chunks of 16 bytes are swizzled over eight rows. A column begins at a multiple of
// 1,024 bytes. SwizzledOffset says where a chunk is, TensorMap makes boxes so, and a Matrix tells
// products of it.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/tensor_map.h"

namespace pagoda::kernels::cuda {

inline constexpr uint32_t kWarpgroupThreads = 128;
inline constexpr uint32_t kColumnElements = 64;
inline constexpr uint32_t kColumnRowBytes = 128;

// Of a column, of row r and 16-byte chunk c of its 8.
constexpr uint32_t SwizzledOffset(uint32_t row, uint32_t chunk) {
  return row * kColumnRowBytes + (chunk ^ row % 8) * 16;
}

// A matrix descriptor of wgmma (PTX ISA, "Matrix Descriptor Format"): 16 bits of address, leading
// and stride offsets in units of 16 bytes, the base's offset in the swizzle pattern, and the
// pattern: 1 is that of 128 bytes.
using Matrix = uint64_t;

constexpr Matrix DescribeMatrix(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle128 = 1;
  return uint64_t{(address & 0x3ffffu) >> 4} | uint64_t{leading_bytes >> 4} << 16 |
         uint64_t{stride_bytes >> 4} << 32 | kSwizzle128 << 62;
}

// Rows of a column, its elements along the product's sum: Q, and K as the right matrix. Groups of
// eight rows follow each other; the leading offset has no meaning here.
constexpr Matrix RowsOfColumn(uint32_t address) {
  return DescribeMatrix(address, 16, 8 * kColumnRowBytes);
}

// Columns side by side, `column_bytes` apart, their rows along the product's sum: V as the right
// matrix, whose elements are the result's columns.
constexpr Matrix ColumnsOfRows(uint32_t address, uint32_t column_bytes) {
  return DescribeMatrix(address, column_bytes, 8 * kColumnRowBytes);
}

// The same matrix from `bytes` on.
constexpr Matrix Advance(Matrix matrix, uint32_t bytes) { return matrix + (bytes >> 4); }

}  // namespace pagoda::kernels::cuda

#ifdef __CUDACC__
#include "kernels/cuda/hopper_ptx.h"
#else
#include PAGODA_HOPPER_EMULATION
#endif

#endif  // PAGODA_KERNELS_CUDA_HOPPER_H_
