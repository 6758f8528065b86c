#include "clients/pagodactl/command/engine_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "clients/command_line/terminal/format.h"

namespace pagoda {
std::string EngineAddressesText(const v1::CacheEngine& addresses) {
  std::string text;
  if (!addresses.grpc().empty()) {
    text = absl::StrCat("gRPC at ", absl::StrJoin(addresses.grpc(), " and "));
  }
  if (!addresses.http().empty()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "OpenAI's API at ", addresses.http());
  }
  return text;
}

std::string EngineStateText(const v1::EngineStatus& engine) {
  std::string text = engine.up() ? "up" : "not up";
  if (engine.restarts() > 0) {
    absl::StrAppend(&text, ", restarted ", FormatCounted(engine.restarts(), "time"));
  }
  // The problem of an engine that is up again is why it ended last.
  if (!engine.problem().empty()) absl::StrAppend(&text, ": ", Printable(engine.problem()));
  return text;
}

}  // namespace pagoda
