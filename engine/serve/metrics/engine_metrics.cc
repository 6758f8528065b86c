#include "engine/serve/metrics/engine_metrics.h"

#include <utility>

#include "absl/time/time.h"
#include "server/calls/metric_family.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

}  // namespace

Families CollectEngine(const EngineStats& stats) {
  return {
      Gauge("pagoda_engine_running_requests", "Generations that are running.",
            AsDouble(stats.running_requests)),
      Gauge("pagoda_engine_waiting_requests", "Generations that wait to be scheduled.",
            AsDouble(stats.waiting_requests)),
      Gauge("pagoda_engine_running_sequences", "Sequences that have blocks in the cache.",
            AsDouble(stats.running_sequences)),
      Counter("pagoda_engine_prompt_tokens_total", "Prompt tokens processed.",
              AsDouble(stats.prompt_tokens)),
      Counter("pagoda_engine_reused_tokens_total", "Prompt tokens whose KV was in the cache.",
              AsDouble(stats.reused_tokens)),
      Counter("pagoda_engine_reused_lower_tokens_total",
              "Reused tokens that were onboarded from a lower tier.",
              AsDouble(stats.reused_lower_tokens)),
      Counter("pagoda_engine_computed_tokens_total", "Tokens computed by the model.",
              AsDouble(stats.computed_tokens)),
      Counter("pagoda_engine_generated_tokens_total", "Tokens generated.",
              AsDouble(stats.generated_tokens)),
      Counter("pagoda_engine_drafted_tokens_total",
              "Draft tokens proposed from the preceding text.", AsDouble(stats.drafted_tokens)),
      Counter("pagoda_engine_accepted_draft_tokens_total", "Draft tokens that the model accepted.",
              AsDouble(stats.accepted_draft_tokens)),
      Counter("pagoda_engine_preemptions_total",
              "Sequences that lost their blocks to other sequences for a time.",
              AsDouble(stats.preemptions)),
      Counter("pagoda_engine_steps_total", "Steps through the model.", AsDouble(stats.steps)),
      Counter("pagoda_engine_step_seconds_total", "Time in steps through the model.",
              absl::ToDoubleSeconds(stats.step_time)),
      Counter("pagoda_engine_cache_seconds_total", "Part of the step time: calls of the cache.",
              absl::ToDoubleSeconds(stats.cache_time)),
      Counter("pagoda_engine_sampling_seconds_total",
              "Part of the step time: choosing tokens from logits.",
              absl::ToDoubleSeconds(stats.sampling_time)),
      Counter("pagoda_engine_graph_captures_total",
              "Decode steps that were captured as CUDA graphs.", AsDouble(stats.graphs.captured)),
      Counter("pagoda_engine_graph_replays_total",
              "Decode steps that an earlier step's CUDA graph ran.",
              AsDouble(stats.graphs.replayed)),
      Counter("pagoda_engine_graph_failures_total",
              "Failed captures or launches of CUDA graphs. After the first, none are used.",
              AsDouble(stats.graphs.failures)),
  };
}

Families CollectHttpGenerations(const OpenAiApi::Counts& counts) {
  auto ended = CounterFamily(
      "pagoda_http_generations_total",
      "Completions and chats over HTTP by outcome: answered, refused (an error before the first "
      "token) or failed (an error after it, or a client that left).");
  AddSample(ended, {{"outcome", "answered"}}, AsDouble(counts.answered));
  AddSample(ended, {{"outcome", "refused"}}, AsDouble(counts.refused));
  AddSample(ended, {{"outcome", "failed"}}, AsDouble(counts.failed));
  return {std::move(ended),
          Gauge("pagoda_http_running_generations",
                "Completions and chats over HTTP that are running.", AsDouble(counts.running))};
}

}  // namespace pagoda::server
