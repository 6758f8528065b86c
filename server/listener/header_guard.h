// Replaces functions of libraries, to apply ConnectionLimit before gRPC's parser and AcceptByRule
// to every connection that this process accepts.
#ifndef PAGODA_SERVER_LISTENER_HEADER_GUARD_H_
#define PAGODA_SERVER_LISTENER_HEADER_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"

namespace pagoda::server {

// gRPC 1.51 offers no hook between the socket, or TLS, and its parser. The program therefore
// defines the functions with which gRPC serves its clients: accept4, recvmsg, sendmsg and close of
// the C library, and SSL_read and SSL_write of OpenSSL. Each calls the library's function and
// inspects its result. A connection that ConnectionLimit ends appears to be reset or at its end
// (with TLS: broken), and gRPC closes it. Sockets that this process did not accept pass unchanged.
// accept, which other libraries call, accept4 and close also follow the rule of accept_guard.h.
//
// The dynamic linker prefers a program's definition to a library's, so this works for gRPC as a
// shared and as a static library.

// Whether the library calls resolve to the guard's functions. Errors: FAILED_PRECONDITION with the
// name of the first function that does not.
absl::Status CheckHeaderGuard();

// Connections that the guard has ended since the process started.
uint64_t HeaderGuardRefusals();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTENER_HEADER_GUARD_H_
