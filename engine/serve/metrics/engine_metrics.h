// The metrics of an engine and of its HTTP API.
#ifndef PAGODA_ENGINE_SERVE_METRICS_ENGINE_METRICS_H_
#define PAGODA_ENGINE_SERVE_METRICS_ENGINE_METRICS_H_

#include <vector>

#include "engine/generator.h"
#include "engine/serve/openai/openai_api.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

std::vector<prometheus::MetricFamily> CollectEngine(const EngineStats& stats);
std::vector<prometheus::MetricFamily> CollectHttpGenerations(const OpenAiApi::Counts& counts);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_METRICS_ENGINE_METRICS_H_
