// Attention as the textbook has it, in fp64: scores, softmax, weighted sum, one query head at a
// time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention_checks.h"
#include "kernels/numeric.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels::reference {
namespace {

// One head's vectors of the tokens 0 to count - 1 of a sequence, gathered from its blocks.
std::vector<std::vector<double>> Gather(const KvLayer& kv, const std::byte* base,
                                        const int32_t* block_table, uint32_t head, uint64_t count) {
  std::vector<std::vector<double>> vectors;
  for (uint64_t position = 0; position < count; ++position) {
    const auto slot = static_cast<uint32_t>(block_table[position / kv.tokens_per_block]);
    const auto token = static_cast<uint32_t>(position % kv.tokens_per_block);
    const std::byte* bytes = base + kv.offset_bytes(slot, head, token);
    std::vector<double>& vector = vectors.emplace_back();
    VisitElementType(kv.type, [&]<class T>() {
      const T* elements = reinterpret_cast<const T*>(bytes);
      for (uint32_t i = 0; i < kv.head_dim; ++i) vector.push_back(ToFloat(elements[i]));
    });
  }
  return vectors;
}

// softmax(scale * q . K) V over the tokens 0 to position.
void AttendOne(const float* query, float scale, const std::vector<std::vector<double>>& keys,
               const std::vector<std::vector<double>>& values, uint64_t position, uint32_t head_dim,
               float* output) {
  std::vector<double> weights(position + 1);
  for (uint64_t t = 0; t <= position; ++t) {
    double score = 0;
    for (uint32_t i = 0; i < head_dim; ++i) score += double{query[i]} * keys[t][i];
    weights[t] = score * scale;
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  for (uint32_t i = 0; i < head_dim; ++i) {
    double element = 0;
    for (uint64_t t = 0; t <= position; ++t) element += weights[t] / sum * values[t][i];
    output[i] = static_cast<float>(element);
  }
}

}  // namespace

absl::Status PagedAttention(const PagedAttentionParams& params) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  const KvLayer& kv = params.kv;
  const uint32_t group = params.num_heads / kv.num_kv_heads;
  for (size_t s = 0; s < params.context_lengths.size(); ++s) {
    const int32_t* table = params.block_tables.data() + s * params.block_table_stride;
    const auto context = static_cast<uint64_t>(params.context_lengths[s]);
    const uint64_t end = params.query_starts[s + 1];
    for (uint32_t head = 0; head < params.num_heads; ++head) {
      const auto keys = Gather(kv, kv.keys, table, head / group, context);
      const auto values = Gather(kv, kv.values, table, head / group, context);
      for (uint64_t n = params.query_starts[s]; n < end; ++n) {
        AttendOne(params.query + n * params.query_token_stride + head * kv.head_dim, params.scale,
                  keys, values, /*position=*/context - end + n, kv.head_dim,
                  params.output + n * params.output_token_stride + head * kv.head_dim);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::reference
