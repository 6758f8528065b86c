// The options of the bundled engine that a user chooses by name, in the daemon's configuration and
// in flags. The engine's files say what they do.
#ifndef PAGODA_BASE_ENGINE_OPTIONS_H_
#define PAGODA_BASE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pagoda {

// Where an engine without a daemon has its KV, and how attention reads it.
enum class KvMode {
  kPaged,  // In blocks, whose prefixes later prompts reuse, through block tables.
  kFlat,   // In one tensor per layer for all sequences (KvArrangement::kTokenFlat), for the same
           // attention. Reuses nothing.
  kBasic,  // For comparison: in one tensor per sequence and layer, without blocks
           // (basic_cache_client.h), by a separate attention (model/kv/contiguous_backend.h).
           // Reuses nothing.
};

// Where the model computes. It must be where the primary pools lie, because kernels reach no other
// memory.
enum class EngineBackend {
  kAuto,       // On the GPU that has the pools, or on the CPU.
  kReference,  // On the CPU by plain loops in fp64, slowly: the yardstick of the others
               // (model/backend/reference_backend.h). Refuses pools on a GPU.
  kCpu,        // Refuses pools on a GPU.
  kCuda,       // Refuses pools on the host. Builds without a GPU backend refuse this choice.
};

// Whether the choice can only compute over pools in host memory.
constexpr bool NeedsHostPools(EngineBackend choice) {
  return choice == EngineBackend::kReference || choice == EngineBackend::kCpu;
}

// The type of the factors of a product. Sums and everything else are fp32.
enum class ComputeType {
  kAuto,      // The fastest that is as exact as the file. On the CPU: bf16 for matrices of bf16, if
              // the processor multiplies it directly; for quantised matrices, activations of 8
              // bits. On a GPU: bf16 and fp16 as in the checkpoint. Otherwise fp32.
  kFloat32,   // Exact for every checkpoint.
  kBFloat16,  // Rounds the inputs of products, and the weights that have more digits.
};

// The family of attention kernels that a GPU runs. A family that failed the self-test at the start
// is never run, whatever the choice.
enum class GpuAttention {
  kAuto,    // The fastest family that passed the self-test, chosen separately for decode and
            // prefill.
  kSm80,    // Kernels for every GPU of sm_80 and newer.
  kHopper,  // Kernels for Hopper, if types and shapes permit them. Other GPUs are refused.
};

// Whether a GPU runs the launches of a decode step as one graph.
enum class GpuGraphs {
  kAuto,  // If the self-test at the start has found that a graph gives the same numbers.
  kOff,   // Each launch is a call of its own.
  // Does what kAuto does, but captures each step again and runs the graph only if the launches are
  // equal. Slower than kOff: for finding errors.
  kCheck,
};

// What happens to the KV of a preempted sequence until the sequence runs again.
enum class Preemption {
  kOffload,    // It is offloaded to a lower tier, if the cache has one with free slots.
  kRecompute,  // It stays cached until it is evicted; evicted KV is computed again.
};

template <class Choice>
using Choices = std::vector<std::pair<std::string, Choice>>;

inline Choices<KvMode> KvModes() {
  return {{"paged", KvMode::kPaged}, {"flat", KvMode::kFlat}, {"basic", KvMode::kBasic}};
}
inline Choices<EngineBackend> EngineBackends() {
  return {{"auto", EngineBackend::kAuto},
          {"reference", EngineBackend::kReference},
          {"cpu", EngineBackend::kCpu},
          {"cuda", EngineBackend::kCuda}};
}
inline Choices<ComputeType> ComputeTypes() {
  return {{"auto", ComputeType::kAuto},
          {"fp32", ComputeType::kFloat32},
          {"bf16", ComputeType::kBFloat16}};
}
inline Choices<GpuAttention> GpuAttentions() {
  return {{"auto", GpuAttention::kAuto},
          {"sm80", GpuAttention::kSm80},
          {"hopper", GpuAttention::kHopper}};
}
inline Choices<GpuGraphs> GpuGraphChoices() {
  return {{"auto", GpuGraphs::kAuto}, {"off", GpuGraphs::kOff}, {"check", GpuGraphs::kCheck}};
}
inline Choices<Preemption> Preemptions() {
  return {{"offload", Preemption::kOffload}, {"recompute", Preemption::kRecompute}};
}

template <class Choice>
std::string NameOf(const Choices<Choice>& choices, Choice choice) {
  for (const auto& [name, value] : choices) {
    if (value == choice) return name;
  }
  return "?";
}

}  // namespace pagoda

#endif  // PAGODA_BASE_ENGINE_OPTIONS_H_
