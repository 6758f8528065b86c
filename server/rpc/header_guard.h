// Puts HeaderLimit before gRPC's parser, on every connection that this process accepts.
#ifndef PAGODA_SERVER_RPC_HEADER_GUARD_H_
#define PAGODA_SERVER_RPC_HEADER_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"

namespace pagoda::server {

// gRPC 1.51 has no place for a filter between the socket, or TLS, and its parser. So the program
// defines the four functions with which gRPC takes bytes from clients: accept4, recvmsg and close
// of the C library, and SSL_read of OpenSSL. Each calls the library's own and looks at what it
// brings. A connection that exceeds HeaderLimit reads as if it were reset (with TLS: as broken),
// and gRPC closes it. Sockets that were not accepted pass as they are.
//
// The dynamic linker takes a program's definition before a library's, so this holds for gRPC as a
// shared library and as a static one.

// Whether the library calls resolve to the guard's functions. Errors: FAILED_PRECONDITION, with the
// name of the function that does not.
absl::Status CheckHeaderGuard();

// Connections that the guard has ended since the process started.
uint64_t HeaderGuardRefusals();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_HEADER_GUARD_H_
