#include "server/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/error.h"
#include "base/event_poll.h"
#include "base/file_descriptor.h"
#include "server/http/http_request.h"
#include "server/http/socket_exchange.h"
#include "server/listener/accept_guard.h"

namespace pagoda::server {
namespace {

constexpr int kHttpBacklog = 1024;
// Routes of GET wait for the core's lock at most.
constexpr size_t kGetThreads = 8;
constexpr size_t kMaxWaitingGets = 1024;
constexpr int kAcceptsInARound = 64;
constexpr size_t kReadBytes = size_t{64} << 10;
// The kernel would keep megabytes for a client that reads nothing, and ReadingPace would count them
// as taken. The kernel doubles the number.
constexpr int kSendBufferBytes = 128 << 10;
// How often deadlines are looked at.
constexpr absl::Duration kSweepInterval = absl::Milliseconds(100);
constexpr absl::Duration kLingerTime = absl::Seconds(2);
// The pause if the process has no free descriptor.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(10);
// The time for answers that clients are still reading when the server ends.
constexpr absl::Duration kEndTime = absl::Milliseconds(200);

// JSON for paths of the two APIs, each in its form; else plain text.
HttpResponse Refusal(int status, const std::string& path, const char* reason, const char* text) {
  if (absl::StartsWith(path, "/v1/")) {
    return {.status = status,
            .content_type = "application/json",
            .body = absl::StrCat(R"({"error":{"message":")", text,
                                 R"(","type":"invalid_request_error","param":null,"code":")",
                                 absl::AsciiStrToLower(reason), "\"}}")};
  }
  if (!absl::StartsWith(path, "/api/")) return {.status = status, .body = absl::StrCat(text, "\n")};
  return {
      .status = status,
      .content_type = "application/json",
      .body = absl::StrCat(R"({"error":{"reason":")", reason, R"(","message":")", text, "\"}}")};
}

std::string Text(const HttpResponse& response) {
  return absl::StrCat(HeadOf(response), response.body);
}

absl::Status TooLarge(size_t max_bytes) {
  return MakeError(Reason::kMessageTooLarge,
                   absl::StrCat("the request's body is larger than ", max_bytes, " bytes"));
}

}  // namespace

struct HttpServer::Connection {
  enum class State : uint8_t { kHead, kBody, kWorking, kWriting, kLingering, kClosed };

  FileDescriptor fd;
  State state = State::kHead;
  bool is_watched = false;  // By epoll.
  absl::Time deadline;
  std::string received;  // The head.
  std::unique_ptr<HttpPost> post;
  BodyReader reader;
  std::string body;
  absl::Status body_status;  // An error: why there is no body.
  Framing framing = Framing::kChunks;
  std::string answer;
  size_t written = 0;
  Connections* list = nullptr;
  Connections::iterator place;
};

HttpServer::HttpServer(TcpAddress address, Handlers handlers, Limits limits,
                       FileDescriptor listener, EventPoll poll)
    : address_(std::move(address)),
      handlers_(std::move(handlers)),
      limits_(limits),
      listener_(std::move(listener)),
      poll_(std::move(poll)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const TcpAddress& address,
                                                              Handlers handlers) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, kHttpBacklog);
  if (!listener.ok()) return listener.status();
  return Listen(*std::move(listener), std::move(handlers),
                {.request_time = kRequestTime,
                 .max_unfinished = std::min<size_t>(kMaxUnfinished, OpenFileLimit() / 8),
                 .max_answering = kMaxAnswering,
                 .get_threads = kGetThreads});
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::StartProbes(const TcpAddress& address,
                                                                    Routes probes) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, kHttpBacklog);
  if (!listener.ok()) return listener.status();
  ExemptFromAcceptRule(listener->fd.get());
  // Connections that wait, get their answer, and linger.
  const size_t most = std::min<size_t>(kMaxProbes, OpenFileLimit() / 8);
  return Listen(*std::move(listener), {.probes = std::move(probes), .routes = {}, .posts = {}},
                {.request_time = kProbeTime,
                 .max_unfinished = most / 2,
                 .max_answering = most / 4,
                 .get_threads = 0});
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(ListeningSocket listener,
                                                               Handlers handlers, Limits limits) {
  absl::StatusOr<EventPoll> poll = EventPoll::Create();
  if (!poll.ok()) return poll.status();
  auto server = absl::WrapUnique(new HttpServer(std::move(listener.address), std::move(handlers),
                                                limits, std::move(listener.fd), *std::move(poll)));
  if (!server->poll_.Add(server->listener_.get(), EPOLLIN, &server->listener_)) {
    return absl::ResourceExhaustedError("epoll cannot watch the listening socket");
  }
  absl::Status started = server->get_threads_.Start("pagoda-http-get", limits.get_threads);
  started.Update(server->post_threads_.Start("pagoda-http-gen", server->handlers_.posts.threads));
  started.Update(server->loop_.Start("pagoda-http", [s = server.get()] { s->Run(); }));
  if (!started.ok()) return started;
  return server;
}

HttpServer::~HttpServer() {
  stopping_ = true;
  get_threads_.Stop();
  post_threads_.Stop();
  ended_ = true;
  poll_.Wake();
  loop_.Join();
  for (Connections* list : {&unfinished_, &bodies_, &working_, &answering_, &lingering_}) {
    while (!list->empty()) Close(list->front().get());
  }
  closed_.clear();
}

void HttpServer::Run() {
  std::optional<absl::Time> end;
  while (true) {
    const EventPoll::Ready ready = poll_.Wait(kSweepInterval);
    bool accepts = false;
    for (void* const source : ready.sources) {
      if (source == &listener_) {
        accepts = true;
      } else {
        Serve(static_cast<Connection*>(source));
      }
    }
    TakeBack();
    if (accepts && stopping_) poll_.Remove(listener_.get());
    if (accepts && !stopping_) Accept();
    const absl::Time now = absl::Now();
    Sweep(now);
    closed_.clear();  // No event names them any more.
    if (!ended_) continue;
    if (!end.has_value()) end = now + kEndTime;
    if (now >= *end || answering_.empty()) return;
  }
}

void HttpServer::Accept() {
  for (int accepted = 0; accepted < kAcceptsInARound; ++accepted) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno != EMFILE && errno != ENFILE) return;
      if (unfinished_.empty()) return absl::SleepFor(kAcceptPause);
      ReplaceOldest();
      continue;
    }
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
    Connection* const connection = unfinished_.emplace_back(std::make_unique<Connection>()).get();
    connection->fd = FileDescriptor(fd);
    connection->deadline = absl::Now() + limits_.request_time;
    connection->list = &unfinished_;
    connection->place = std::prev(unfinished_.end());
    Move(connection, &unfinished_, EPOLLIN);
    ReadHead(connection);  // Most clients send their request at once.
  }
}

void HttpServer::Serve(Connection* connection) {
  switch (connection->state) {
    case Connection::State::kHead:
      return ReadHead(connection);
    case Connection::State::kBody:
      return ReadBody(connection);
    case Connection::State::kWriting:
      return GoOnWriting(connection);
    case Connection::State::kLingering: {
      std::array<char, kReadBytes> piece;
      const ssize_t count = recv(connection->fd.get(), piece.data(), piece.size(), MSG_TRUNC);
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) Close(connection);
      return;
    }
    case Connection::State::kWorking:
    case Connection::State::kClosed:
      return;
  }
}

void HttpServer::ReadHead(Connection* connection) {
  std::array<char, kMaxHeadBytes> piece;
  const ssize_t count = recv(connection->fd.get(), piece.data(), piece.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Close(connection);
  std::string& received = connection->received;
  const size_t looked_at = received.size() - std::min<size_t>(received.size(), 3);
  received.append(piece.data(), static_cast<size_t>(count));
  const size_t end = received.find("\r\n\r\n", looked_at);
  if (end == std::string::npos || end > kMaxHeadBytes) {
    if (received.size() < kMaxHeadBytes) return;
    return StartWriting(connection, Text({.status = 431,
                                          .body = absl::StrCat("the request's head has more than ",
                                                               kMaxHeadBytes, " bytes\n")}));
  }
  const absl::StatusOr<HttpHead> head = ParseHead(absl::string_view(received).substr(0, end + 4));
  if (!head.ok()) {
    return StartWriting(connection,
                        Text({.status = 400, .body = absl::StrCat(head.status().message(), "\n")}));
  }
  const std::string rest = received.substr(end + 4);
  received.clear();
  connection->framing = head->is_http_1_0 ? Framing::kUntilTheEnd : Framing::kChunks;
  Dispatch(connection, *head);
  if (connection->state == Connection::State::kBody) TakeBody(connection, rest);
}

void HttpServer::Dispatch(Connection* connection, const HttpHead& head) {
  const std::string& path = head.path;
  const auto refuse = [&](int status, const char* reason, const char* text) {
    StartWriting(connection, Text(Refusal(status, path, reason, text)));
  };
  if (handlers_.posts.routes.contains(path)) {
    if (head.method == "POST") return BeginPost(connection, head);
    return refuse(405, "METHOD_NOT_ALLOWED", "POST only");
  }
  HttpRequest request = head.request;
  const auto probe = handlers_.probes.find(path);
  const auto route = RouteFor(path, request);
  if (probe == handlers_.probes.end() && route == handlers_.routes.end()) {
    return refuse(404, "NOT_FOUND", "not found");
  }
  if (head.method != "GET" && head.method != "HEAD") {
    return refuse(405, "METHOD_NOT_ALLOWED", "GET only");
  }
  const bool is_head = head.method == "HEAD";
  const auto text = [is_head](const HttpResponse& response) {
    return is_head ? HeadOf(response) : Text(response);
  };
  if (probe != handlers_.probes.end()) {
    return StartWriting(connection, text(probe->second(request)));
  }
  if (get_threads_.waiting() >= kMaxWaitingGets) {
    return refuse(503, "TOO_MANY_CALLS", "too many requests are waiting; try again later");
  }
  HandOver(connection, get_threads_, [text, request, answer = &route->second](Connection*) {
    return text((*answer)(request));
  });
}

void HttpServer::BeginPost(Connection* connection, const HttpHead& head) {
  Admission admission = handlers_.posts.routes.at(head.path)(head.request);
  if (const auto* refusal = std::get_if<HttpResponse>(&admission)) {
    return StartWriting(connection, Text(*refusal));
  }
  connection->post = std::get<std::unique_ptr<HttpPost>>(std::move(admission));
  connection->reader = BodyReader(head);
  connection->state = Connection::State::kBody;
  Move(connection, &bodies_, EPOLLIN);
  if (head.content_length > handlers_.posts.max_body_bytes) {
    return RunPost(connection, TooLarge(handlers_.posts.max_body_bytes));
  }
  if (!head.expects_continue || head.is_http_1_0) return;
  constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  (void)!send(connection->fd.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
}

void HttpServer::ReadBody(Connection* connection) {
  std::array<char, kReadBytes> piece;
  const ssize_t count = recv(connection->fd.get(), piece.data(), piece.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return Close(connection);
  TakeBody(connection, {piece.data(), static_cast<size_t>(count)});
}

void HttpServer::TakeBody(Connection* connection, absl::string_view bytes) {
  absl::Status status = connection->post->Keep(bytes.size());
  if (status.ok() && !connection->reader.Take(bytes, &connection->body)) {
    status = MakeError(Reason::kInvalidArgument, "the request's body is not in valid chunks");
  }
  if (status.ok() && connection->body.size() > handlers_.posts.max_body_bytes) {
    status = TooLarge(handlers_.posts.max_body_bytes);
  }
  if (!status.ok() || connection->reader.done()) RunPost(connection, std::move(status));
}

void HttpServer::RunPost(Connection* connection, absl::Status body_status) {
  connection->body_status = std::move(body_status);
  HandOver(connection, post_threads_, [this](Connection* c) {
    SocketExchange exchange(c->fd.get(), c->framing, &stopping_);
    if (c->body_status.ok()) {
      c->post->Run(std::move(c->body), exchange);
    } else {
      c->body = std::string();
      c->post->Run(c->body_status, exchange);
    }
    c->post.reset();
    return std::string();
  });
}

void HttpServer::HandOver(Connection* connection, WorkThreads& threads, Work work) {
  connection->state = Connection::State::kWorking;
  Move(connection, &working_, 0);
  threads.Add([this, connection, work = std::move(work)] {
    std::string answer = work(connection);
    {
      absl::MutexLock lock(&mutex_);
      finished_.push_back({connection, std::move(answer)});
    }
    poll_.Wake();
  });
}

void HttpServer::TakeBack() {
  std::vector<Finished> finished;
  {
    absl::MutexLock lock(&mutex_);
    finished.swap(finished_);
  }
  for (Finished& one : finished) {
    if (one.answer.empty()) {
      Linger(one.connection);
    } else {
      StartWriting(one.connection, std::move(one.answer));
    }
  }
}

void HttpServer::StartWriting(Connection* connection, std::string answer) {
  connection->answer = std::move(answer);
  connection->state = Connection::State::kWriting;
  connection->deadline =
      absl::Now() + ReadingPace::kPatience +
      absl::Seconds(static_cast<double>(connection->answer.size()) / ReadingPace::kBytesPerSecond);
  GoOnWriting(connection);
  if (connection->state == Connection::State::kWriting) Move(connection, &answering_, EPOLLOUT);
}

void HttpServer::GoOnWriting(Connection* connection) {
  const absl::string_view left = absl::string_view(connection->answer).substr(connection->written);
  const ssize_t count = send(connection->fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
  if (count < 0) {
    if (errno != EAGAIN && errno != EINTR) Close(connection);
    return;
  }
  connection->written += static_cast<size_t>(count);
  if (connection->written == connection->answer.size()) Linger(connection);
}

void HttpServer::Linger(Connection* connection) {
  connection->answer = std::string();
  connection->state = Connection::State::kLingering;
  connection->deadline = absl::Now() + kLingerTime;
  shutdown(connection->fd.get(), SHUT_WR);
  Move(connection, &lingering_, EPOLLIN);
}

void HttpServer::Move(Connection* connection, Connections* list, uint32_t events) {
  list->splice(list->end(), *connection->list, connection->place);
  connection->list = list;
  const int fd = connection->fd.get();
  if (events == 0) {
    if (connection->is_watched) poll_.Remove(fd);
  } else if (connection->is_watched) {
    poll_.Change(fd, events, connection);
  } else {
    poll_.Add(fd, events, connection);
  }
  connection->is_watched = events != 0;
}

void HttpServer::Close(Connection* connection) {
  Move(connection, &closed_, 0);
  connection->state = Connection::State::kClosed;
  connection->fd = FileDescriptor();
}

void HttpServer::Sweep(absl::Time now) {
  while (unfinished_.size() > limits_.max_unfinished) ReplaceOldest();
  for (Connections* list : {&answering_, &lingering_}) {
    while (list->size() > limits_.max_answering) Close(list->front().get());
  }
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweepInterval;
  std::vector<Connection*> late;
  for (const Connections* list : {&unfinished_, &bodies_, &answering_, &lingering_}) {
    for (const std::unique_ptr<Connection>& connection : *list) {
      if (connection->deadline <= now) late.push_back(connection.get());
    }
  }
  for (Connection* connection : late) GiveUp(connection);
}

void HttpServer::ReplaceOldest() {
  Connection* const oldest = unfinished_.front().get();
  ReadHead(oldest);
  if (oldest->state == Connection::State::kHead) Close(oldest);
}

void HttpServer::GiveUp(Connection* connection) {
  const std::string what =
      absl::StrCat("the request took longer than ", absl::FormatDuration(limits_.request_time));
  if (connection->state == Connection::State::kBody) {
    RunPost(connection, absl::DeadlineExceededError(what));
  } else if (connection->state == Connection::State::kHead && !connection->received.empty()) {
    StartWriting(connection, Text({.status = 408, .body = what + "\n"}));
  } else {
    Close(connection);
  }
}

HttpServer::Routes::const_iterator HttpServer::RouteFor(const std::string& path,
                                                        HttpRequest& request) const {
  const Routes& routes = handlers_.routes;
  auto route = routes.find(path);
  for (size_t end = path.size(); route == routes.end() && end > 0; --end) {
    if (path[end - 1] != '/') continue;
    route = routes.find(absl::StrCat(path.substr(0, end), "*"));
    if (route != routes.end()) request.rest = path.substr(end);
  }
  return route;
}

std::string QueryText(const HttpRequest& request, const std::string& name) {
  for (const absl::string_view part : absl::StrSplit(request.query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first == name) return std::string(pair.second);
  }
  return "";
}

absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name,
                                     uint64_t otherwise) {
  for (const absl::string_view part : absl::StrSplit(request.query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first != name) continue;
    uint64_t number = 0;
    if (absl::SimpleAtoi(pair.second, &number)) return number;
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(name, " is not a number: '", pair.second, "'"));
  }
  return otherwise;
}

}  // namespace pagoda::server
