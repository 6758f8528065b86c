#ifndef PAGODA_ENGINE_SERVE_GENERATE_PROMPT_QUEUES_H_
#define PAGODA_ENGINE_SERVE_GENERATE_PROMPT_QUEUES_H_

#include "absl/status/status.h"
#include "server/callers/tenant_queues.h"

namespace pagoda::server {

// The work on prompts that is too long for the threads of gRPC and HTTP. Each queue has threads of
// its own, so no text waits for a grammar. Thread-safe.
struct PromptQueues {
  // Large HTTP bodies to parse: up to a second.
  TenantQueues bodies{TenantQueues::Limits{}};
  // Texts to tokenise: milliseconds.
  TenantQueues texts{TenantQueues::Limits{}};
  // Grammars to compile, and the texts that come with them: up to seconds.
  TenantQueues grammars{TenantQueues::Limits{}};

  absl::Status started() const {
    for (const TenantQueues* queues : {&bodies, &texts, &grammars}) {
      if (!queues->started().ok()) return queues->started();
    }
    return absl::OkStatus();
  }
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_GENERATE_PROMPT_QUEUES_H_
