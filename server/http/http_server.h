// The daemon's HTTP server: metrics, probes, the status page and the OpenAI API.
#ifndef PAGODA_SERVER_HTTP_HTTP_SERVER_H_
#define PAGODA_SERVER_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/event_poll.h"
#include "base/file_descriptor.h"
#include "base/thread.h"
#include "server/config/listen_address.h"
#include "server/http/http_exchange.h"
#include "server/http/work_threads.h"

namespace pagoda::server {

struct HttpHead;

// The number `name` in the query; `otherwise` if it is missing. Errors: INVALID_ARGUMENT unless it
// is a number from 0 to 2^64 - 1.
absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name,
                                     uint64_t otherwise);

// The value of `name` in the query, not decoded; "" if it is missing.
std::string QueryText(const HttpRequest& request, const std::string& name);

// Answers GET and HEAD, or POST, of exact paths. Any other path is a 404, any other method a 405.
// A connection has one request.
//
// 1. One thread, the loop, waits for all clients. Another thread works for a request only when the
//    request is complete.
// 2. A request, with its body, has kRequestTime to arrive. At most kMaxUnfinished connections wait
//    for the head of their request; a further one, or one without a descriptor, closes the oldest.
//    If the request of the oldest one has arrived, it is answered first.
// 3. The loop writes the answers to GET, the probes and the refusals. At most kMaxAnswering are
//    under way, and as many clients have their answer and have not closed yet. A refused request
//    gets its answer before its body is read, and the connection ends.
// 4. The answer to a POST occupies its thread until the client has read it, or PacedWriter gives
//    the client up.
class HttpServer {
 public:
  // By path, such as "/metrics"; "/v1/models/*" is the route of all paths that begin so, unless
  // they have a route of their own. Called on the server's threads, several at a time.
  using Routes = std::map<std::string, std::function<HttpResponse(const HttpRequest&)>>;
  // Called on the loop with the head of a request, before its body is read, and returns at once:
  // a refusal, or what takes the body.
  using Admission = std::variant<HttpResponse, std::unique_ptr<HttpPost>>;
  using PostRoutes = std::map<std::string, std::function<Admission(const HttpRequest&)>>;
  struct Posts {
    PostRoutes routes;
    uint32_t threads = 0;       // Requests that run at the same time.
    size_t max_body_bytes = 0;  // A larger body is MESSAGE_TOO_LARGE.
  };
  struct Handlers {
    Routes probes;  // Answered by the loop itself, so they must return at once.
    Routes routes;
    Posts posts;
  };

  static constexpr absl::Duration kRequestTime = absl::Seconds(10);
  // Or an eighth of the process's limit of open files, if that is less.
  static constexpr size_t kMaxUnfinished = 1024;
  static constexpr size_t kMaxAnswering = 256;

  // A request to a server for probes alone has this time to arrive.
  static constexpr absl::Duration kProbeTime = absl::Seconds(2);
  // Connections in any state; or an eighth of the limit of open files.
  static constexpr size_t kMaxProbes = 256;

  // Errors: INVALID_ARGUMENT if the server cannot listen on the address; those of Thread::Start and
  // EventPoll::Create.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const TcpAddress& address,
                                                           Handlers handlers);
  // A server for probes alone has one thread. Its connections come out of the quarter of the open
  // files that AcceptByRule keeps free, so connections of other listeners keep no probe out.
  static absl::StatusOr<std::unique_ptr<HttpServer>> StartProbes(const TcpAddress& address,
                                                                 Routes probes);
  // Waits for running requests, but not for clients that have not read their answers.
  ~HttpServer();

  // The address, with the actual port if port 0 was asked for.
  const TcpAddress& address() const { return address_; }

 private:
  struct Connection;
  using Connections = std::list<std::unique_ptr<Connection>>;

  struct Limits {
    absl::Duration request_time;
    size_t max_unfinished;
    size_t max_answering;
    size_t get_threads;
  };

  HttpServer(TcpAddress address, Handlers handlers, Limits limits, FileDescriptor listener,
             EventPoll poll);
  // Takes the listener.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(ListeningSocket listener,
                                                            Handlers handlers, Limits limits);

  // On a thread of its own. Returns what the loop writes; "" if the answer is written.
  using Work = std::function<std::string(Connection*)>;

  // All of these run on the loop.
  void Run();
  void Accept();
  // Does what the connection waits for.
  void Serve(Connection* connection);
  void ReadHead(Connection* connection);
  void Dispatch(Connection* connection, const HttpHead& head);
  void BeginPost(Connection* connection, const HttpHead& head);
  void ReadBody(Connection* connection);
  void TakeBody(Connection* connection, absl::string_view bytes);
  void RunPost(Connection* connection, absl::Status body_status);
  void HandOver(Connection* connection, WorkThreads& threads, Work work);
  // Takes back the connections that the threads have finished with.
  void TakeBack() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartWriting(Connection* connection, std::string answer);
  void GoOnWriting(Connection* connection);
  // Waits until the client closes its side. If the connection were closed while the client still
  // sends, the client could lose the answer.
  void Linger(Connection* connection);
  // Puts the connection into a list, and waits for these events of it; 0: for none.
  void Move(Connection* connection, Connections* list, uint32_t events);
  void Close(Connection* connection);
  // Closes connections whose time is over, and the oldest ones above the limits.
  void Sweep(absl::Time now);
  // Closes the oldest connection without a request, unless its request has arrived.
  void ReplaceOldest();
  void GiveUp(Connection* connection);
  // Sets the request's `rest`.
  Routes::const_iterator RouteFor(const std::string& path, HttpRequest& request) const;

  const TcpAddress address_;
  const Handlers handlers_;
  const Limits limits_;
  FileDescriptor listener_;  // Its address is its source in poll_.
  EventPoll poll_;
  std::atomic<bool> stopping_ = false;  // The loop accepts and reads no more.
  std::atomic<bool> ended_ = false;     // No thread works any more: the loop ends.

  // Used by the loop only. Each connection is in one list, the oldest first.
  Connections unfinished_;  // Their heads are awaited.
  Connections bodies_;      // Their routes bound them.
  Connections working_;     // A thread has them.
  Connections answering_;   // The loop writes their answers.
  Connections lingering_;   // Their answers are written. They cut no answer of others.
  Connections closed_;      // Freed at the end of a round: an event of the round can name them.
  absl::Time next_sweep_ = absl::InfinitePast();

  absl::Mutex mutex_;
  struct Finished {
    Connection* connection;
    std::string answer;  // For the loop to write; "" if it is written already.
  };
  std::vector<Finished> finished_ ABSL_GUARDED_BY(mutex_);

  WorkThreads get_threads_;
  WorkThreads post_threads_;
  Thread loop_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_SERVER_H_
