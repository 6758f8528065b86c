#ifndef PAGODA_CLIENTS_PAGODACTL_TRACE_H_
#define PAGODA_CLIENTS_PAGODACTL_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda {

// The number of tokens that one hash id of a trace stands for.
inline constexpr uint32_t kTraceBlockTokens = 512;

// One request of a trace.
struct TraceRequest {
  int64_t timestamp_ms = 0;  // From the trace's start.
  // One id for each kTraceBlockTokens tokens of the prompt. Equal ids mean equal tokens after an
  // equal prefix.
  std::vector<uint64_t> hash_ids;
};

// Reads a trace in the JSON Lines format that Mooncake publishes. Each line is an object with
// `timestamp` (milliseconds) and `hash_ids`. Other members and blank lines are ignored. Reads at
// most `limit` requests; 0 reads all. Errors: INVALID_ARGUMENT with "file:line: error".
absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t limit);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TRACE_H_
