// Opens a ZMQ socket at an endpoint.
#ifndef PAGODA_SERVER_BRIDGES_ZMQ_SOCKET_H_
#define PAGODA_SERVER_BRIDGES_ZMQ_SOCKET_H_

#include <zmq.hpp>

#include <string>

#include "absl/status/statusor.h"

namespace pagoda::server {

// Binds or connects the socket; a bound ipc socket's file has the mode 0660. Returns where it is,
// with the port that was taken. REQUIRES: CheckEndpoint (zmq_endpoint.h). Errors: INVALID_ARGUMENT
// with the system's word for it.
absl::StatusOr<std::string> OpenEndpoint(zmq::socket_t& socket, const std::string& endpoint);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ZMQ_SOCKET_H_
