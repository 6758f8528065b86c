// The options of what an answer's text must be, for generate, chat and
// pagoda-engine.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_FORMAT_OPTIONS_H_
#define PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_FORMAT_OPTIONS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/structured/grammar.h"
#include "pagoda/v1/engine.pb.h"

namespace CLI {
class App;
}

namespace pagoda {

// At most one is set.
struct FormatOptions {
  std::string json_schema_file;
  bool json_object = false;
  std::string regex;
  std::string grammar_file;
};

void AddFormatOptions(CLI::App& command, FormatOptions& options);

// Reads the named file; nothing if no option is set. Errors: INVALID_ARGUMENT if it cannot be read.
absl::StatusOr<std::optional<StructuredOutput>> ReadFormat(const FormatOptions& options);
absl::Status ApplyFormat(const FormatOptions& options, v1::GenerateRequest& request);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_OPTIONS_FORMAT_OPTIONS_H_
