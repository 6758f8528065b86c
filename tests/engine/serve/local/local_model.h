// A model in this process: its engine, its text and the answers.
#ifndef PAGODA_TESTS_ENGINE_SERVE_LOCAL_LOCAL_MODEL_H_
#define PAGODA_TESTS_ENGINE_SERVE_LOCAL_LOCAL_MODEL_H_

#include <memory>
#include <string>
#include <utility>

#include "engine/serve/local/local_engine.h"
#include "engine/serve/prompt/answerer.h"
#include "engine/text/model_text.h"
#include "tests/base/require.h"

namespace pagoda {

// On the CPU, exactly, with one thread.
inline LocalEngine::Options LocalOptions(const std::string& model, uint32_t context) {
  return {.engine = {.model_dir = model,
                     .backend = EngineBackend::kCpu,
                     .gpu_report = std::nullopt,
                     .cpu = {.num_threads = 1, .compute = ComputeType::kFloat32}},
          .context = context};
}

struct LocalModel {
  explicit LocalModel(LocalEngine::Options options)
      : text(ModelText::Load(options.engine.model_dir)),
        engine(Require(LocalEngine::Create(std::move(options)))),
        answers(&engine->engine(), &text, engine->context()) {}

  const ModelText text;
  const std::unique_ptr<LocalEngine> engine;
  Answerer answers;
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SERVE_LOCAL_LOCAL_MODEL_H_
