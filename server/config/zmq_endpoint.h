// Endpoints of ZMQ sockets, by vLLM's rules.
#ifndef PAGODA_SERVER_CONFIG_ZMQ_ENDPOINT_H_
#define PAGODA_SERVER_CONFIG_ZMQ_ENDPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace pagoda::server {

// Accepts "ipc:///path", "inproc://name" and "tcp://host:port". A host "*" means every interface, a
// port "*" any free port. Errors: INVALID_ARGUMENT for anything else.
absl::Status CheckEndpoint(const std::string& endpoint);

// Whether a socket listens or connects. kAuto is vLLM's rule: a socket listens if the endpoint
// contains "*" or "::", or is ipc or inproc. Otherwise it connects to a peer, which can start
// later. By that rule "tcp://127.0.0.1:5557" connects; kListen makes it listen on loopback.
enum class ZmqMode : uint8_t { kAuto, kListen, kConnect };

bool Listens(const std::string& endpoint, ZmqMode mode);

// Whether data sent to the endpoint stays on this machine. REQUIRES: CheckEndpoint.
bool StaysHere(const std::string& endpoint);

// The file of a socket at "ipc:///path"; its mode decides which users may connect. Empty for other
// kinds of endpoints, and for "ipc://@name", which has no file.
std::string SocketFile(const std::string& endpoint);

// Whether only this process can reach the endpoint.
bool IsInProcess(const std::string& endpoint);

// Whether the host is an IPv6 address, which is written in brackets.
bool IsIpv6(const std::string& endpoint);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CONFIG_ZMQ_ENDPOINT_H_
