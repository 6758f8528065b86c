#include "tests/engine/model/stored_matrix.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

template <class T>
void Append(std::vector<std::byte>& bytes, const T& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(T));
}

// Where a block has its scales of fp16, and one that keeps its numbers below 4.
struct ScaleField {
  uint64_t at;
  float value;
};
std::vector<ScaleField> ScalesOf(TensorType type) {
  switch (type) {
    case TensorType::kQ8_0:
      return {{0, 0.015625f}};
    case TensorType::kQ4_0:
      return {{0, 0.21f}};
    case TensorType::kQ4_1:
      return {{0, 0.13f}, {2, -1.1f}};
    case TensorType::kQ5_0:
      return {{0, 0.11f}};
    case TensorType::kQ5_1:
      return {{0, 0.07f}, {2, -1.2f}};
    case TensorType::kQ2_K:
      return {{80, 0.06f}, {82, 0.09f}};
    case TensorType::kQ3_K:
      return {{108, 0.03f}};
    case TensorType::kQ4_K:
      return {{0, 0.004f}, {2, 0.03f}};
    case TensorType::kQ5_K:
      return {{0, 0.002f}, {2, 0.03f}};
    case TensorType::kQ6_K:
      return {{208, 0.0009f}};
    case TensorType::kIQ4_NL:
      return {{0, 0.015f}};
    case TensorType::kIQ4_XS:
      return {{0, 0.0007f}};
    default:
      return {};
  }
}

std::vector<std::byte> RandomBlocks(TensorType type, uint64_t blocks, std::mt19937& random) {
  const uint64_t block_bytes = LayoutOf(type).bytes;
  std::vector<std::byte> bytes(blocks * block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (uint64_t b = 0; b < blocks; ++b) {
    std::byte* const block = bytes.data() + b * block_bytes;
    for (const ScaleField& field : ScalesOf(type)) {
      // Different from block to block.
      const float factor = 0.5f + 0.5f * static_cast<float>(random() % 1024) / 1024.0f;
      const kernels::Half scale = kernels::ToHalf(field.value * factor);
      std::memcpy(block + field.at, &scale, sizeof(scale));
    }
    // An exponent of two: 1/16 to 1/2 for numbers of at most 12 halves.
    if (type == TensorType::kMxfp4) block[0] = static_cast<std::byte>(123 + random() % 4);
  }
  return bytes;
}

std::vector<std::byte> RandomNumbers(TensorType type, uint64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes;
  for (uint64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    if (type == TensorType::kFloat32) Append(bytes, value);
    if (type == TensorType::kFloat16) Append(bytes, kernels::ToHalf(value));
    if (type == TensorType::kBFloat16) Append(bytes, kernels::ToBFloat16(value));
  }
  return bytes;
}

std::vector<std::byte> Content(TensorType type, uint64_t elements, std::mt19937& random) {
  PAGODA_CHECK(elements % LayoutOf(type).elements == 0, "rows are whole blocks");
  if (!IsQuantised(type)) return RandomNumbers(type, elements, random);
  return RandomBlocks(type, elements / LayoutOf(type).elements, random);
}

uint64_t PageBytes() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

GuardedBytes::GuardedBytes(const std::vector<std::byte>& content, End end) {
  const uint64_t page = PageBytes();
  const uint64_t gap = end == End::kAtTheEdge ? 0 : 1;
  const uint64_t usable = (content.size() + gap + page - 1) / page * page;
  void* const mapped = mmap(nullptr, usable + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  PAGODA_CHECK(mapped != MAP_FAILED, "a test has memory");
  memory_ = {static_cast<std::byte*>(mapped), Unmap{.bytes = usable + page}};
  std::byte* const begin = memory_.get() + usable - gap - content.size();
  if (!content.empty()) std::memcpy(begin, content.data(), content.size());
  PAGODA_CHECK(mprotect(memory_.get(), usable, PROT_READ) == 0 &&
                   mprotect(memory_.get() + usable, page, PROT_NONE) == 0,
               "a test's memory can be protected");
  bytes_ = {begin, content.size()};
}

void GuardedBytes::Forbid() const {
  PAGODA_CHECK(mprotect(memory_.get(), memory_.get_deleter().bytes, PROT_NONE) == 0,
               "a test's memory can be protected");
}

void Unmap::operator()(std::byte* data) const { munmap(data, bytes); }

StoredMatrix::StoredMatrix(TensorType type, uint64_t rows, uint64_t cols, std::mt19937& random)
    : type_(type),
      rows_(rows),
      cols_(cols),
      memory_(Content(type, rows * cols, random),
              random() % 2 == 0 ? GuardedBytes::End::kAtTheEdge : GuardedBytes::End::kAByteBefore),
      values_(ToFloats(info())) {}

GuardedRows::GuardedRows(uint64_t rows, uint64_t cols, std::mt19937& random)
    : GuardedRows(rows, cols) {
  std::normal_distribution<float> normal;
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < cols; ++c) at(r, c) = normal(random);
  }
}

bool GuardedRows::guarded() const {
  for (uint64_t r = 0; r <= rows_; ++r) {
    for (uint64_t c = r == rows_ ? 0 : cols_; c < cols_ + kGap; ++c) {
      if (at(r, c) != kGuard) return false;
    }
  }
  return true;
}

}  // namespace pagoda
