// An HTTP listener for probes only.
#ifndef PAGODA_SERVER_HTTP_PROBE_SERVER_H_
#define PAGODA_SERVER_HTTP_PROBE_SERVER_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "server/http/http_server.h"
#include "server/listen_address.h"

namespace pagoda::server {

// Answers GET and HEAD of exact paths on one thread that waits for no client, as the loop of
// HttpServer does. Its connections have limits of their own, so no client of HttpServer keeps a
// probe out. Thread-safe.
//
// 1. At most kMaxConnections are open, and at most an eighth of the process's limit of open files.
//    A further one replaces the oldest one. If the request of the oldest one has arrived, it is
//    answered first. The connections come out of the quarter that AcceptByRule keeps free, so that
//    connections of other listeners keep no probe out.
// 2. A connection has kRequestTime to send a request of at most kMaxRequestBytes, and gets one
//    answer.
// 3. A route must return at once, because all probes wait for it.
class ProbeServer {
 public:
  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kMaxRequestBytes = 4096;
  static constexpr absl::Duration kRequestTime = absl::Seconds(2);

  // Errors: INVALID_ARGUMENT if the server cannot listen on the address.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(const TcpAddress& address,
                                                            HttpServer::Routes routes);
  ~ProbeServer();

  // The address, with the actual port if port 0 was asked for.
  const TcpAddress& address() const { return address_; }

 private:
  struct Connection {
    int fd;
    absl::Time deadline;
    std::string received;
  };

  ProbeServer(TcpAddress address, HttpServer::Routes routes, int listener, int stop_fd)
      : address_(std::move(address)),
        routes_(std::move(routes)),
        listener_(listener),
        stop_fd_(stop_fd) {}

  void Run();
  // Accepts at most kAcceptsPerRound waiting connections.
  void Accept();
  // Reads, and answers a complete request. Returns false if the connection is done.
  bool Serve(Connection& connection) const;
  // The complete answer; empty while the request is not complete.
  std::string AnswerTo(const std::string& received) const;

  const TcpAddress address_;
  const HttpServer::Routes routes_;
  const int listener_;
  const int stop_fd_;
  std::list<Connection> connections_;  // The oldest first. Used by the thread only.
  Thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_PROBE_SERVER_H_
