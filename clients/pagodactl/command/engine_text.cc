#include "clients/pagodactl/command/engine_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "clients/command_line/terminal/format.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

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

Json EngineAddressesJson(const v1::CacheEngine& addresses) {
  Json grpc = Json::array();
  for (const std::string& address : addresses.grpc()) grpc.push_back(address);
  return {{"grpc", grpc}, {"http", addresses.http()}};
}

Json EngineJson(const v1::GetStatusResponse& status) {
  if (!status.has_engine()) return nullptr;
  const v1::EngineStatus& engine = status.engine();
  return {{"model", engine.model()},
          {"architecture", engine.architecture()},
          {"vocab_size", engine.vocab_size()},
          {"max_sequence_tokens", engine.max_sequence_tokens()},
          {"running_requests", engine.running_requests()},
          {"waiting_requests", engine.waiting_requests()},
          {"up", engine.up()},
          {"restarts", engine.restarts()},
          {"problem", engine.problem()},
          {"addresses", EngineAddressesJson(engine.addresses())}};
}

}  // namespace pagoda
