#include "server/peers/login_guard.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace pagoda::server {

std::string NetworkOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return std::string(reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr);
  }
  if (address.ss_family != AF_INET6) return {};
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  const char* const bytes = reinterpret_cast<const char*>(&six.sin6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return std::string(bytes + 12, 4);
  return std::string(bytes, 8);
}

absl::Duration LoginGuard::Wait(const std::string& network, absl::Time now) const {
  const auto found = networks_.find(network);
  if (found == networks_.end()) return absl::ZeroDuration();
  return std::max(found->second.next_try - now, absl::ZeroDuration());
}

void LoginGuard::Failed(const std::string& network, const TokenDigest& token, absl::Time now) {
  absl::erase_if(networks_,
                 [now](const auto& entry) { return now - entry.second.last > kForgotten; });
  if (networks_.size() >= kMaxNetworks && !networks_.contains(network)) {
    networks_.erase(std::min_element(
        networks_.begin(), networks_.end(),
        [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }
  Failures& failures = networks_[network];
  std::vector<TokenDigest>& first = failures.first;
  if (std::find(first.begin(), first.end(), token) != first.end()) return;
  if (first.size() < kFree) first.push_back(token);
  failures.last = now;
  if (++failures.count < kFree) return;
  const int doublings = std::min(failures.count - kFree, 10);
  failures.next_try = now + std::min(kLongest, kFirst * (int64_t{1} << doublings));
}

}  // namespace pagoda::server
