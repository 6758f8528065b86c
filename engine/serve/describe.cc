#include "engine/serve/describe.h"

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/gpu_self_test.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/model/cuda/cuda_backend.h"
#include "engine/model/kv/kv_pools.h"
#include "server/engine/engine_program.h"
#include "wire/caches.h"

namespace pagoda {
namespace {

void ReportToProto(const GpuSelfTestReport& report, v1::GpuSelfTest* out) {
  out->set_device(report.device);
  for (const GpuKernelResult& result : report.results) {
    v1::GpuSelfTest::Kernel* const kernel = out->add_kernels();
    kernel->set_part(result.part);
    kernel->set_family(result.family);
    kernel->set_needed(result.needed);
    kernel->set_outcome(GpuOutcomeName(result.outcome));
    kernel->set_error(result.error);
    kernel->set_tolerance(result.tolerance);
    kernel->set_seconds(result.seconds);
    kernel->set_why(result.why);
    kernel->set_text(pagoda::Describe(result));
  }
  if (const absl::Status status = report.Check(); !status.ok()) {
    server::FailureToProto(status, out->mutable_problem());
  }
}

absl::Status TestDevice(const DescribeOptions& options, v1::GpuSelfTest* out) {
  if (const absl::Status backend = CheckCudaBackend(*options.gpu); !backend.ok()) {
    out->set_no_backend(true);
    server::FailureToProto(backend, out->mutable_problem());
    return absl::OkStatus();
  }
  const absl::StatusOr<GpuSelfTestReport> report =
      TestGpu({.model_dir = options.model_dir,
               .device = *options.gpu,
               .kv_type = ElementTypeOf(options.kv_dtype),
               .tokens_per_block = options.tokens_per_block,
               .compute = options.compute,
               .attention = options.attention,
               .program = ""});
  if (!report.ok()) return report.status();
  ReportToProto(*report, out);
  return absl::OkStatus();
}

absl::Status Fill(const DescribeOptions& options, v1::ModelDescription* out) {
  const absl::StatusOr<CacheSpec> spec =
      Engine::CacheSpecForModel(options.model_dir, options.tokens_per_block, options.kv_dtype);
  if (!spec.ok()) return spec.status();
  OpenCacheToProto({.name = "",
                    .identity = {.model = spec->model_fingerprint},
                    .tokens_per_block = spec->tokens_per_block,
                    .layers = spec->layers,
                    .tiers = {},
                    .eviction_policy = ""},
                   out->mutable_cache());
  return options.gpu.has_value() ? TestDevice(options, out->mutable_gpu()) : absl::OkStatus();
}

}  // namespace

v1::ModelDescription Describe(const DescribeOptions& options) {
  v1::ModelDescription description;
  const absl::Status status = Fill(options, &description);
  if (!status.ok()) server::FailureToProto(status, description.mutable_failure());
  return description;
}

}  // namespace pagoda
