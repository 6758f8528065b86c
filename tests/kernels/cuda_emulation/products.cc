#include "tests/kernels/cuda_emulation/products.h"

#include <bit>
#include <cstring>
#include <utility>

namespace pagoda::kernels::cuda::emulation {
namespace {

constexpr uint32_t kRows = 64;
constexpr uint32_t kWarpsRows = 16;
constexpr uint32_t kDepth = 16;              // The products' extent along the sum.
constexpr uint32_t kUnderWay = 0x7fcdead1u;  // A NaN that marks sums in flight.

// A matrix descriptor (PTX ISA, "Matrix Descriptor Format" of wgmma).
struct Descriptor {
  uint32_t address;
  uint32_t leading_bytes;
  uint32_t stride_bytes;
  uint32_t base_offset;
  uint32_t swizzle_bytes;  // 16 (none), 32, 64 or 128.

  explicit Descriptor(uint64_t bits)
      : address(static_cast<uint32_t>(bits & 0x3fff) << 4),
        leading_bytes(static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4),
        stride_bytes(static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4),
        base_offset(static_cast<uint32_t>(bits >> 49 & 7)) {
    constexpr uint32_t kBytes[] = {16, 128, 64, 32};
    swizzle_bytes = kBytes[bits >> 62];
  }

  // 32, 64 and 128: exclusive-or of the bits from 4 on with the bits from 7 on, for the pattern's
  // number of bits.
  uint32_t Swizzled(uint32_t at) const { return at ^ (at >> 7 & (swizzle_bytes / 16 - 1)) << 4; }

  // The offset of a 16-bit element if a row's elements are along the sum (K-major): row `row`,
  // element k.
  uint32_t AlongSum(uint32_t row, uint32_t k) const {
    const uint32_t across = k * 2;
    if (swizzle_bytes == 16) {
      return address + row % 8 * 16 + row / 8 * stride_bytes + across / 16 * leading_bytes +
             across % 16;
    }
    return Swizzled(address + row % 8 * swizzle_bytes + row / 8 * stride_bytes + across);
  }

  // The offset if columns are contiguous (MN-major): column n of row k of the sum.
  uint32_t AcrossSum(uint32_t n, uint32_t k) const {
    const uint32_t across = n * 2;
    if (swizzle_bytes == 16) {
      return address + across / 16 * stride_bytes + across % 16 + k % 8 * 16 +
             k / 8 * leading_bytes;
    }
    return Swizzled(address + across / swizzle_bytes * leading_bytes + across % swizzle_bytes +
                    k % 8 * swizzle_bytes + k / 8 * stride_bytes);
  }
};

bool Same(const Product& a, const Product& b) {
  return a.columns == b.columns && a.add == b.add && a.left_in_registers == b.left_in_registers &&
         a.left == b.left && a.right == b.right && a.right_transposed == b.right_transposed &&
         a.to_float == b.to_float;
}

// The addresses of a matrix's 16-byte chunks, for `rows` rows (or columns of the result) by kDepth.
std::vector<uint32_t> ChunksOf(const Descriptor& matrix, uint32_t rows, bool transposed) {
  std::vector<uint32_t> chunks;
  if (transposed) {
    for (uint32_t k = 0; k < kDepth; ++k) {
      for (uint32_t n = 0; n < rows; n += 8) chunks.push_back(matrix.AcrossSum(n, k));
    }
  } else {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t k = 0; k < kDepth; k += 8) chunks.push_back(matrix.AlongSum(row, k));
    }
  }
  return chunks;
}

}  // namespace

uint64_t& Products::count() {
  thread_local uint64_t count = 0;
  return count;
}

void Products::Start(uint32_t warp, const Product& product) {
  Warp& self = warps_[warp];
  ++count();
  std::vector<Product>& log = started_[warp / 4];
  if (self.count == log.size()) {
    log.push_back(product);
  } else if (!Same(log[self.count], product)) {
    report_("the warps of a warpgroup start different products");
  }
  ++self.count;
  if (!self.fenced) report_("a group of products begins without a fence of its registers");

  Started started = {.product = product, .registers = {}, .left_chunks = {}, .right_chunks = {}};
  const Descriptor right(product.right);
  for (const uint64_t bits : {product.left, product.right}) {
    if (Descriptor(bits).base_offset != 0) report_("a matrix's base offset is not 0");
  }
  started.right_chunks = ChunksOf(right, product.columns, product.right_transposed);
  if (product.left_in_registers) {
    for (uint32_t i = 0; i < kWarpLanes; ++i) {
      std::memcpy(started.registers[i], product.registers[i], sizeof(started.registers[i]));
    }
  } else {
    started.left_chunks = ChunksOf(Descriptor(product.left), kRows, false);
  }
  const Knowledge knowledge = ordering_.OfWarp(warp);
  for (std::vector<uint32_t>* chunks : {&started.left_chunks, &started.right_chunks}) {
    for (uint32_t& chunk : *chunks) {
      if (!shared_.BeginProduct(knowledge, chunk)) chunk = 0;
    }
  }

  Sums& sums = self.sums[product.sums[0]];
  const uint32_t size = product.columns / 2;
  for (uint32_t i = 0; i < kWarpLanes; ++i) {
    if (sums.under_way == 0) {
      sums.values[i].assign(product.sums[i], product.sums[i] + size);
      for (uint32_t n = 0; n < size; ++n) product.sums[i][n] = std::bit_cast<float>(kUnderWay);
    } else if (sums.values[i].size() != size) {
      report_("products of different shapes add to the same sums");
      return;
    }
  }
  ++sums.under_way;
  self.open.push_back(std::move(started));
}

void Products::Commit(uint32_t warp) {
  Warp& self = warps_[warp];
  self.groups.push_back(std::exchange(self.open, {}));
  self.fenced = false;
}

void Products::Wait(uint32_t warp, uint32_t pending) {
  Warp& self = warps_[warp];
  while (self.groups.size() > pending) {
    std::vector<Started> group = std::move(self.groups.front());
    self.groups.pop_front();
    for (Started& started : group) Finish(warp, started);
  }
}

void Products::Finish(uint32_t warp, Started& started) {
  const Product& product = started.product;
  // 16 bytes per chunk, in the order of ChunksOf.
  const auto read = [&](const std::vector<uint32_t>& chunks) {
    std::vector<uint16_t> elements(chunks.size() * 8, 0xffff);
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (chunks[i] == 0) continue;
      shared_.EndProduct(warp, chunks[i], reinterpret_cast<std::byte*>(&elements[i * 8]));
    }
    return elements;
  };
  float left[kWarpsRows][kDepth];
  const std::vector<uint16_t> left_elements = read(started.left_chunks);
  for (uint32_t row = 0; row < kWarpsRows && !product.left_in_registers; ++row) {
    for (uint32_t k = 0; k < kDepth; ++k) {
      left[row][k] = product.to_float(left_elements[(warp % 4 * kWarpsRows + row) * kDepth + k]);
    }
  }
  for (uint32_t i = 0; i < kWarpLanes && product.left_in_registers; ++i) {
    if (std::memcmp(started.registers[i], product.registers[i], 16) != 0) {
      report_("a left matrix in registers was touched while a product read it");
    }
    // The fragment of m16n8k16.
    for (uint32_t r = 0; r < 4; ++r) {
      for (uint32_t half = 0; half < 2; ++half) {
        left[i / 4 + r % 2 * 8][i % 4 * 2 + r / 2 * 8 + half] =
            product.to_float(static_cast<uint16_t>(started.registers[i][r] >> 16 * half));
      }
    }
  }
  std::vector<float> right(kDepth * product.columns);  // [k][n]
  const std::vector<uint16_t> right_elements = read(started.right_chunks);
  for (uint32_t k = 0; k < kDepth; ++k) {
    for (uint32_t n = 0; n < product.columns; ++n) {
      const size_t at = product.right_transposed ? k * product.columns + n : n * kDepth + k;
      right[k * product.columns + n] = product.to_float(right_elements[at]);
    }
  }

  Sums& sums = warps_[warp].sums.at(product.sums[0]);
  std::vector<float> row_sums(product.columns);
  for (uint32_t row = 0; row < kWarpsRows; ++row) {
    // The lane's values in this row: two in each eight columns.
    const auto value = [&](uint32_t n) -> float& {
      return sums.values[row % 8 * 4 + n % 8 / 2][n / 8 * 4 + row / 8 * 2 + n % 2];
    };
    for (uint32_t n = 0; n < product.columns; ++n) row_sums[n] = product.add ? value(n) : 0.0f;
    for (uint32_t k = 0; k < kDepth; ++k) {
      const float factor = left[row][k];
      const float* columns = &right[k * product.columns];
      for (uint32_t n = 0; n < product.columns; ++n) row_sums[n] += factor * columns[n];
    }
    for (uint32_t n = 0; n < product.columns; ++n) value(n) = row_sums[n];
  }
  if (--sums.under_way > 0) return;
  bool touched = false;
  for (uint32_t i = 0; i < kWarpLanes; ++i) {
    for (size_t n = 0; n < sums.values[i].size(); ++n) {
      touched = touched || std::bit_cast<uint32_t>(product.sums[i][n]) != kUnderWay;
      product.sums[i][n] = sums.values[i][n];
    }
  }
  if (touched) report_("sums were touched while products that add to them were under way");
  warps_[warp].sums.erase(product.sums[0]);
}

void Products::CheckNoneLeft() {
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    if (!warps_[warp].open.empty() || !warps_[warp].groups.empty()) {
      report_("a warp ends with products that it has not waited for");
    }
    if (warps_[warp].count != started_[warp / 4].size()) {
      report_("the warps of a warpgroup start different numbers of products");
    }
  }
}

}  // namespace pagoda::kernels::cuda::emulation
