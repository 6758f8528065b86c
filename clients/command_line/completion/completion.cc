#include "clients/command_line/completion/completion.h"

#include <set>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pagoda {
namespace {

enum class Value { kNone, kWord, kChoice, kFile, kFolder };

struct OptionInfo {
  std::vector<std::string> names;  // "-o", "--output"; none for a positional argument.
  Value value = Value::kNone;
  std::vector<std::string> choices;
};

struct CommandInfo {
  std::string path;  // "quarantine release"; empty for the program itself.
  std::vector<std::string> commands;
  std::vector<OptionInfo> options;
};

// The words that a validator allows, taken from its description: "{lru,opt}", "{table->0,json->1}".
std::vector<std::string> ChoicesIn(const std::string& type_name) {
  const size_t begin = type_name.find('{');
  const size_t end = type_name.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  std::vector<std::string> choices;
  for (const std::string& entry : std::vector<std::string>(
           absl::StrSplit(type_name.substr(begin + 1, end - begin - 1), ','))) {
    choices.push_back(entry.substr(0, entry.find("->")));
  }
  return choices;
}

OptionInfo Describe(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back(absl::StrCat("-", name));
  for (const std::string& name : option.get_lnames()) {
    info.names.push_back(absl::StrCat("--", name));
  }
  if (option.get_items_expected_max() == 0) return info;
  const std::string type = option.get_type_name();
  info.choices = ChoicesIn(type);
  if (!info.choices.empty()) {
    info.value = Value::kChoice;
  } else if (absl::StrContains(type, "FILE")) {
    info.value = Value::kFile;
  } else if (absl::StrContains(type, "DIR")) {
    info.value = Value::kFolder;
  } else {
    info.value = Value::kWord;
  }
  return info;
}

// Collects the app with its option groups (apps without a name), then its commands.
void Collect(const CLI::App& app, const std::string& path, std::vector<CommandInfo>* out) {
  CommandInfo info{.path = path, .commands = {}, .options = {}};
  std::vector<const CLI::App*> commands;
  const auto visit = [&](const auto& self, const CLI::App& part) -> void {
    for (const CLI::Option* option : part.get_options()) info.options.push_back(Describe(*option));
    for (const CLI::App* below : part.get_subcommands(nullptr)) {
      if (below->get_name().empty()) {
        self(self, *below);
      } else {
        commands.push_back(below);
        info.commands.push_back(below->get_name());
      }
    }
  };
  visit(visit, app);
  out->push_back(std::move(info));
  for (const CLI::App* command : commands) {
    Collect(*command,
            path.empty() ? command->get_name() : absl::StrCat(path, " ", command->get_name()), out);
  }
}

std::string Generator(const OptionInfo& option) {
  switch (option.value) {
    case Value::kChoice:
      return absl::StrCat("compgen -W '", absl::StrJoin(option.choices, " "), "'");
    case Value::kFile:
      return "compgen -f";
    case Value::kFolder:
      return "compgen -d";
    case Value::kNone:
    case Value::kWord:
      break;
  }
  return "";
}

// Appends the cases that complete the value of the option before the cursor. The option is one of
// this command, or one of the program, whose options can follow any command.
void AppendValueCases(const CommandInfo& command, std::string* out) {
  for (const OptionInfo& option : command.options) {
    const std::string generator = Generator(option);
    if (generator.empty() || option.names.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) {
      patterns.push_back(command.path.empty() ? absl::StrCat("*'|", name, "'")
                                              : absl::StrCat("'", command.path, "|", name, "'"));
    }
    absl::StrAppend(out, "    ", absl::StrJoin(patterns, " | "),
                    ")\n      mapfile -t COMPREPLY < <(", generator,
                    " -- \"$current\")\n      return ;;\n");
  }
}

// Appends the words that can stand at the cursor in this command. They include the program's
// options.
void AppendWordCase(const CommandInfo& command, const CommandInfo& program, std::string* out) {
  std::set<std::string> words(command.commands.begin(), command.commands.end());
  bool files = false;
  for (const OptionInfo& option : command.options) {
    words.insert(option.names.begin(), option.names.end());
    // A positional argument.
    if (option.names.empty()) files = files || option.value == Value::kFile;
  }
  for (const OptionInfo& option : program.options) {
    words.insert(option.names.begin(), option.names.end());
  }
  absl::StrAppend(out, "    '", command.path, "') words='", absl::StrJoin(words, " "), "'",
                  files ? " files='-f'" : "", " ;;\n");
}

// All options that take a value, as a pattern.
std::string WithValue(const std::vector<CommandInfo>& commands) {
  std::set<std::string> names;
  for (const CommandInfo& command : commands) {
    for (const OptionInfo& option : command.options) {
      if (option.value == Value::kNone) continue;
      names.insert(option.names.begin(), option.names.end());
    }
  }
  return absl::StrJoin(names, " | ");
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::vector<CommandInfo> commands;
  Collect(app, "", &commands);
  std::vector<std::string> paths;
  for (const CommandInfo& command : commands) {
    if (!command.path.empty()) paths.push_back(absl::StrCat("'", command.path, "'"));
  }
  std::string value_cases, word_cases;
  for (size_t i = 1; i < commands.size(); ++i) AppendValueCases(commands[i], &value_cases);
  AppendValueCases(commands.front(), &value_cases);
  for (const CommandInfo& command : commands) {
    AppendWordCase(command, commands.front(), &word_cases);
  }
  const std::string name = app.get_name();
  return absl::StrCat(
      "# Completion of ", name, " in bash; made by \"", name, " completion bash\".\n", "_", name,
      "() {\n"
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD - 1]}\"\n"
      "  local command='' words='' files='' i\n"
      "  # --output=json is three words to bash.\n"
      "  if [[ $current == = ]]; then current=''\n"
      "  elif [[ $previous == = ]]; then previous=\"${COMP_WORDS[COMP_CWORD - 2]}\"; fi\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"${COMP_WORDS[i]}\" in\n"
      "      ",
      WithValue(commands),
      ") ((i++)); continue ;;\n"
      "    esac\n"
      "    case \"${command:+$command }${COMP_WORDS[i]}\" in\n"
      "      ",
      absl::StrJoin(paths, " | "),
      ") command=\"${command:+$command }${COMP_WORDS[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$command|$previous\" in\n",
      value_cases,
      "  esac\n"
      "  # Other values cannot be completed.\n"
      "  case \"$previous\" in\n"
      "    ",
      WithValue(commands),
      ") return ;;\n"
      "  esac\n"
      "  case \"$command\" in\n",
      word_cases,
      "  esac\n"
      "  mapfile -t COMPREPLY < <(compgen $files -W \"$words\" -- \"$current\")\n"
      "}\n"
      "complete -F _",
      name, " ", name, "\n");
}

}  // namespace pagoda
