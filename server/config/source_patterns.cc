#include "server/config/source_patterns.h"

#include <arpa/inet.h>
#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

bool IsAddress(int family, const std::string& host) {
  in6_addr address;  // The larger of the two.
  return inet_pton(family, host.c_str(), &address) == 1;
}

bool AllOf(const std::string& text, bool (*is_good)(char)) {
  return std::all_of(text.begin(), text.end(), is_good);
}

// Lower-case labels, separated by slashes: fnmatch lets no wildcard match a slash.
std::string Labels(const std::string& host) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(host), {{".", "/"}});
}

}  // namespace

absl::StatusOr<SourcePatterns::Pattern> SourcePatterns::ParseOne(const std::string& pattern) {
  const auto wrong = [&](const std::string& why) {
    return InvalidArgument(absl::StrCat("peers.sources: '", pattern, "': ", why));
  };
  const size_t colon = pattern.rfind(':');
  if (colon == std::string::npos || colon == 0) return wrong("not HOST:PORT");
  Pattern parsed{.kind = Kind::kName, .host = pattern.substr(0, colon)};
  const std::string port = pattern.substr(colon + 1);
  uint32_t number = 0;
  if (port != "*") {
    if (!absl::SimpleAtoi(port, &number) || number == 0 || number > 65535) {
      return wrong("the port is no number and not *");
    }
    parsed.port = static_cast<uint16_t>(number);
  }
  std::string& host = parsed.host;
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!IsAddress(AF_INET6, host)) return wrong("no IPv6 address is in the brackets");
    parsed.kind = Kind::kIpv6;
    return parsed;
  }
  const auto is_numeric = [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '.' || c == '*' || c == '?';
  };
  const auto is_named = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '*' || c == '?' ||
           c == '-' || c == '_';
  };
  if (!AllOf(host, is_named))
    return wrong("a host has letters, digits, '-', '_', '.', '*' and '?'");
  if (!AllOf(host, is_numeric)) return parsed;
  if (std::count(host.begin(), host.end(), '.') != 3) {
    return wrong("an IPv4 address has four parts, such as 10.1.*.*");
  }
  parsed.kind = Kind::kIpv4;
  return parsed;
}

absl::StatusOr<SourcePatterns> SourcePatterns::Parse(const std::vector<std::string>& patterns) {
  SourcePatterns parsed;
  for (const std::string& text : patterns) {
    absl::StatusOr<Pattern> pattern = ParseOne(text);
    if (!pattern.ok()) return pattern.status();
    parsed.patterns_.push_back(*std::move(pattern));
  }
  return parsed;
}

bool SourcePatterns::Allows(const RedisAddress& address) const {
  const bool is_ipv6 = IsAddress(AF_INET6, address.host);
  const Kind kind = is_ipv6                            ? Kind::kIpv6
                    : IsAddress(AF_INET, address.host) ? Kind::kIpv4
                                                       : Kind::kName;
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const Pattern& pattern) {
    if (pattern.kind != kind || (pattern.port != 0 && pattern.port != address.port)) return false;
    if (is_ipv6) {
      in6_addr one, other;
      inet_pton(AF_INET6, pattern.host.c_str(), &one);
      inet_pton(AF_INET6, address.host.c_str(), &other);
      return std::equal(std::begin(one.s6_addr), std::end(one.s6_addr), std::begin(other.s6_addr));
    }
    return fnmatch(Labels(pattern.host).c_str(), Labels(address.host).c_str(),
                   FNM_PATHNAME | FNM_NOESCAPE) == 0;
  });
}

}  // namespace pagoda::server
