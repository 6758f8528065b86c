#include "server/peers/login_guard.h"

#include <netinet/in.h>

#include <algorithm>
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
  return std::max(found->second.paid - now - (kFree - 1) * kInterval, absl::ZeroDuration());
}

void LoginGuard::Failed(const std::string& network, const TokenDigest& token, absl::Time now) {
  absl::erase_if(networks_,
                 [now](const auto& entry) { return now - entry.second.paid > kForgotten; });
  if (networks_.size() >= kMaxNetworks && !networks_.contains(network)) {
    networks_.erase(std::min_element(
        networks_.begin(), networks_.end(),
        [](const auto& a, const auto& b) { return a.second.paid < b.second.paid; }));
  }
  Failures& failures = networks_[network];
  std::vector<TokenDigest>& first = failures.first;
  if (std::find(first.begin(), first.end(), token) != first.end()) return;
  if (first.size() < kFree) first.push_back(token);
  failures.paid = std::max(failures.paid, now) + kInterval;
}

}  // namespace pagoda::server
