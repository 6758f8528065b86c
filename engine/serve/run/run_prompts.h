#ifndef PAGODA_ENGINE_SERVE_RUN_RUN_PROMPTS_H_
#define PAGODA_ENGINE_SERVE_RUN_RUN_PROMPTS_H_

#include "absl/status/status.h"
#include "engine/serve/run/program_options.h"

namespace pagoda {

// Answers the prompt of the options, or chats on standard input. A signal ends the running answer;
// without one it ends the process with exit code 130. Errors: those of ChosenEngine and Answerer;
// INVALID_ARGUMENT for files that cannot be read; ABORTED if the answer cannot be written.
absl::Status RunPrompts(const ProgramOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_RUN_PROMPTS_H_
