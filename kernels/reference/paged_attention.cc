// Textbook attention in fp64: scores, softmax, weighted sum, one query head at a time.
#include "kernels/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/attention_checks.h"
#include "kernels/numeric.h"

namespace pagoda::kernels::reference {
namespace {

// The `count` elements at `data`, each times `scale`.
std::vector<double> Load(const void* data, ElementType type, uint32_t count, double scale = 1.0) {
  std::vector<double> vector;
  vector.reserve(count);
  VisitElementType(type, [&]<class T>() {
    const T* elements = static_cast<const T*>(data);
    for (uint32_t i = 0; i < count; ++i) vector.push_back(scale * double{ToFloat(elements[i])});
  });
  return vector;
}

double ScaleOf(const KvScales& scales, const float* part, uint32_t slot, uint32_t head) {
  return part == nullptr ? 1.0 : *scales.At(part, slot, head);
}

uint32_t SlotOf(const KvLayer& kv, const int32_t* block_table, int64_t position) {
  return static_cast<uint32_t>(block_table[position / kv.tokens_per_block]);
}

// The bytes of a head's key or value of the token at `position` of a sequence.
const std::byte* Find(const KvLayer& kv, const std::byte* base, const int32_t* block_table,
                      uint32_t head, int64_t position) {
  return base + kv.offset_bytes(SlotOf(kv, block_table, position), head,
                                static_cast<uint32_t>(position % kv.tokens_per_block));
}

class Attention {
 public:
  explicit Attention(const PagedAttentionParams& params)
      : params_(params), kv_(params.kv), group_(params.num_heads / params.kv.num_kv_heads) {}

  void Run() {
    for (size_t s = 0; s < params_.context_lengths.size(); ++s) {
      for (uint32_t head = 0; head < params_.num_heads; ++head) {
        for (int64_t n = params_.query_starts[s]; n < params_.query_starts[s + 1]; ++n) {
          Attend(s, head, n);
        }
      }
    }
  }

 private:
  // Computes one query head of the batch's query token n, which belongs to sequence s.
  void Attend(size_t s, uint32_t head, int64_t n) {
    const int64_t context = params_.context_lengths[s];
    const int64_t position = context - params_.query_starts[s + 1] + n;
    const int32_t* table = params_.block_tables.data() + s * params_.block_table_stride;
    const std::vector<double> query = Load(QueryAt(n, head), params_.query_type, kv_.head_dim);

    std::vector<int64_t> keys;  // The positions that it sees.
    std::vector<double> scores;
    for (int64_t key = 0; key < context; ++key) {
      if (!Sees(params_.mask, head, position, key)) continue;
      keys.push_back(key);
      scores.push_back(Score(query, KeyAt(table, head / group_, key), head,
                             static_cast<double>(key - position)));
    }

    const double sink = params_.sink_logits == nullptr ? -std::numeric_limits<double>::infinity()
                                                       : double{params_.sink_logits[head]};
    double largest = sink;
    for (const double score : scores) largest = std::max(largest, score);
    std::vector<double> output(kv_.value_elements(), 0.0);
    double sum = scores.empty() && params_.sink_logits == nullptr ? 0.0 : std::exp(sink - largest);
    for (const double score : scores) sum += std::exp(score - largest);
    for (size_t i = 0; i < keys.size(); ++i) {
      const double weight = std::exp(scores[i] - largest) / sum;
      const std::vector<double> value =
          Load(Find(kv_, kv_.values, table, head / group_, keys[i]), kv_.type, kv_.value_elements(),
               ScaleOf(kv_.scales, kv_.scales.values, SlotOf(kv_, table, keys[i]), head / group_));
      for (size_t e = 0; e < output.size(); ++e) output[e] += weight * value[e];
    }
    StoreOutput(n, head, output);
    if (params_.lse != nullptr) {
      params_.lse[n * params_.num_heads + head] = sum == 0.0
                                                      ? -std::numeric_limits<float>::infinity()
                                                      : static_cast<float>(largest + std::log(sum));
    }
  }

  std::vector<double> KeyAt(const int32_t* table, uint32_t kv_head, int64_t position) const {
    return Load(Find(kv_, kv_.keys, table, kv_head, position), kv_.type, kv_.head_dim,
                ScaleOf(kv_.scales, kv_.scales.keys, SlotOf(kv_, table, position), kv_head));
  }

  double Score(const std::vector<double>& query, const std::vector<double>& key, uint32_t head,
               double distance) const {
    double score = 0;
    for (uint32_t i = 0; i < kv_.head_dim; ++i) score += query[i] * key[i];
    score *= params_.scale;
    if (params_.soft_cap > 0) score = params_.soft_cap * std::tanh(score / params_.soft_cap);
    if (params_.alibi_slopes != nullptr) score += params_.alibi_slopes[head] * distance;
    return score;
  }

  const std::byte* QueryAt(int64_t n, uint32_t head) const {
    return static_cast<const std::byte*>(params_.query) +
           (n * params_.query_token_stride + uint64_t{head} * kv_.head_dim) *
               ElementBytes(params_.query_type);
  }

  void StoreOutput(int64_t n, uint32_t head, const std::vector<double>& output) const {
    VisitElementType(params_.query_type, [&]<class T>() {
      T* elements = static_cast<T*>(params_.output) + n * params_.output_token_stride +
                    uint64_t{head} * output.size();
      for (size_t e = 0; e < output.size(); ++e) {
        elements[e] = FromFloat<T>(static_cast<float>(output[e]));
      }
    });
  }

  const PagedAttentionParams& params_;
  const KvLayer& kv_;
  const uint32_t group_;
};

}  // namespace

absl::Status PagedAttention(const PagedAttentionParams& params) {
  if (absl::Status status = CheckHostArguments(params); !status.ok()) return status;
  Attention(params).Run();
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::reference
