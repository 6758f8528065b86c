// Opens a ZMQ socket at an endpoint.
#ifndef PAGODA_SERVER_BRIDGES_ZMQ_SOCKET_H_
#define PAGODA_SERVER_BRIDGES_ZMQ_SOCKET_H_

#include <zmq.hpp>

#include <string>

#include "absl/status/statusor.h"
#include "server/config/zmq_endpoint.h"

namespace pagoda::server {

// Makes the socket listen or connect. The file of a listening ipc socket gets the mode 0660.
// Returns the address, with the actual port. REQUIRES: CheckEndpoint (zmq_endpoint.h).
// Errors: INVALID_ARGUMENT, with the system's message.
absl::StatusOr<std::string> OpenEndpoint(zmq::socket_t& socket, const std::string& endpoint,
                                         ZmqMode mode);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ZMQ_SOCKET_H_
