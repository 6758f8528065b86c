#ifndef PAGODA_CLIENTS_PAGODA_RUN_RUN_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODA_RUN_RUN_OPTIONS_H_

#include <cstdint>
#include <string>

#include "clients/pagoda_run/local_model.h"
#include "clients/pagodactl/command/command.h"
#include "clients/pagodactl/generate/format_options.h"
#include "clients/pagodactl/generate/sampling_options.h"

namespace CLI {
class App;
}

namespace pagoda {

struct RunOptions {
  LocalModel::Options model;
  // At most one of these three; without them the program chats on standard input.
  std::string prompt;
  std::string prompt_file;
  std::string tokens;
  std::string stop_tokens;
  std::string system;
  uint32_t max_new_tokens = 256;
  SamplingOptions sampling;
  FormatOptions format;
  OutputFormat output = OutputFormat::kTable;

  bool chats() const { return prompt.empty() && prompt_file.empty() && tokens.empty(); }
};

// Adds every option. `options` outlives the parser.
void AddRunOptions(CLI::App& app, RunOptions& options);

// The sampling options as the engine takes them.
SamplingParams SamplingOf(const SamplingOptions& options);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_RUN_RUN_OPTIONS_H_
