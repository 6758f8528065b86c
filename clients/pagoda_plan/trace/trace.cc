#include "clients/pagoda_plan/trace/trace.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <streambuf>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using JsonLine = nlohmann::json;

constexpr size_t kMaxLineBytes = size_t{4} << 20;
// About thirty thousand years. Larger times would not fit absl::Duration's arithmetic as integers.
constexpr double kMaxMilliseconds = 1e15;

absl::Status InvalidTrace(const std::string& message) {
  return MakeError(Reason::kInvalidArgument, message);
}

// Reads a line of at most kMaxLineBytes. Returns false at the end of the stream.
absl::StatusOr<bool> ReadLine(std::istream& in, std::string& line) {
  constexpr int kEnd = std::istream::traits_type::eof();
  line.clear();
  // Not std::getline, which has no limit.
  std::streambuf& bytes = *in.rdbuf();
  if (bytes.sgetc() == kEnd) return false;
  for (int c = bytes.sbumpc(); c != '\n' && c != kEnd; c = bytes.sbumpc()) {
    if (line.size() == kMaxLineBytes) {
      return InvalidTrace(absl::StrCat("the line is longer than ", kMaxLineBytes >> 20, " MiB"));
    }
    line.push_back(static_cast<char>(c));
  }
  return true;
}

absl::StatusOr<int64_t> Milliseconds(const JsonLine& object, TraceFormat format) {
  const auto found = object.find("timestamp");
  if (found == object.end() || !found->is_number()) {
    return InvalidTrace("\"timestamp\" is missing or not a number");
  }
  const double value = found->get<double>() * (format == TraceFormat::kBailian ? 1000 : 1);
  if (!(std::abs(value) <= kMaxMilliseconds)) {
    return InvalidTrace(absl::StrCat("\"timestamp\" ", found->dump(), " is out of range"));
  }
  // Mooncake's are whole numbers: a fraction is cut off.
  return static_cast<int64_t>(format == TraceFormat::kBailian ? std::round(value) : value);
}

// A number of tokens; nullopt if there is no such member.
absl::StatusOr<std::optional<uint32_t>> Tokens(const JsonLine& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  if (!found->is_number_unsigned() || found->get<uint64_t>() > kMaxTraceRequestTokens) {
    return InvalidTrace(absl::StrCat("\"", name, "\" ", found->dump(),
                                     " is not an integer from 0 to ", kMaxTraceRequestTokens));
  }
  return found->get<uint32_t>();
}

// The id of a request or of its parent; nullopt if there is none.
absl::StatusOr<std::optional<int64_t>> ChatId(const JsonLine& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  if (!found->is_number_integer()) {
    return InvalidTrace(absl::StrCat("\"", name, "\" ", found->dump(), " is not an integer"));
  }
  const auto id = found->get<int64_t>();
  return id < 0 ? std::nullopt : std::optional(id);
}

absl::StatusOr<std::vector<uint64_t>> HashIds(const JsonLine& object, uint32_t tokens_per_block) {
  const auto hash_ids = object.find("hash_ids");
  if (hash_ids == object.end() || !hash_ids->is_array()) {
    return InvalidTrace("\"hash_ids\" is missing or not an array");
  }
  if (hash_ids->size() > kMaxTraceRequestTokens / tokens_per_block) {
    return InvalidTrace(absl::StrCat(hash_ids->size(), " hash ids of ",
                                     Counted(tokens_per_block, "token"), " are more than ",
                                     kMaxTraceRequestTokens, " tokens"));
  }
  std::vector<uint64_t> ids;
  ids.reserve(hash_ids->size());
  for (const JsonLine& id : *hash_ids) {
    if (!id.is_number_unsigned()) {
      return InvalidTrace(absl::StrCat("hash id ", id.dump(), " is not an unsigned integer"));
    }
    ids.push_back(id.get<uint64_t>());
  }
  return ids;
}

absl::StatusOr<TraceRequest> RequestOf(const JsonLine& object, const Trace& trace) {
  TraceRequest request;
  const absl::StatusOr<int64_t> time = Milliseconds(object, trace.format);
  if (!time.ok()) return time.status();
  request.timestamp_ms = *time;

  absl::StatusOr<std::vector<uint64_t>> ids = HashIds(object, trace.tokens_per_block);
  if (!ids.ok()) return ids.status();
  request.hash_ids = *std::move(ids);

  const auto input = Tokens(object, "input_length");
  if (!input.ok()) return input.status();
  request.input_tokens = *input;
  const auto output = Tokens(object, "output_length");
  if (!output.ok()) return output.status();
  request.output_tokens = output->value_or(0);
  if (uint64_t{input->value_or(0)} + request.output_tokens > kMaxTraceRequestTokens) {
    return InvalidTrace(
        absl::StrCat("the request has more than ", kMaxTraceRequestTokens, " tokens"));
  }

  if (trace.format != TraceFormat::kBailian) return request;
  const auto chat = ChatId(object, "chat_id");
  if (!chat.ok()) return chat.status();
  request.chat_id = *chat;
  const auto parent = ChatId(object, "parent_chat_id");
  if (!parent.ok()) return parent.status();
  request.parent_chat_id = *parent;
  return request;
}

bool IsOdd(const TraceRequest& request, uint32_t tokens_per_block) {
  if (!request.input_tokens.has_value()) return false;
  const uint64_t by_ids = request.hash_ids.size() * uint64_t{tokens_per_block};
  return by_ids + tokens_per_block < *request.input_tokens ||
         by_ids > uint64_t{*request.input_tokens} + 2 * uint64_t{tokens_per_block};
}

// Decides about the properties of the whole trace, by its first request.
absl::Status Recognise(const JsonLine& first, const TraceReadOptions& options, Trace& trace) {
  const bool has_chats = first.contains("chat_id") || first.contains("parent_chat_id");
  trace.format =
      options.format.value_or(has_chats ? TraceFormat::kBailian : TraceFormat::kMooncake);
  trace.tokens_per_block =
      trace.format == TraceFormat::kBailian ? kBailianBlockTokens : kMooncakeBlockTokens;
  if (options.tokens_per_block.has_value()) {
    trace.tokens_per_block = *options.tokens_per_block;
  } else {
    const auto own = Tokens(first, "tokens_per_block");
    if (!own.ok()) return own.status();
    if (own->has_value()) trace.tokens_per_block = **own;
  }
  if (!std::has_single_bit(trace.tokens_per_block) ||
      trace.tokens_per_block < kMinTraceBlockTokens ||
      trace.tokens_per_block > kMaxTraceBlockTokens) {
    return InvalidTrace(absl::StrCat(Counted(trace.tokens_per_block, "token"),
                                     " per block: no power of two from ", kMinTraceBlockTokens,
                                     " to ", kMaxTraceBlockTokens));
  }
  return absl::OkStatus();
}

class Parser {
 public:
  explicit Parser(const TraceReadOptions& options) : options_(options) {}

  absl::Status Read(std::istream& in) {
    std::string line;
    while (options_.limit == 0 || trace.requests.size() < options_.limit) {
      ++line_number;
      const absl::StatusOr<bool> got = ReadLine(in, line);
      if (!got.ok()) return got.status();
      if (!*got) return absl::OkStatus();
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (const absl::Status status = Add(line); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  Trace trace;
  size_t line_number = 0;

 private:
  absl::Status Add(const std::string& line) {
    const JsonLine object = JsonLine::parse(line, /*cb=*/nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return InvalidTrace("not a JSON object");
    if (trace.requests.empty()) {
      if (const absl::Status status = Recognise(object, options_, trace); !status.ok()) {
        return status;
      }
    }
    absl::StatusOr<TraceRequest> request = RequestOf(object, trace);
    if (!request.ok()) return request.status();
    if (IsOdd(*request, trace.tokens_per_block)) {
      if (trace.odd_lengths++ == 0) trace.first_odd_line = line_number;
    }
    trace.requests.push_back(*std::move(request));
    return absl::OkStatus();
  }

  const TraceReadOptions& options_;
};

}  // namespace

std::string_view TraceFormatName(TraceFormat format) {
  return format == TraceFormat::kBailian ? "bailian" : "mooncake";
}

absl::StatusOr<Trace> ParseTrace(std::istream& in, const std::string& name,
                                 const TraceReadOptions& options) {
  Parser parser(options);
  const absl::Status status = parser.Read(in);
  if (status.ok()) return std::move(parser.trace);
  return InvalidTrace(absl::StrCat(name, ":", parser.line_number, ": ", status.message()));
}

absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceReadOptions& options) {
  std::ifstream file(path);
  if (!file) return InvalidTrace(absl::StrCat("cannot read ", path));
  return ParseTrace(file, path, options);
}

}  // namespace pagoda
