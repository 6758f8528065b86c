// Reads request traces: which blocks each request asks for, and when.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_TRACE_TRACE_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_TRACE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda {

// The formats that a trace can have. Both are JSON Lines: each line is an object for one request,
// with `hash_ids`, and optionally `input_length` and `output_length` in tokens.
enum class TraceFormat {
  kMooncake,  // `timestamp` in milliseconds; an id for each 512 tokens.
  kBailian,   // Qwen-Bailian's: `timestamp` in seconds, `chat_id`, `parent_chat_id`; 16 tokens.
};
std::string_view TraceFormatName(TraceFormat format);  // "mooncake" or "bailian".

// The tokens that one id stands for, unless the trace or the caller says otherwise.
inline constexpr uint32_t kMooncakeBlockTokens = 512;
inline constexpr uint32_t kBailianBlockTokens = 16;
// A power of two between these.
inline constexpr uint32_t kMinTraceBlockTokens = 2;
inline constexpr uint32_t kMaxTraceBlockTokens = 1024;
// The most tokens of one request, its reply included.
inline constexpr uint32_t kMaxTraceRequestTokens = uint32_t{1} << 24;

// One request of a trace.
struct TraceRequest {
  int64_t timestamp_ms = 0;  // From the trace's start.
  // One id for each block of the prompt; the last block can be partial. Equal ids after an equal
  // prefix mean equal tokens.
  std::vector<uint64_t> hash_ids;
  std::optional<uint32_t> input_tokens = std::nullopt;  // nullopt: all blocks are full.
  uint32_t output_tokens = 0;
  // kBailian only. The request with chat_id == parent_chat_id is the turn before this one.
  std::optional<int64_t> chat_id = std::nullopt;
  std::optional<int64_t> parent_chat_id = std::nullopt;  // nullopt: the first turn.
};

struct Trace {
  TraceFormat format = TraceFormat::kMooncake;
  uint32_t tokens_per_block = kMooncakeBlockTokens;
  std::vector<TraceRequest> requests;
  // Requests whose input_length is not as long as their ids, give or take a block. Many of them
  // mean that tokens_per_block is wrong.
  size_t odd_lengths = 0;
  size_t first_odd_line = 0;  // Counted from 1; 0: there is none.
};

struct TraceReadOptions {
  size_t limit = 0;  // Read at most so many requests; 0: all.
  // nullopt: kBailian if the first request has a `chat_id` or a `parent_chat_id`, else kMooncake.
  std::optional<TraceFormat> format = std::nullopt;
  // nullopt: the member `tokens_per_block` of the first request, else the format's.
  std::optional<uint32_t> tokens_per_block = std::nullopt;
};

// Reads a trace. Ignores blank lines and other members (Qwen-Bailian's `type` and `turn` too). A
// `parent_chat_id` of -1 is the first turn. The member `tokens_per_block` is an addition of this
// project. The input may be hostile: a line has at most 4 MiB, because parsing can take 40 times as
// many bytes. A prompt of a million tokens in blocks of 16 has at most 1.4 MB.
//
// Errors: INVALID_ARGUMENT with "name:line: error", also for a request of more than
// kMaxTraceRequestTokens and a block size that is not a power of two in the range above.
absl::StatusOr<Trace> ParseTrace(std::istream& in, const std::string& name,
                                 const TraceReadOptions& options);

// Reads a trace from a file. Errors: also INVALID_ARGUMENT for a file that cannot be read.
absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceReadOptions& options = {});

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_TRACE_TRACE_H_
