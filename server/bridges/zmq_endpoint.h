// Where a ZMQ socket of vLLM's world is.
#ifndef PAGODA_SERVER_BRIDGES_ZMQ_ENDPOINT_H_
#define PAGODA_SERVER_BRIDGES_ZMQ_ENDPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace pagoda::server {

// Takes "ipc:///path", "inproc://name" and "tcp://host:port", with "*" for every interface or any
// free port. Errors: INVALID_ARGUMENT for anything else.
absl::Status CheckEndpoint(const std::string& endpoint);

// Whether a socket listens or connects. kAuto is vLLM's rule, by the endpoint: a socket listens
// where the endpoint has a "*" or "::" in it or is of ipc or inproc; else it connects, to a peer
// that may come later. By that rule "tcp://127.0.0.1:5557" connects, so kListen is for loopback.
enum class ZmqMode : uint8_t { kAuto, kListen, kConnect };

bool Listens(const std::string& endpoint, ZmqMode mode);

// Whether what goes there stays on this machine. REQUIRES: CheckEndpoint.
bool StaysHere(const std::string& endpoint);

// The file of a socket at "ipc:///path", whose mode says who may connect; empty for another kind of
// endpoint, also for "ipc://@name", which has no file.
std::string SocketFile(const std::string& endpoint);

// Whether no process but this one gets there.
bool IsInProcess(const std::string& endpoint);

// Whether the host is an IPv6 address, which stands in brackets.
bool IsIpv6(const std::string& endpoint);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ZMQ_ENDPOINT_H_
