#include "engine/checkpoint/files/mxfp4_pairs.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr uint64_t kBlockElements = 32;
constexpr uint64_t kNibbleBytes = 16;
constexpr uint64_t kBlockBytes = 1 + kNibbleBytes;

// One block of ggml's.
void JoinBlock(std::byte exponent, const std::byte* nibbles, std::byte* block) {
  const auto element = [&](uint64_t i) {
    const std::byte pair = nibbles[i / 2];
    return i % 2 == 0 ? pair & std::byte{0x0f} : pair >> 4;
  };
  block[0] = exponent;
  for (uint64_t i = 0; i < kNibbleBytes; ++i) {
    block[1 + i] = element(i) | (element(kNibbleBytes + i) << 4);
  }
}

// `rows` rows of an expert, of which `parts` matrices take turns.
void JoinRows(const std::byte* exponents, const std::byte* nibbles, uint64_t rows, uint64_t blocks,
              uint64_t parts, std::byte* target) {
  for (uint64_t row = 0; row < rows; ++row) {
    const uint64_t target_row = row % parts * (rows / parts) + row / parts;
    for (uint64_t b = 0; b < blocks; ++b) {
      JoinBlock(exponents[row * blocks + b], nibbles + (row * blocks + b) * kNibbleBytes,
                target + (target_row * blocks + b) * kBlockBytes);
    }
  }
}

}  // namespace

absl::StatusOr<JoinedTensors> JoinMxfp4Pairs(const ByteTensorMap& tensors) {
  JoinedTensors joined;
  for (const auto& [name, nibbles] : tensors) {
    absl::string_view base = name;
    if (!absl::ConsumeSuffix(&base, "_blocks")) continue;
    const auto partner = tensors.find(absl::StrCat(base, "_scales"));
    if (partner == tensors.end()) continue;
    const ByteTensor& scales = partner->second;
    const uint64_t parts = absl::EndsWith(base, "gate_up_proj") ? 2 : 1;
    std::vector<uint64_t> with_nibbles = scales.shape;
    with_nibbles.push_back(kNibbleBytes);
    if (scales.shape.size() != 3 || scales.bytes.empty() || nibbles.shape != with_nibbles ||
        scales.shape[1] % parts != 0) {
      return MakeError(Reason::kInvalidCheckpoint,
                       absl::StrCat("tensor ", name.substr(0, 200),
                                    " does not have 16 bytes for each number of its _scales"));
    }
    const uint64_t experts = scales.shape[0];
    const uint64_t rows = scales.shape[1];
    const uint64_t blocks = scales.shape[2];
    std::vector<std::byte>& copy = joined.copies.emplace_back(scales.bytes.size() * kBlockBytes);
    for (uint64_t e = 0; e < experts; ++e) {
      const uint64_t first = e * rows * blocks;
      JoinRows(scales.bytes.data() + first, nibbles.bytes.data() + first * kNibbleBytes, rows,
               blocks, parts, copy.data() + first * kBlockBytes);
    }
    joined.tensors.emplace(absl::StrCat(base, ".weight"),
                           TensorInfo{.type = TensorType::kMxfp4,
                                      .shape = {experts, rows, blocks * kBlockElements},
                                      .bytes = copy});
  }
  return joined;
}

}  // namespace pagoda
