// What answers generations: the engine, or an engine whose cache's daemon can go away.
#ifndef PAGODA_ENGINE_GENERATOR_H_
#define PAGODA_ENGINE_GENERATOR_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/request/generate.h"
#include "engine/request/named_adapters.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/scheduler.h"
#include "engine/words/gpu_graphs.h"

namespace pagoda {

struct EngineStats : SchedulerStats {
  StepGraphCounts graphs;  // All 0 on a CPU.
};

// Thread-safe. Engine (engine.h) says what each function does.
class Generator {
 public:
  virtual ~Generator() = default;

  virtual absl::Status Submit(GenerateRequest request, TokenCallback on_token,
                              EndCallback on_end) = 0;
  virtual absl::Status Check(const GenerateRequest& request) const = 0;
  virtual absl::Status CheckFiles() const = 0;
  virtual const ModelConfig& model() const = 0;
  virtual absl::Span<const NamedAdapter> adapters() const = 0;
  virtual EngineStats Stats() const = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_GENERATOR_H_
