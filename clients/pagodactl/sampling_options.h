// What generate and chat have in common: how tokens are chosen, and what is said of an answer.
#ifndef PAGODA_CLIENTS_PAGODACTL_SAMPLING_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODACTL_SAMPLING_OPTIONS_H_

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

// The options of those names; `seed_help` tells what the seed is for.
void AddSamplingOptions(CLI::App& command, SamplingOptions& options, const std::string& seed_help);
void ApplySampling(const SamplingOptions& options, v1::GenerateRequest& request);

absl::Duration DurationOf(const google::protobuf::Duration& proto);
// "length" or "stop token".
const char* FinishText(v1::FinishReason reason);
// Of the time in which the engine worked for the request: waiting for others is left out.
double TokensPerSecond(const v1::GenerateReport& report);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_SAMPLING_OPTIONS_H_
