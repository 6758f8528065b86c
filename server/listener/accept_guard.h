// The rule by which this process accepts connections, on every listener.
#ifndef PAGODA_SERVER_LISTENER_ACCEPT_GUARD_H_
#define PAGODA_SERVER_LISTENER_ACCEPT_GUARD_H_

#include <sys/socket.h>

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace pagoda::server {

// gRPC 1.51 stops a listener for ever if accept4 fails, for example because the process has no free
// descriptor. The program therefore defines accept and accept4 of the C library (header_guard.cc),
// and both follow this rule. So it holds for gRPC and ZMQ as well as for the daemon's own
// servers. Thread-safe.
//
// 1. A listener sees no error of one connection and no lack of descriptors or memory. If the
//    process has no free descriptor, the waiting connection is closed.
// 2. A quarter of the process's limit of open files stays free for files, memory and stores. The
//    kernel gives the lowest free descriptor, so the number of a new connection shows how many
//    descriptors are in use. A connection beyond three quarters of the limit is closed.
// 3. One address holds at most a quarter of the limit. An address is an IPv4 address, the first 64
//    bits of an IPv6 address, or the user of the process at the other end of a Unix socket.

// Accepts a connection by `next`, which calls the library's function. Returns and sets errno like
// accept, with the errors EAGAIN, EINTR and those of a listener that has ended.
int AcceptByRule(int listener, sockaddr* address, socklen_t* size,
                 absl::FunctionRef<int(sockaddr*, socklen_t*)> next);
// Called before a descriptor is closed. Any descriptor can be passed.
void ForgetAccepted(int fd);

// From now on the rule does not apply to this listener, because its server limits its connections
// and handles every error.
void ExemptFromAcceptRule(int listener);

// How often accept was called on this listener. A listener whose number does not grow while
// connections wait is dead.
uint32_t AcceptCalls(int listener);

// Announces a connection of this process to its own listener: it is closed when it is accepted, and
// no server sees it. `client` is bound and not yet connected.
void ExpectKnock(int client);
// Called before `client` is closed.
void ForgetKnock(int client);

// Connections that the rule has closed since the process started.
struct RefusedConnections {
  uint64_t open_files = 0;   // By 1 and 2.
  uint64_t per_address = 0;  // By 3.
};
RefusedConnections CountRefusedConnections();

// The highest number of open files that the guards work with.
inline constexpr uint32_t kMaxOpenFiles = 1 << 20;
// The process's limit of open files, at most kMaxOpenFiles.
uint32_t OpenFileLimit();
// Raises the soft limit of open files to the hard one, at most to kMaxOpenFiles.
void RaiseOpenFileLimit();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTENER_ACCEPT_GUARD_H_
