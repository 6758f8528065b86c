// What a user may choose of an engine, by name: configuration keys and flags.
#ifndef PAGODA_ENGINE_CHOICES_H_
#define PAGODA_ENGINE_CHOICES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pagoda {

// Where KV lies: in the blocks of a cache that shares them, or in a place of each sequence's own
// (basic_cache_client.h), to compare with.
enum class KvMode { kPaged, kBasic };

// Where the model computes: where the primary pools lie, because kernels reach no other memory.
enum class EngineBackend {
  kAuto,  // On the GPU that the pools lie on, or on the CPU.
  kCpu,   // Pools on a GPU are refused.
  kCuda,  // Pools on the host are refused, and builds without a backend for GPUs refuse it.
};

// What numbers the factors of a product are; sums and everything else are fp32.
enum class ComputeType {
  kAuto,      // On the CPU bf16 for matrices that the checkpoint has as bf16, where the processor
              // multiplies them directly; on a GPU bf16 and fp16 as the checkpoint has them; else
              // fp32.
  kFloat32,   // Exact for every checkpoint; twice the memory of 16 bits.
  kBFloat16,  // Inputs of products, and weights that have more digits, are rounded.
};

// Which family of attention's kernels a GPU runs. A family that the self-test at the start finds
// wrong is not run, whatever is chosen.
enum class GpuAttention {
  kAuto,    // The fastest that the self-test finds right, for decode and for prefill apart.
  kSm80,    // Those for every GPU of sm_80 and newer.
  kHopper,  // Those for Hopper, where types and shapes permit it; other GPUs are refused.
};

// What a sequence's KV does when it loses its room to another one, until its turn comes again.
enum class Preemption {
  kOffload,    // Goes down to the secondary tier, where the cache has one with room.
  kRecompute,  // Stays cached while nobody needs the room; what is gone then is computed again.
};

template <class Choice>
using Choices = std::vector<std::pair<std::string, Choice>>;

inline Choices<KvMode> KvModes() { return {{"paged", KvMode::kPaged}, {"basic", KvMode::kBasic}}; }
inline Choices<EngineBackend> EngineBackends() {
  return {
      {"auto", EngineBackend::kAuto}, {"cpu", EngineBackend::kCpu}, {"cuda", EngineBackend::kCuda}};
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

#endif  // PAGODA_ENGINE_CHOICES_H_
