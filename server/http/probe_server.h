// A listener for probes alone.
#ifndef PAGODA_SERVER_HTTP_PROBE_SERVER_H_
#define PAGODA_SERVER_HTTP_PROBE_SERVER_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/http/http_server.h"
#include "server/listen_address.h"

namespace pagoda::server {

// Answers GET and HEAD of exact paths on one thread that waits for no client. HttpServer gives each
// connection a thread for as long as its request takes to come, so connections that say nothing
// hold up a probe there; here they cost a descriptor. Thread-safe.
//
// 1. At most kMaxConnections are open. One more takes the place of the oldest, unless that one's
// request has come: then it is answered first.
// 2. A connection has kRequestTime to bring its request, of at most kMaxRequestBytes, and gets one
// answer.
// 3. A route returns at once: all probes wait for it.
class ProbeServer {
 public:
  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kMaxRequestBytes = 4096;
  static constexpr absl::Duration kRequestTime = absl::Seconds(2);

  // Errors: INVALID_ARGUMENT where the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(const TcpAddress& address,
                                                            HttpServer::Routes routes);
  ~ProbeServer();

  // With the port that was taken where the address asked for any.
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
  // Takes of those that wait to be accepted as many as one round may.
  void Accept();
  // Reads, and answers where the request is whole. False: the connection is over.
  bool Serve(Connection& connection) const;
  // The answer as it is sent; empty while the request is not whole.
  std::string AnswerTo(const std::string& received) const;

  const TcpAddress address_;
  const HttpServer::Routes routes_;
  const int listener_;
  const int stop_fd_;
  std::list<Connection> connections_;  // The oldest first; of the thread.
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_PROBE_SERVER_H_
