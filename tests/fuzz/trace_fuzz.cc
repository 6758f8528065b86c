// A request trace of arbitrary bytes.
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/error.h"
#include "clients/pagoda_plan/trace/trace.h"
#include "clients/pagoda_plan/trace/trace_replies.h"
#include "tests/fuzz/planted.h"

namespace pagoda {
namespace {

size_t LinesWithText(const std::string& text) {
  size_t lines = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) ++lines;
  }
  return lines;
}

// Which prompt has which reply.
void CheckReplies(const Trace& trace) {
  const std::vector<TraceTurn> turns = FindReplies(trace.requests, trace.tokens_per_block);
  PAGODA_CHECK(turns.size() == trace.requests.size(), "each request is a turn");
  std::vector<bool> follows(turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    const TraceTurn& turn = turns[i];
    PAGODA_CHECK(turn.prompt_nodes.size() <= trace.requests[i].hash_ids.size(),
                 "a full block has an id");
    if (!turn.next.has_value()) continue;
    const TraceTurn& next = turns[*turn.next];
    PAGODA_CHECK(*turn.next > i && !follows[*turn.next], "a turn follows one earlier turn");
    follows[*turn.next] = true;
    PAGODA_CHECK(next.prompt_nodes.size() >= turn.prompt_nodes.size() + turn.reply_blocks,
                 "the next prompt has all blocks of the reply");
    if (turn.reply_blocks == 0) continue;
    PAGODA_CHECK(
        ReplyBlockId(trace.requests, turn, turn.reply_blocks - 1) ==
            trace.requests[*turn.next].hash_ids[turn.prompt_nodes.size() + turn.reply_blocks - 1],
        "a reply has the ids of the next prompt");
  }
}

void Check(const std::string& text) {
  std::istringstream in(text);
  absl::StatusOr<Trace> trace = ParseTrace(in, "fuzz.jsonl", {});
  if (!trace.ok()) {
    PAGODA_CHECK(ReasonOf(trace.status()) == Reason::kInvalidArgument,
                 "a trace is refused with INVALID_ARGUMENT");
    PAGODA_CHECK(absl::StartsWith(trace.status().message(), "fuzz.jsonl:"),
                 "a refusal names the file and the line");
    return;
  }
  if (fuzz::Planted("LostRequest") && trace->requests.size() > 1) trace->requests.pop_back();
  PAGODA_CHECK(trace->requests.size() == LinesWithText(text), "each line is a request");
  CheckReplies(*trace);
}

}  // namespace
}  // namespace pagoda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::Check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
