#include "engine/serve/program.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/error.h"
#include "clients/command_line/command.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/printable_output.h"
#include "engine/serve/daemon/daemon_link.h"
#include "engine/serve/describe.h"
#include "engine/serve/doors/doors.h"
#include "engine/serve/run/chosen_engine.h"
#include "engine/serve/run/program_options.h"
#include "engine/serve/run/run_prompts.h"
#include "engine/serve/run/run_requests.h"
#include "server/log/log.h"

namespace pagoda {
namespace {

constexpr char kFooter[] = R"(Examples:
  pagoda-engine --local --model model.gguf                      chats, without a daemon
  pagoda-engine --local --model DIR --system 'Answer in one line.' --temperature 0.7
  pagoda-engine --local --model DIR --prompt 'Is water wet?' --regex 'yes|no'
  pagoda-engine --local --model DIR --prompt-tokens 1,2,3 --kv basic --backend reference
  pagoda-engine --model DIR --random-prompt 64 --seed 7         over a daemon's cache
  pagoda-engine --connect unix:/run/pagoda.sock --model DIR --prompt-tokens 1,2,3 -o json
  echo '{"id": 1, "prompt": [1, 2, 3]}' | pagoda-engine --model DIR --requests -
  pagoda-engine --serve engine.yaml                             OpenAI's API and gRPC

In a chat each line of standard input is a turn. /reset starts a new conversation. /quit or the end
of input ends the program. SIGINT and SIGTERM end an answer; without an answer they end the program.
Behind an answer, standard error has the time to the first token, the speed of the prompt (the
tokens that were computed, without the reused ones) and of the decoding (the tokens behind the first
one).

A request is one line of JSON. Only "prompt" is required:
  {"id": ..., "prompt": [ids], "max_new_tokens": N, "stop_tokens": [ids], "cache_salt": "text",
   "temperature": T, "top_k": K, "top_p": P, "repetition_penalty": R, "seed": S,
   "num_samples": N, "max_draft_tokens": N, "priority": N, "beam_width": N,
   "length_penalty": X, "early_stopping": true, "adapter": "name"}
Its answer is one line of JSON:
  {"id": ..., "tokens": [ids], "prompt_tokens": N, "reused_tokens": N,
   "reused_lower_tokens": N, "generated_tokens": N,
   "finish_reason": "length" or "stop token", "time_to_first_token_ms": T, "queue_ms": T,
   "total_ms": T, "tokens_per_second": R, "preemptions": N, "drafted_tokens": N,
   "accepted_draft_tokens": N}
or, if the request failed:
  {"id": ..., "error": {"reason": ..., "message": ...}}
SIGINT and SIGTERM end the program; running requests are answered with CANCELLED.

Without --local, the KV is in a daemon's cache, which must be for this model. There are two ways:
  * Start pagodad with cache.model_dir or engine.model_dir on the same folder.
  * Start pagodad --memory 8GiB, and this program with --cache NAME --open-cache 4GiB.
If the daemon goes away, running requests start again when a daemon is back. Tokens that are still
cached are not computed again.

Exit codes: 0 success, 1 a generation failed, 2 bad usage, 3 no daemon answers, 130 ended by a
signal.)";

// Serves until a signal.
absl::Status RunDoors(const ProgramOptions& options) {
  const absl::StatusOr<server::Config> config = LoadDoors(options.serve, options.model_dir);
  if (!config.ok()) return config.status();
  absl::Notification stop;
  // The signal handling must exist before other threads: they inherit the signal mask.
  const InterruptScope interrupt([&] { stop.Notify(); });
  PrepareProcess(*config);
  absl::StatusOr<ConnectedEngine::Options> engine_options = ConnectedOptionsOf(options);
  if (!engine_options.ok()) return engine_options.status();
  const ClientCredentials& own = engine_options->client.credentials;
  if (!config->knows_callers() && !(own.token.empty() && own.certificate_file.empty())) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("the engine shows the daemon credentials, and ", options.serve,
                                  " has no tenants and no operators: everybody on this machine "
                                  "would work with the engine's rights; name the callers"));
  }
  return ServeUntil(stop, *config, *std::move(engine_options), /*link=*/nullptr);
}

// The answer is for a daemon, which reads it as a message.
absl::Status RunDescribe(const ProgramOptions& options) {
  EndWithParent();
  const v1::ModelDescription description = Describe({.model_dir = options.model_dir,
                                                     .tokens_per_block = options.tokens_per_block,
                                                     .kv_dtype = options.kv_dtype,
                                                     .gpu = options.test_gpu,
                                                     .compute = options.compute,
                                                     .attention = options.gpu_attention});
  // std::cout is for people: it makes bytes printable.
  return description.SerializeToFileDescriptor(STDOUT_FILENO)
             ? absl::OkStatus()
             : absl::AbortedError("cannot write the description");
}

absl::Status Run(const ProgramOptions& options) {
  if (!options.serve.empty()) return RunDoors(options);
  if (options.describe) return RunDescribe(options);
  return options.requests.empty() ? RunPrompts(options) : RunRequests(options);
}

}  // namespace

int RunPagodaEngine(int argc, char** argv) {
  const PrintableOutput output;
  ProgramOptions options;
  CLI::App app(
      "Generates with a model in this process: a chat, the answer to a prompt, many requests, or "
      "OpenAI's API and gRPC. The KV is in a daemon's cache, or with --local in this process.",
      kEngineProgram);
  app.footer(kFooter);
  app.set_version_flag("--version", absl::StrCat(kEngineProgram, " ", PAGODA_VERSION));
  AddProgramOptions(app, options);
  try {
    app.parse(argc, argv);
    CheckProgramOptions(app, options, {argv + 1, argv + argc});
  } catch (const CLI::ParseError& error) {
    // --help and --version also end up here, with code 0.
    return app.exit(error) == 0 ? kExitOk : kExitBadUsage;
  }
  return ReportOutcome(kEngineProgram, "--connect", Run(options));
}

}  // namespace pagoda
