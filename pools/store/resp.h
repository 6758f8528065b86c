// RESP2, the wire format of Redis: https://redis.io/docs/latest/develop/reference/protocol-spec/
#ifndef PAGODA_POOLS_STORE_RESP_H_
#define PAGODA_POOLS_STORE_RESP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pagoda::resp {

enum class Kind : uint8_t { kText, kError, kInteger, kBulk, kArray, kNull };

struct Value {
  Kind kind = Kind::kNull;
  std::string text;  // The text of kText, kError and kBulk.
  int64_t integer = 0;
  std::vector<Value> elements;

  bool is_text(absl::string_view expected) const { return kind == Kind::kText && text == expected; }
};

// The first line of a value.
struct Head {
  Kind kind = Kind::kNull;
  absl::string_view text;  // The text of kText and kError. Points into the parsed bytes.
  int64_t number = 0;      // The integer, a bulk's bytes, or an array's elements.
  size_t line_bytes = 0;   // With the line end.
};

// Bounds on what a peer can make us keep.
inline constexpr size_t kMaxLineBytes = 8 << 10;
inline constexpr size_t kMaxBulkBytes = size_t{512} << 20;  // Redis has the same bound.
// The map of a thousand servers with each slot in a range of its own has fewer. Each takes some 70
// bytes when it is parsed.
inline constexpr size_t kMaxElements = 1 << 18;
inline constexpr int kMaxDepth = 8;

// Parses the first line in `bytes`. nullopt: the line is not complete. InvalidArgument: this is not
// RESP, or beyond the bounds.
absl::StatusOr<std::optional<Head>> ParseHead(absl::string_view bytes);

struct Parsed {
  Value value;
  size_t bytes = 0;
};
// Parses the first value in `bytes`. nullopt and errors: as ParseHead.
absl::StatusOr<std::optional<Parsed>> Parse(absl::string_view bytes);

// Finds the end of a value whose bytes come in parts. Reads each byte once, so that a long reply
// costs no more than its length.
class Scanner {
 public:
  // `bytes`: all bytes of the value so far. True: it is complete, and has end() bytes. Errors: as
  // ParseHead.
  absl::StatusOr<bool> Scan(absl::string_view bytes);
  size_t end() const { return at_; }
  void Reset() { *this = Scanner(); }

 private:
  size_t at_ = 0;
  size_t elements_ = 0;
  std::vector<int64_t> left_;  // For each open array, the number of elements that have not arrived.
};

// Appends a command: an array of bulks.
void AppendCommand(absl::Span<const absl::string_view> arguments, std::string& out);

}  // namespace pagoda::resp

#endif  // PAGODA_POOLS_STORE_RESP_H_
