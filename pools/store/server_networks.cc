#include "pools/store/server_networks.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pagoda {
namespace {

constexpr uint32_t kNearBits4 = 24;
constexpr uint32_t kNearBits6 = 64;

// Without the prefix of an IPv4 address that is written as IPv6.
std::string Unmapped(const in6_addr& six) {
  const char* const bytes = reinterpret_cast<const char*>(&six);
  return IN6_IS_ADDR_V4MAPPED(&six) ? std::string(bytes + 12, 4) : std::string(bytes, sizeof six);
}

// 4 or 16 bytes; empty if it is neither.
std::string BytesOf(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address.storage);
    return std::string(reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr);
  }
  if (address.storage.ss_family != AF_INET6) return {};
  return Unmapped(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

std::string ParseNumber(const std::string& text) {
  in_addr four;
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) {
    return std::string(reinterpret_cast<const char*>(&four), sizeof four);
  }
  in6_addr six;
  if (inet_pton(AF_INET6, text.c_str(), &six) == 1) return Unmapped(six);
  return {};
}

bool IsLoopbackNumber(absl::string_view bytes) {
  if (bytes.size() == 4) return bytes[0] == 127;
  const in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
  return bytes == absl::string_view(reinterpret_cast<const char*>(&loopback), sizeof loopback);
}

std::string Readable(absl::string_view bytes) {
  char text[INET6_ADDRSTRLEN] = "an unknown address";
  inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

}  // namespace

absl::StatusOr<ServerNetworks> ServerNetworks::Parse(const std::vector<std::string>& networks) {
  ServerNetworks parsed;
  for (const std::string& text : networks) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
    Network network = {.bytes = ParseNumber(parts.first)};
    const auto most = static_cast<uint32_t>(8 * network.bytes.size());
    network.bits = most;
    const bool has_bits = text.find('/') != std::string::npos;
    if (most == 0 ||
        (has_bits && !(absl::SimpleAtoi(parts.second, &network.bits) && network.bits <= most))) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' is not a network like 10.0.0.0/8 or fd00::/8"));
    }
    parsed.networks_.push_back(std::move(network));
  }
  return parsed;
}

void ServerNetworks::AddSeed(const SocketAddress& address) {
  std::string bytes = BytesOf(address);
  if (bytes.empty() || std::find(seeds_.begin(), seeds_.end(), bytes) != seeds_.end()) return;
  if (seeds_.size() >= kMaxSeeds) seeds_.pop_front();
  seeds_.push_back(std::move(bytes));
}

bool ServerNetworks::Contains(const Network& network, absl::string_view address) {
  if (network.bytes.size() != address.size()) return false;
  for (uint32_t bit = 0; bit < network.bits; ++bit) {
    const size_t byte = bit / 8;
    const auto mask = static_cast<uint8_t>(0x80u >> bit % 8);
    if (((static_cast<uint8_t>(network.bytes[byte]) ^ static_cast<uint8_t>(address[byte])) &
         mask) != 0) {
      return false;
    }
  }
  return true;
}

bool ServerNetworks::Allows(absl::string_view address) const {
  if (!networks_.empty()) {
    return std::any_of(networks_.begin(), networks_.end(),
                       [address](const Network& network) { return Contains(network, address); });
  }
  const uint32_t bits = address.size() == 4 ? kNearBits4 : kNearBits6;
  return std::any_of(seeds_.begin(), seeds_.end(), [address, bits](const std::string& seed) {
    if (IsLoopbackNumber(seed) || IsLoopbackNumber(address)) {
      return IsLoopbackNumber(seed) && IsLoopbackNumber(address);
    }
    return Contains({.bytes = seed, .bits = bits}, address);
  });
}

absl::Status ServerNetworks::Check(const SocketAddress& address, bool has_password,
                                   bool has_tls) const {
  const std::string bytes = BytesOf(address);
  if (std::find(seeds_.begin(), seeds_.end(), bytes) != seeds_.end()) return absl::OkStatus();
  if (bytes.empty() || !Allows(bytes)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the cluster names a server at ", Readable(bytes),
                     ", which store.allowed_networks does not allow"));
  }
  if (has_password && !has_tls) {
    return absl::PermissionDeniedError(
        absl::StrCat("the password would go to ", Readable(bytes),
                     " without TLS: name the server in store.servers, or set store.tls.enabled"));
  }
  return absl::OkStatus();
}

}  // namespace pagoda
