#ifndef PAGODA_CLIENTS_PAGODACTL_TRACE_H_
#define PAGODA_CLIENTS_PAGODACTL_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda {

// Tokens that one hash id of a trace stands for.
inline constexpr uint32_t kTraceBlockTokens = 512;

// One request of a trace.
struct TraceRequest {
  int64_t timestamp_ms = 0;  // From the trace's start.
  // One id for each kTraceBlockTokens tokens of the prompt. Equal ids mean equal tokens after an
  // equal prefix.
  std::vector<uint64_t> hash_ids;
};

// Reads a trace in the JSON Lines format that Mooncake publishes: an object a line with `timestamp`
// (milliseconds) and `hash_ids`; other members are not read, and blank lines are passed over. At
// most `limit` requests; 0 is all. Errors: INVALID_ARGUMENT with "file:line: what is wrong".
absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t limit);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TRACE_H_
