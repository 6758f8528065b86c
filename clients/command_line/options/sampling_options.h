// The sampling options of generate and chat, and texts about their answers.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_SAMPLING_OPTIONS_H_
#define PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_SAMPLING_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "pagoda/v1/engine.pb.h"

namespace CLI {
class App;
}

namespace pagoda {

struct SamplingOptions {
  uint64_t seed = 1;
  float temperature = 0;
  uint32_t top_k = 0;
  float top_p = 1;
  float repetition_penalty = 1;
  uint32_t max_draft_tokens = 0;
  uint32_t priority = 0;
  std::string salt;
};

// Adds the sampling options. `seed_help` is the help text of --seed.
void AddSamplingOptions(CLI::App& command, SamplingOptions& options, const std::string& seed_help);
// Adds --adapter. Its name goes into the request's field `adapter`.
void AddAdapterOption(CLI::App& command, std::string& adapter);
void ApplySampling(const SamplingOptions& options, v1::GenerateRequest& request);

absl::Duration DurationOf(const google::protobuf::Duration& proto);
// "length" or "stop token".
const char* FinishText(v1::FinishReason reason);
// The rate over the request's time in the engine, without its time in the queue.
double TokensPerSecond(const v1::GenerateReport& report);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_SAMPLING_OPTIONS_H_
