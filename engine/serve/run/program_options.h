// The one option set of pagoda-engine, for every way to run it.
#ifndef PAGODA_ENGINE_SERVE_RUN_PROGRAM_OPTIONS_H_
#define PAGODA_ENGINE_SERVE_RUN_PROGRAM_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/engine_options.h"
#include "clients/command_line/command.h"
#include "clients/command_line/options/format_options.h"
#include "clients/command_line/options/sampling_options.h"
#include "pools/layout.h"

namespace CLI {
class App;
}

namespace pagoda {

inline constexpr char kEngineProgram[] = "pagoda-engine";

struct ProgramOptions {
  std::string model_dir;
  bool local = false;

  // The model and how it runs.
  EngineBackend backend = EngineBackend::kAuto;
  GpuAttention gpu_attention = GpuAttention::kAuto;
  GpuGraphs gpu_graphs = GpuGraphs::kAuto;
  ComputeType compute = ComputeType::kAuto;
  uint32_t threads = 0;
  std::vector<std::string> adapters;  // NAME=PATH.
  uint32_t max_step_tokens = 512;

  // A daemon's cache.
  std::string endpoint = "127.0.0.1:7070";
  std::string cache;
  std::string open_cache;  // How much host memory; empty: do not open a cache.
  std::string client_name = kEngineProgram;
  CredentialFiles credentials;
  double timeout_seconds = 10;
  double reconnect_seconds = 60;
  double lease_seconds = 0;

  // With `local`.
  KvMode kv = KvMode::kPaged;
  uint32_t context = 0;
  uint32_t cached_tokens = 0;

  // A cache that this program makes: with `local` or `open_cache`.
  uint32_t tokens_per_block = 16;
  DType kv_dtype = DType::kFloat32;

  // What to generate. Without any of these it chats.
  std::string prompt;
  std::string text_file;       // A file, or "-".
  std::string prompt_tokens;   // Token ids: "1,2,3".
  std::string prompt_file;     // A file of token ids, or "-".
  std::string requests;        // A file of requests, or "-".
  uint32_t random_prompt = 0;  // Its length.
  std::string serve;           // A configuration file.
  bool describe = false;
  std::optional<int> test_gpu;  // With `describe`.

  // The answers.
  uint32_t max_new_tokens = 256;
  std::string load_kv;
  uint32_t concurrency = 1;  // How many of `requests` run at once.
  std::string system;        // The system prompt of a chat.
  std::string save_kv;       // The file for the KV of a prompt and its answer.
  // For a prompt or a chat.
  std::string stop_tokens;
  std::string adapter;
  SamplingOptions sampling;
  FormatOptions format;
  OutputFormat output = OutputFormat::kTable;

  // Whether the answer to the prompt is token ids.
  bool has_ids() const {
    return !prompt_tokens.empty() || !prompt_file.empty() || random_prompt != 0;
  }
  bool has_prompt() const { return has_ids() || !prompt.empty() || !text_file.empty(); }
  bool chats() const { return !has_prompt() && requests.empty() && serve.empty() && !describe; }
};

// Adds every option. `options` outlives the parser.
void AddProgramOptions(CLI::App& app, ProgramOptions& options);

// After parsing: throws a CLI::ParseError if an option does not go with the chosen way to run,
// which the error names. `arguments` are those that were parsed.
void CheckProgramOptions(const CLI::App& app, const ProgramOptions& options,
                         const std::vector<std::string>& arguments);

// Prints a line for people to standard error, after the program's name.
void SayAsEngine(const std::string& what);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_PROGRAM_OPTIONS_H_
