// completion: prints a script with which a shell completes commands and options.
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "clients/command_line/completion/commands.h"
#include "clients/command_line/completion/completion.h"

namespace pagoda {

void AddCompletionCommand(CLI::App& app, const GlobalOptions&, Action& chosen) {
  CLI::App* command = app.add_subcommand("completion", "Prints a script for shell completion");
  command->require_subcommand(1);
  const std::string program = app.get_name();
  const std::string source = absl::StrCat("Examples:\n  source <(", program, " completion bash)");
  command->footer(source);
  CLI::App* bash = command->add_subcommand("bash", "For bash");
  bash->footer(absl::StrCat(source, "\n  ", program,
                            " completion bash > ~/.local/share/bash-completion/completions/",
                            program));
  bash->callback([&app, &chosen] {
    chosen = [&app] {
      std::cout << BashCompletion(app) << std::flush;
      return absl::OkStatus();
    };
  });
}

}  // namespace pagoda
