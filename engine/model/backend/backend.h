// The memory of a model's weights and activations, and the operations of its graph.
#ifndef PAGODA_ENGINE_MODEL_BACKEND_BACKEND_H_
#define PAGODA_ENGINE_MODEL_BACKEND_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/model_input.h"
#include "engine/model/backend/product_end.h"
#include "engine/model/backend/rows_view.h"
#include "engine/words/gpu_graphs.h"
#include "kernels/types.h"

namespace pagoda {

// Weights that a backend has loaded, in the form that it prefers. Only the backend that made such
// an object knows its form. The object is destroyed before the backend and before the checkpoint
// whose bytes it was made from.
class LinearWeights {  // A matrix [outputs][inputs], and a bias.
 public:
  virtual ~LinearWeights() = default;
  virtual uint64_t inputs() const = 0;
  virtual uint64_t outputs() const = 0;
};
class EmbeddingWeights {  // [vocab_size][hidden_size]
 public:
  virtual ~EmbeddingWeights() = default;
};
class VectorWeights {
 public:
  virtual ~VectorWeights() = default;
};

// fp32 in the backend's memory, uninitialised.
using FloatMemory = std::unique_ptr<float[], std::function<void(float*)>>;

// The attention of a layer.
struct AttentionShape {
  uint32_t window_index = 0;  // In ModelInput::windows.
  uint32_t num_heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;                        // 0: none.
  const VectorWeights* sinks = nullptr;         // [num_heads], added to the scores; null: none.
  const VectorWeights* alibi_slopes = nullptr;  // [num_heads]; null: none.
};

// Heads of a row: element i of head h is in column h * head_dim + i.
struct RotationShape {
  uint32_t rotary = 0;  // In ModelConfig::rotaries. It says how many elements are rotated.
  uint32_t head_dim = 0;
  uint32_t first_element = 0;  // The first rotated element of each head.
};

// RMSNorm (Zhang and Sennrich, 2019), or LayerNorm (Ba et al., 2016) if there is a bias.
struct NormShape {
  const VectorWeights* weights = nullptr;  // [cols]
  const VectorWeights* bias = nullptr;     // [cols], or null.
  float eps = 0.0f;
};

// The heads of one layer, as the product of its three matrices makes them, and what becomes of
// them before attention.
struct LayerHeads {
  RowsView queries;                           // [N][num_heads][head_dim]
  RowsView keys;                              // [N][num_kv_heads][head_dim]
  RowsView values;                            // [N][num_kv_heads][head_dim]
  const RotationShape* rotation = nullptr;    // The rotation of queries and keys; null: none.
  const VectorWeights* query_norm = nullptr;  // [head_dim], before the rotation; null: none.
  const VectorWeights* key_norm = nullptr;    // [head_dim], before the rotation; null: none.
  float eps = 0.0f;
  uint32_t window_index = 0;  // In ModelInput::windows.
};

// A factor of Backend::MultiplyEach.
struct ProductOfRows {
  const LinearWeights* weights = nullptr;
  RowsView input;
  RowsView output;
};

// An activation and its numbers.
struct GateShape {
  Activation activation = Activation::kSilu;
  float alpha = 0.0f;  // Only for kClampedSilu.
  float limit = 0.0f;
};

// A product with the operations before and behind it.
struct FusedProduct {
  const LinearWeights* weights = nullptr;
  NormShape norm;  // The norm of the input's rows; without weights: none.
  RowsView input;  // The type is fp32; without a norm also FactorType(*weights).
  ProductEnd end = ProductEnd::kStore;
  GateShape gate;   // Only for kGate and kActivate.
  RowsView output;  // The type is fp32; with kGate and kActivate any. Overlaps nothing else.
};

// Thread-compatible. A step is BeginStep, operations, EndStep. Operations run in the order of the
// calls, possibly later; EndStep waits for them. They return nothing, so that the graph is easy to
// read. After the first failure all further operations do nothing, and EndStep reports the failure.
class Backend {
 public:
  virtual ~Backend() = default;

  // For people, for example "cpu, 2 threads, products of bf16".
  virtual std::string description() const = 0;

  // --- Loading a model. Errors: OUT_OF_MEMORY. ---

  // Stacks the matrices, which have the same number of columns. `bias` has one number per row, or
  // is empty.
  virtual absl::StatusOr<std::unique_ptr<LinearWeights>> MakeLinear(
      absl::Span<const TensorInfo> matrices, absl::Span<const float> bias) = 0;
  // Keeps pointing at the tensor's bytes if the backend can read them.
  virtual absl::StatusOr<std::unique_ptr<EmbeddingWeights>> MakeEmbedding(
      const TensorInfo& matrix) = 0;
  virtual absl::StatusOr<std::unique_ptr<VectorWeights>> MakeVector(
      absl::Span<const float> values) = 0;
  // For activations. Aligned to 64 bytes.
  virtual absl::StatusOr<FloatMemory> Allocate(uint64_t elements) = 0;
  // The number of rows for which memory of `rows` rows should have room (RowsView::room): at least
  // `rows`. Products of a few numbers of rows only can be cheaper.
  virtual uint64_t RoomFor(uint64_t rows) const { return rows; }

  // --- Types of rows. Rows are fp32 unless these functions say that 16 bits are better: then the
  // next operation reads what it would round anyway. ---

  // The type in which products with this matrix read their input, where the operation before them
  // can write it: RmsNorm, LayerNorm, AddAndNorm, Gate, TakeRows and Attend.
  virtual kernels::ElementType FactorType(const LinearWeights&) const {
    return kernels::ElementType::kFloat32;
  }
  // The type in which attention over this cache reads queries that PlaceHeads writes.
  virtual kernels::ElementType QueryType(const kernels::KvLayer&) const {
    return kernels::ElementType::kFloat32;
  }

  // --- A step ---

  // The number of rows with which a step of this input computes: that of its tokens, or more if the
  // backend then can replay the step. More only if the wanted logits are those of all tokens in
  // their order; they are then behind each other in the first rows. The rows behind the tokens have
  // undefined numbers, and change nothing.
  virtual uint64_t StepRows(const ModelInput& input, const ModelConfig&) const {
    return input.tokens.size();
  }
  // The following operations are for this input, which must not change until the step ends. Does
  // the work that each step needs once: uploads, the angles of positions for each of
  // config.rotaries, and an attention plan for each window and number of KV heads of config.layers.
  virtual void BeginStep(const ModelInput& input, const ModelConfig& config) = 0;
  // Runs the operations of the step between BeginStep and EndStep, which `operations` calls in
  // their order, over rows of StepRows and these pools, one for each layer. A backend can call
  // `operations` again after a failure, or replay an earlier step instead.
  virtual void RunOperations(absl::Span<const kernels::KvLayer>,
                             const std::function<void()>& operations) {
    operations();
  }

  // output[n] = scale * the row of the input's token n.
  virtual void Embed(const EmbeddingWeights& weights, float scale, const RowsView& output) = 0;
  // output = input * transpose(weights) + bias. The two do not overlap.
  virtual void Multiply(const LinearWeights& weights, const RowsView& input,
                        const RowsView& output) = 0;
  // Many products, whose outputs do not overlap. The backend can compute them side by side.
  virtual void MultiplyEach(absl::Span<const ProductOfRows> products) {
    for (const ProductOfRows& p : products) Multiply(*p.weights, p.input, p.output);
  }
  // Whether MultiplyFused takes the product. The answer depends on the product's numbers in no way,
  // and is the same in the whole step.
  virtual bool CanFuse(const FusedProduct&) const { return false; }
  // The product with all that belongs to it. REQUIRES: CanFuse.
  virtual void MultiplyFused(const FusedProduct&) {
    PAGODA_CHECK(false, "this backend fuses no products");
  }
  // Divides each row by the root of its mean square (plus eps) and multiplies it by the weights.
  // `output` can be `input` if it is fp32.
  virtual void RmsNorm(const VectorWeights& weights, float eps, const RowsView& input,
                       const RowsView& output) = 0;
  // Subtracts each row's mean, divides by the root of its variance (plus eps), multiplies by the
  // weights and adds the bias. `output` can be `input` if it is fp32.
  virtual void LayerNorm(const VectorWeights& weights, const VectorWeights& bias, float eps,
                         const RowsView& input, const RowsView& output) = 0;
  // One of the two.
  void NormRows(const NormShape& norm, const RowsView& input, const RowsView& output) {
    if (norm.bias != nullptr) return LayerNorm(*norm.weights, *norm.bias, norm.eps, input, output);
    RmsNorm(*norm.weights, norm.eps, input, output);
  }
  // sum += addend, which is normed before that if `addend_norm` is not null; then output = the norm
  // of the sum. The addend's content is lost.
  virtual void AddAndNorm(const NormShape* addend_norm, const RowsView& addend, const RowsView& sum,
                          const NormShape& norm, const RowsView& output) {
    AddNormed(addend_norm, addend, sum);
    NormRows(norm, sum, output);
  }
  // The first half of that.
  void AddNormed(const NormShape* addend_norm, const RowsView& addend, const RowsView& sum) {
    if (addend_norm != nullptr) NormRows(*addend_norm, addend, addend);
    Add(addend, sum);
  }
  // Rotates the heads by their tokens' angles, in place. With `norm`, each head is first normed by
  // these weights. (Su et al., 2021.)
  virtual void Rotate(const RotationShape& shape, const VectorWeights* norm, float eps,
                      const RowsView& heads) = 0;
  // Writes the tokens' K and V [N][num_kv_heads][head_dim] into the cache. For a layer with K only,
  // `values` has no data.
  virtual void WriteCache(uint32_t window_index, const RowsView& keys, const RowsView& values,
                          const kernels::KvLayer& kv) = 0;
  // Norms and rotates queries and keys, writes keys and values into the cache, and leaves the
  // queries in `queries`, of the type QueryType(kv). If that is fp32, `queries` is heads.queries.
  virtual void PlaceHeads(const LayerHeads& heads, const kernels::KvLayer& kv,
                          const RowsView& queries) {
    if (heads.rotation != nullptr) {
      Rotate(*heads.rotation, heads.query_norm, heads.eps, queries);
      Rotate(*heads.rotation, heads.key_norm, heads.eps, heads.keys);
    }
    WriteCache(heads.window_index, heads.keys, heads.values, kv);
  }
  // output[n] = attention of token n's queries [num_heads][head_dim] over the cache:
  // [num_heads][value_dim]. The two do not overlap, or are the same memory if the queries have 16
  // bits and as many columns.
  virtual void Attend(const AttentionShape& shape, const RowsView& queries,
                      const kernels::KvLayer& kv, const RowsView& output) = 0;
  // output = activation(gate) * up. The rows of gate_up have the columns of gate, then those of up.
  virtual void Gate(const GateShape& gate, const RowsView& gate_up, const RowsView& output) = 0;
  // rows = activation(rows), in place. REQUIRES: kGeluTanh.
  virtual void Activate(Activation activation, const RowsView& rows) = 0;
  // sum += addend.
  virtual void Add(const RowsView& addend, const RowsView& sum) = 0;
  // sum[rows[i]] += factors[i] * addend[i], in this order. `rows` and `factors` are on the host.
  virtual void AddRows(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
                       const RowsView& addend, const RowsView& sum) = 0;
  // output = 0.
  virtual void Clear(const RowsView& output) = 0;
  // Copies the first `count` elements of each of num_heads heads.
  virtual void CopyHeads(uint32_t num_heads, uint32_t count, const HeadsView& input,
                         const HeadsView& output) = 0;
  // output[i] = the row rows[i] of `input`, of the same type. `rows` is on the host.
  virtual void TakeRows(absl::Span<const uint32_t> rows, const RowsView& input,
                        const RowsView& output) = 0;
  // The rows on the host, contiguous, after all operations so far. Valid until the next operation.
  // Empty after a failure.
  virtual absl::Span<const float> ToHost(const RowsView& rows) = 0;
  // Ends the step and returns `logits`, whose rows are contiguous, on the host. Unless soft_cap is
  // 0, each logit becomes soft_cap * tanh(logit / soft_cap). Valid until the next step. Errors:
  // INTERNAL with the operation that failed; OUT_OF_MEMORY if the operation lacked memory.
  virtual absl::StatusOr<absl::Span<const float>> EndStep(float soft_cap,
                                                          const RowsView& logits) = 0;
  // The same, but the backend may choose the tokens of ModelInput::draws, and leave out the logits
  // of their rows.
  virtual absl::StatusOr<ModelOutput> EndStepWithDraws(float soft_cap, const RowsView& logits) {
    const absl::StatusOr<absl::Span<const float>> ended = EndStep(soft_cap, logits);
    if (!ended.ok()) return ended.status();
    return ModelOutput(*ended);
  }

  // How many steps were replayed.
  virtual StepGraphCounts graph_counts() const { return {}; }
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_BACKEND_BACKEND_H_
