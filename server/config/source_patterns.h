// Which daemons may be named as sources of prefixes.
#ifndef PAGODA_SERVER_CONFIG_SOURCE_PATTERNS_H_
#define PAGODA_SERVER_CONFIG_SOURCE_PATTERNS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/store/cluster_map.h"

namespace pagoda::server {

// A list of patterns "HOST:PORT". In HOST, * stands for any characters and ? for one, but for no
// dot. PORT is a number, or * for any.
//
// A pattern of numbers and wildcards, "10.1.*.*", matches IPv4 addresses alone, so that no name of
// somebody else's domain matches it. Other patterns match names. An IPv6 address, in brackets, has
// no wildcards.
class SourcePatterns {
 public:
  // INVALID_ARGUMENT: not of this form.
  static absl::StatusOr<SourcePatterns> Parse(const std::vector<std::string>& patterns);

  bool Allows(const RedisAddress& address) const;
  bool empty() const { return patterns_.empty(); }

 private:
  enum class Kind { kIpv4, kIpv6, kName };
  struct Pattern {
    Kind kind;
    std::string host;   // Without brackets.
    uint16_t port = 0;  // 0: any.
  };
  static absl::StatusOr<Pattern> ParseOne(const std::string& pattern);

  std::vector<Pattern> patterns_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_SOURCE_PATTERNS_H_
