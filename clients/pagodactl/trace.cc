#include "clients/pagodactl/trace.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

absl::StatusOr<TraceRequest> ParseRequest(const std::string& line) {
  const nlohmann::json object =
      nlohmann::json::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return MakeError(Reason::kInvalidArgument, "not a JSON object");

  const auto timestamp = object.find("timestamp");
  if (timestamp == object.end() || !timestamp->is_number()) {
    return MakeError(Reason::kInvalidArgument, "\"timestamp\" is missing or not a number");
  }
  const auto hash_ids = object.find("hash_ids");
  if (hash_ids == object.end() || !hash_ids->is_array()) {
    return MakeError(Reason::kInvalidArgument, "\"hash_ids\" is missing or not an array");
  }

  TraceRequest request{.timestamp_ms = timestamp->get<int64_t>(), .hash_ids = {}};
  request.hash_ids.reserve(hash_ids->size());
  for (const nlohmann::json& id : *hash_ids) {
    if (!id.is_number_unsigned()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("hash id ", id.dump(), " is not an unsigned integer"));
    }
    request.hash_ids.push_back(id.get<uint64_t>());
  }
  return request;
}

}  // namespace

absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t limit) {
  std::ifstream file(path);
  if (!file) return MakeError(Reason::kInvalidArgument, absl::StrCat("cannot read ", path));

  std::vector<TraceRequest> requests;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (limit != 0 && requests.size() == limit) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<TraceRequest> request = ParseRequest(line);
    if (!request.ok()) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat(path, ":", number, ": ", request.status().message()));
    }
    requests.push_back(*std::move(request));
  }
  return requests;
}

}  // namespace pagoda
