// The self-test of a GPU's kernels. It runs each family that an engine would run on small inputs,
// and compares it with plain loops on the host.
#ifndef PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_H_
#define PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_H_

#include <functional>

#include "absl/status/status.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/model/cuda/kernels/fused_kernels.h"
#include "engine/model/cuda/kernels/fused_products.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "engine/model/cuda/kernels/sampling_kernels.h"
#include "engine/model/cuda/products/device_products.h"
#include "engine/model/cuda/self_test/self_test_request.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.h"
#include "kernels/cuda/copy.h"

namespace pagoda::cuda {

// The tested kernels: the engine's, or faulty ones that the tests of the self-test insert.
struct TestedKernels {
  std::function<absl::Status(const kernels::PagedAttentionParams&,
                             const kernels::cuda::AttentionExecution&)>
      attention = kernels::cuda::PagedAttention;
  std::function<absl::Status(const kernels::CacheWriteParams&, Stream)> write_cache =
      kernels::cuda::WriteCache;
  std::function<absl::Status(const kernels::CacheWriteParams&, Stream)> fit_scales =
      kernels::cuda::FitScales;
  std::function<absl::Status(const kernels::BlockCopyParams&, Stream)> copy_blocks =
      kernels::cuda::CopyBlocks;
  decltype(&LaunchEmbed) embed = LaunchEmbed;
  decltype(&LaunchRmsNorm) rms_norm = LaunchRmsNorm;
  decltype(&LaunchLayerNorm) layer_norm = LaunchLayerNorm;
  decltype(&LaunchAngles) angles = LaunchAngles;
  decltype(&LaunchRotate) rotate = LaunchRotate;
  decltype(&LaunchGate) gate = LaunchGate;
  decltype(&LaunchGeluTanh) gelu_tanh = LaunchGeluTanh;
  decltype(&LaunchAddRows) add_rows = LaunchAddRows;
  decltype(&LaunchClear) clear = LaunchClear;
  decltype(&LaunchCopyHeads) copy_heads = LaunchCopyHeads;
  decltype(&LaunchAdd) add = LaunchAdd;
  decltype(&LaunchAddBias) add_bias = LaunchAddBias;
  decltype(&LaunchTakeRows) take_rows = LaunchTakeRows;
  decltype(&LaunchSoftCap) soft_cap = LaunchSoftCap;
  decltype(&LaunchRound) round = LaunchRound;
  decltype(&LaunchWiden) widen = LaunchWiden;
  decltype(&LaunchAddNorm) add_norm = LaunchAddNorm;
  decltype(&LaunchPlaceHeads) place_heads = LaunchPlaceHeads;
  decltype(&LaunchFusedProduct) fused_product = LaunchFusedProduct;
  decltype(&LaunchMostLikely) most_likely = LaunchMostLikely;
  decltype(&LaunchDrawWeights) draw_weights = LaunchDrawWeights;
  decltype(&LaunchDraw) draw = LaunchDraw;
};

// Runs the test and chooses (GpuSelfTestReport::Choose). The report has the families that fail, and
// the test continues with the next one. If a wait for the device fails, the device is lost: nothing
// more runs there in this process, the remaining families are in the report as kFailed, and the
// observer is not called for them. There is no time limit, so a kernel that never ends blocks the
// test. engine/gpu_self_test.h therefore runs it in a separate process.
//
// The parts, their families in the order of preference, the largest error that counts as right (see
// GpuKernelResult), and the reference:
//   attention_decode, attention_prefill   sm80, hopper, latent, generic. By the pools' type: 1e-2
//                           (bf16, fp8), 2e-3 (fp16), 1e-4 (fp32). kernels::reference in fp64. Up
//                           to three kinds of layers of the model, of up to two KV heads, with K
//                           only, sinks and ALiBi if the model has them. All but generic are timed,
//                           over request.timing_bytes of KV.
//   cache_write, block_copy portable. 0: each byte, also of fp8's scales, some of which are raised.
//                           With K only if the model has it. The engine's steps do not use
//                           block_copy.
//   products_bf16, _fp16, _fp32           cublaslt. 1e-4. fp64. Those of request.compute, with and
//                           without a bias.
//   embedding, norm, gate, rows, row_lists, rounding  portable. 2e-5 (rounding 0). fp64.
//   rotary                  portable. 1e-4. fp64. The model's rotated elements, pairs and factors;
//                           left out with ALiBi.
//   layer_norm, clamped_gate, gelu, head_copy  portable. 2e-5 (head_copy 0). fp64. Each only if the
//                           model needs it.
//   fused_rows, fused_heads  portable. 2e-5, 1e-4, beyond the rounding to 16 bits. fp64. Without
//                           them an engine runs the separate kernels. fused_heads: only for pools
//                           of K and V; with scales, the cache write stays separate.
//   fused_products          sm80, cublaslt. 4e-3. fp64. For engines that multiply in 16 bits. Both
//                           are timed with a layer of the model and one row, over
//                           request.timing_bytes of weights. sm80: one kernel for a product of few
//                           rows and the operations around it. cublaslt: the separate kernels.
//   token_draws             portable. 0: the number of wrong tokens. Plain loops in fp64. Without
//                           it the host chooses the tokens.
//   step_graphs             captured. 0: the number of floats that differ between some launches and
//                           their graph, which is replayed over other numbers at the same
//                           addresses. Without it an engine launches each kernel by a call.
// REQUIRES: request.config is from LoadModelConfig; tokens_per_block > 0.
GpuSelfTestReport RunSelfTest(ComputeDevice& device, DeviceProducts& products,
                              const GpuSelfTestRequest& request, const GpuTestObserver& observer,
                              const TestedKernels& kernels = {});

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_SELF_TEST_SELF_TEST_H_
