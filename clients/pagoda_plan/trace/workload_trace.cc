#include "clients/pagoda_plan/trace/workload_trace.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/pagoda_plan/trace/portable_math.h"
#include "clients/pagoda_plan/trace/prompt_builder.h"
#include "clients/pagoda_plan/trace/random_draws.h"

namespace pagoda {
namespace {

constexpr double kMsPerHour = 3'600'000;
constexpr uint32_t kMostContextTokens = 180'000;
constexpr double kDecodeMsPerToken = 25;
constexpr double kFirstHourOfDay = 9, kBusiestHourOfDay = 15;

// The requests of many sessions, and what these share.
class SessionMaker {
 public:
  SessionMaker(const WorkloadOptions& options, uint64_t seed)
      : options_(options), random_(seed), agents_(40, 1), projects_(12, 1), chats_(60, 1) {}

  // At least `requests` requests, in no order. Sessions begin in the `hours` after `from`.
  std::vector<TraceRequest> Generate(WorkloadKind kind, size_t requests, double from,
                                     double hours) {
    texts_ = (static_cast<uint64_t>(kind) + 1) << 48;
    while (requests_.size() < requests) {
      const double start_ms = StartHour(from, hours) * kMsPerHour;
      if (kind == WorkloadKind::kAgents) {
        RunTask(start_ms);
      } else {
        Converse(start_ms);
      }
    }
    return std::move(requests_);
  }

 private:
  // When a session begins, in hours from the trace's start: more often in the afternoon. Between
  // two hours of the trace.
  double StartHour(double from, double hours) {
    for (;;) {
      const double hour = from + random_.Uniform() * hours;
      const double day = hour / options_.hours;
      const double from_peak = (kFirstHourOfDay - kBusiestHourOfDay) / 24 + day;
      // From 0.1 to 1.
      if (random_.Happens(0.55 + 0.45 * PortableCosOfTurns(from_peak))) return hour;
    }
  }

  uint32_t Tokens(double value) const {
    return static_cast<uint32_t>(std::clamp(value, 1.0, double{kMostContextTokens} / 2));
  }
  uint64_t NewText() { return ++texts_; }

  // The length of a shared text follows from its number, so that it is always the same.
  void AppendShared(PromptBuilder& prompt, uint64_t text, double median, double sigma) const {
    RandomDraws own(text * 0x9E3779B97F4A7C15u + options_.seed);
    prompt.Append(text, Tokens(own.LogNormal(median, sigma)));
  }
  static uint64_t SharedText(WorkloadKind kind, uint64_t app, uint64_t project) {
    return uint64_t{1} << 63 | static_cast<uint64_t>(kind) << 32 | app << 16 | project;
  }

  // Returns when the reply is complete, and appends it.
  double Request(double time_ms, PromptBuilder& prompt, double mean_reply) {
    const uint32_t reply = Tokens(random_.Exponential(mean_reply));
    requests_.push_back({.timestamp_ms = std::llround(time_ms),
                         .hash_ids = prompt.Ids(),
                         .input_tokens = prompt.tokens(),
                         .output_tokens = reply});
    prompt.Append(NewText(), reply);
    return time_ms + 500 + reply * kDecodeMsPerToken;
  }

  // --- Agents ---

  PromptBuilder Application() {
    PromptBuilder prompt(options_.tokens_per_block);
    const size_t app = agents_.Draw(random_);
    AppendShared(prompt, SharedText(WorkloadKind::kAgents, app, 0), 6000, 0.7);
    const size_t project = projects_.Draw(random_);
    AppendShared(prompt, SharedText(WorkloadKind::kAgents, app, project + 1), 2000, 0.8);
    return prompt;
  }

  void RunTask(double time_ms) {
    const PromptBuilder application = Application();
    PromptBuilder prompt = application;
    prompt.Append(NewText(), Tokens(random_.LogNormal(300, 1)));
    const auto steps = static_cast<int>(std::min(300.0, random_.LogNormal(30, 0.8)));
    for (int step = 0; step <= steps; ++step) {
      if (random_.Happens(1.0 / 30)) Attempt(time_ms, prompt);
      time_ms = Step(time_ms, prompt);
      if (prompt.tokens() < kMostContextTokens) continue;
      prompt = application;
      prompt.Append(NewText(), Tokens(random_.LogNormal(2500, 0.4)));
    }
  }

  double Step(double time_ms, PromptBuilder& prompt) {
    time_ms = Request(time_ms, prompt, 340);
    prompt.Append(NewText(), Tokens(random_.LogNormal(900, 1.3)));
    return time_ms + 1000 * (random_.Happens(1.0 / 12) ? random_.LogNormal(60, 1.5)
                                                       : random_.LogNormal(2, 1.4));
  }

  // One to three further attempts from this prefix.
  void Attempt(double time_ms, const PromptBuilder& prefix) {
    for (uint64_t attempts = 1 + random_.Below(3); attempts > 0; --attempts) {
      PromptBuilder prompt = prefix;
      double attempt_ms = time_ms;
      for (uint32_t steps = random_.Geometric(5); steps > 0; --steps) {
        attempt_ms = Step(attempt_ms, prompt);
        if (prompt.tokens() >= kMostContextTokens) break;
      }
    }
  }

  // --- Chat ---

  void Converse(double time_ms) {
    PromptBuilder prompt(options_.tokens_per_block);
    AppendShared(prompt, SharedText(WorkloadKind::kChat, chats_.Draw(random_), 0), 500, 1);
    prompt.Append(NewText(), Tokens(random_.Happens(0.3) ? random_.LogNormal(10'000, 1.1)
                                                         : random_.LogNormal(150, 1.2)));
    for (uint32_t turns = random_.Geometric(3.5); turns > 0; --turns) {
      if (random_.Happens(1.0 / 25)) {
        PromptBuilder discarded = prompt;
        time_ms = Request(time_ms, discarded, 343) + 1000 * random_.LogNormal(15, 0.8);
      }
      time_ms = Request(time_ms, prompt, 343);
      time_ms += 1000 * (random_.Happens(1.0 / 20) ? random_.LogNormal(5400, 0.7)
                                                   : random_.LogNormal(45, 1.2));
      prompt.Append(NewText(), Tokens(random_.LogNormal(60, 1.2)));
      if (prompt.tokens() >= kMostContextTokens) break;
    }
  }

  const WorkloadOptions& options_;
  RandomDraws random_;
  // Applications of agents, projects of each, and applications of chats.
  const ZipfRanks agents_, projects_, chats_;
  uint64_t texts_ = 0;
  std::vector<TraceRequest> requests_;
};

// Keeps the `count` earliest requests, in the order of time.
void KeepEarliest(std::vector<TraceRequest>& requests, size_t count) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const auto& a, const auto& b) { return a.timestamp_ms < b.timestamp_ms; });
  if (requests.size() > count) requests.resize(count);
}

// Small numbers instead of hashes.
void Renumber(std::vector<TraceRequest>& requests) {
  absl::flat_hash_map<uint64_t, uint64_t> numbers;
  for (TraceRequest& request : requests) {
    for (uint64_t& id : request.hash_ids)
      id = numbers.try_emplace(id, numbers.size()).first->second;
  }
}

}  // namespace

std::string_view WorkloadKindName(WorkloadKind kind) {
  switch (kind) {
    case WorkloadKind::kAgents:
      return "agents";
    case WorkloadKind::kChat:
      return "chat";
    case WorkloadKind::kShift:
      break;
  }
  return "shift";
}

Trace GenerateWorkload(const WorkloadOptions& options) {
  Trace trace;
  trace.tokens_per_block = options.tokens_per_block;
  if (options.kind != WorkloadKind::kShift) {
    trace.requests = SessionMaker(options, options.seed)
                         .Generate(options.kind, options.requests, 0, options.hours);
    KeepEarliest(trace.requests, options.requests);
  } else {
    const size_t half = options.requests / 2;
    trace.requests = SessionMaker(options, options.seed)
                         .Generate(WorkloadKind::kChat, half, 0, options.hours / 2);
    KeepEarliest(trace.requests, half);
    std::vector<TraceRequest> second = SessionMaker(options, options.seed ^ 0x5851F42D4C957F2Du)
                                           .Generate(WorkloadKind::kAgents, options.requests - half,
                                                     options.hours / 2, options.hours / 2);
    KeepEarliest(second, options.requests - half);
    trace.requests.insert(trace.requests.end(), std::make_move_iterator(second.begin()),
                          std::make_move_iterator(second.end()));
    KeepEarliest(trace.requests, options.requests);
  }
  Renumber(trace.requests);
  return trace;
}

void WriteTrace(const Trace& trace, std::ostream& out) {
  bool is_first = true;
  for (const TraceRequest& request : trace.requests) {
    std::string line = absl::StrCat("{\"timestamp\": ", request.timestamp_ms);
    if (is_first && trace.tokens_per_block != kMooncakeBlockTokens) {
      absl::StrAppend(&line, ", \"tokens_per_block\": ", trace.tokens_per_block);
    }
    is_first = false;
    if (request.input_tokens.has_value()) {
      absl::StrAppend(&line, ", \"input_length\": ", *request.input_tokens);
    }
    absl::StrAppend(&line, ", \"output_length\": ", request.output_tokens, ", \"hash_ids\": [",
                    absl::StrJoin(request.hash_ids, ", "), "]}\n");
    out << line;
  }
}

}  // namespace pagoda
