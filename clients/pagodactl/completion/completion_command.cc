// pagodactl completion: prints a script with which a shell completes commands and options.
#include <iostream>

#include "CLI/CLI.hpp"
#include "clients/pagodactl/completion/commands.h"
#include "clients/pagodactl/completion/completion.h"

namespace pagoda {

void AddCompletionCommand(CLI::App& app, const GlobalOptions&, Action& chosen) {
  CLI::App* command = app.add_subcommand("completion", "Prints a script for shell completion");
  command->require_subcommand(1);
  command->footer("Examples:\n  source <(pagodactl completion bash)");
  CLI::App* bash = command->add_subcommand("bash", "For bash");
  bash->footer(
      "Examples:\n"
      "  source <(pagodactl completion bash)\n"
      "  pagodactl completion bash > ~/.local/share/bash-completion/completions/pagodactl");
  bash->callback([&app, &chosen] {
    chosen = [&app] {
      std::cout << BashCompletion(app) << std::flush;
      return absl::OkStatus();
    };
  });
}

}  // namespace pagoda
