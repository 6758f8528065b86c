#include "server/peers/peer_server.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "base/event_poll.h"
#include "base/file_descriptor.h"
#include "base/thread.h"
#include "server/peers/login_guard.h"
#include "server/peers/peer_connection.h"
#include "server/peers/peer_tls.h"
#include "server/peers/peer_tokens.h"
#include "server/peers/reply_queue.h"

namespace pagoda::server {
namespace {

constexpr int kBacklog = 512;
constexpr int kAcceptsPerRound = 64;
constexpr absl::Duration kScanInterval = absl::Seconds(1);
// How long nothing is accepted after this process could not open another file.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
constexpr absl::string_view kFull = "-ERR max number of clients reached\r\n";

// Goes on evenly, whatever happens to the system's clock.
absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

absl::Status Check(const PeerServer::Options& options) {
  const absl::Duration zero = absl::ZeroDuration();
  if (options.max_connections == 0 || options.login_timeout <= zero ||
      options.stall_timeout <= zero || options.idle_timeout <= zero) {
    return InvalidArgument("peers: the connections and the times must be positive");
  }
  const bool is_open = options.tokens_file.empty() &&
                       !(options.tls.has_value() && !options.tls->client_ca_file.empty());
  if (is_open && !IsLoopback(options.address) && options.exposure == Exposure::kRefused) {
    return InvalidArgument(absl::StrCat(
        "peers: everybody who reaches ", options.address.ToString(),
        " could read cached blocks; give it a tokens file or an authority of client certificates"));
  }
  return absl::OkStatus();
}

}  // namespace

// The server's thread.
class PeerServer::Loop {
 public:
  Loop(Options options, PeerTokens tokens, std::unique_ptr<PeerTls> tls, ListeningSocket listener,
       EventPoll poll)
      : options_(std::move(options)),
        command_options_{.key_prefix = options_.key_prefix, .version = options_.version},
        address_(std::move(listener.address)),
        listener_(std::move(listener.fd)),
        poll_(std::move(poll)),
        tokens_(std::move(tokens)),
        tls_(std::move(tls)),
        commands_(command_options_, tokens_, caches_, stats_) {}

  absl::Status Start() {
    if (!poll_.Add(listener_.get(), EPOLLIN, &listener_)) {
      return absl::ResourceExhaustedError("epoll_ctl fails for the peers' server");
    }
    absl::MutexLock lock(&stop_mutex_);
    return thread_.Start("pagoda-peers", [this] { Run(); });
  }

  void Stop() {
    absl::MutexLock stop_lock(&stop_mutex_);
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    poll_.Wake();
    thread_.Join();
    // Their indexes end here, without the lock that stats() takes.
    PeerCommands::Caches ended;
    absl::MutexLock lock(&mutex_);
    ended.swap(served_);
  }

  absl::Status AddCache(PeerCache::Options options) {
    const absl::Status taken =
        InvalidArgument(absl::StrCat("peers: the cache ", options.name, " is served already"));
    options.secret = options_.secret;
    {
      absl::MutexLock lock(&mutex_);
      if (FindServed(options.name) != served_.end()) return taken;
    }
    // Starts a thread, so without the lock.
    absl::StatusOr<std::shared_ptr<PeerCache>> cache = PeerCache::Create(std::move(options));
    if (!cache.ok()) return cache.status();
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) return absl::CancelledError("the peers' server has been stopped");
      if (FindServed((*cache)->name()) != served_.end()) return taken;
      served_.push_back(*std::move(cache));
      ++changes_;
    }
    poll_.Wake();
    return absl::OkStatus();
  }

  void RemoveCache(const std::string& name) {
    // A Stop under way ends first: it ends the caches that it found.
    absl::MutexLock stop_lock(&stop_mutex_);
    std::shared_ptr<PeerCache> removed;  // Ends without mutex_.
    absl::MutexLock lock(&mutex_);
    const auto found = FindServed(name);
    if (found == served_.end()) return;
    removed = std::move(*found);
    served_.erase(found);
    const uint64_t change = ++changes_;
    poll_.Wake();
    const auto is_seen = [this, change]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return has_ended_ || changes_seen_ >= change;
    };
    mutex_.Await(absl::Condition(&is_seen));
  }

  const TcpAddress& address() const { return address_; }

  PeerStats stats() const {
    absl::MutexLock lock(&mutex_);
    return shared_stats_;
  }

  std::vector<CacheStats> cache_stats() const {
    // Under the lock: nothing may own a cache when RemoveCache has returned.
    absl::MutexLock lock(&mutex_);
    std::vector<CacheStats> stats;
    for (const auto& cache : served_) stats.push_back({cache->name(), cache->index_stats()});
    return stats;
  }

 private:
  struct Peer {
    PeerConnection connection;
    bool is_queued = false;  // In ready_.
    uint32_t interest = EPOLLIN;
    bool is_stranger = false;  // In strangers_.
  };

  PeerCommands::Caches::iterator FindServed(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::find_if(served_.begin(), served_.end(),
                        [&name](const auto& cache) { return cache->name() == name; });
  }

  void Run() {
    // OpenSSL writes without MSG_NOSIGNAL. Signals are for the program's other threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    now_ = MonotonicNow();
    next_scan_ = now_ + kScanInterval;
    while (true) {
      Wait();
      // Before the turns: a command that comes after AddCache finds the cache.
      if (!TakeChanges()) break;
      RunTurns();
      if (now_ >= next_scan_) Scan();
      Publish();
    }
    peers_.clear();
    ready_.clear();
    strangers_.clear();
    caches_.clear();
    stats_.connections = 0;
    Publish();
    absl::MutexLock lock(&mutex_);
    has_ended_ = true;
  }

  // Serves the caches that others have added, and drops those that they have removed. False:
  // stop.
  bool TakeChanges() {
    PeerCommands::Caches before;  // Ends without the lock.
    uint64_t change;
    {
      absl::MutexLock lock(&mutex_);
      if (is_stopping_) return false;
      if (changes_seen_ == changes_) return true;
      change = changes_;
      before = std::exchange(caches_, served_);
    }
    std::erase_if(before, [this](const std::shared_ptr<PeerCache>& cache) {
      return std::find(caches_.begin(), caches_.end(), cache) != caches_.end();
    });
    std::vector<Peer*> users;
    for (const auto& [fd, peer] : peers_) {
      const bool is_user = std::any_of(before.begin(), before.end(),
                                       [&connection = peer->connection](const auto& cache) {
                                         return connection.Uses(cache.get());
                                       });
      if (is_user) users.push_back(peer.get());
    }
    for (Peer* peer : users) Close(*peer);
    before.clear();
    absl::MutexLock lock(&mutex_);
    changes_seen_ = change;
    return true;
  }

  void Wait() {
    const absl::Time until = ready_.empty() ? next_scan_ : now_;
    const EventPoll::Ready ready = poll_.Wait(until - now_);
    now_ = MonotonicNow();
    bool is_knocked = false;
    for (void* const source : ready.sources) {
      if (source == &listener_) {
        is_knocked = true;
      } else {
        Queue(*static_cast<Peer*>(source));
      }
    }
    if (is_knocked) AcceptAll();
  }

  void Queue(Peer& peer) {
    if (std::exchange(peer.is_queued, true)) return;
    ready_.push_back(&peer);
  }

  // A turn for each connection that has something to do.
  void RunTurns() {
    for (size_t turns = ready_.size(); turns > 0; --turns) {
      Peer& peer = *ready_.front();
      ready_.pop_front();
      peer.is_queued = false;
      const PeerConnection::Next next = peer.connection.Turn(now_);
      if (peer.is_stranger && IsIn(peer.connection)) {
        std::erase(strangers_, &peer);
        peer.is_stranger = false;
        if (num_let_in() > options_.max_connections) {
          ++stats_.refused;
          Close(peer);
          continue;
        }
      }
      switch (next) {
        case PeerConnection::Next::kTurn:
          Queue(peer);
          break;
        case PeerConnection::Next::kSocket:
          Watch(peer);
          break;
        case PeerConnection::Next::kClose:
          if (!peer.connection.error().ok()) ++stats_.failed;
          Close(peer);
          break;
      }
    }
  }

  // While a connection waits for its socket to be writable, its input does not wake the thread.
  void Watch(Peer& peer) {
    const uint32_t interest = peer.connection.wants_write() ? EPOLLOUT : EPOLLIN;
    if (interest == peer.interest) return;
    peer.interest = interest;
    poll_.Change(peer.connection.fd(), interest, &peer);
  }

  void AcceptAll() {
    for (int i = 0; i < kAcceptsPerRound; ++i) {
      sockaddr_storage from = {};
      socklen_t size = sizeof from;
      FileDescriptor fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &size,
                                SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) ListenTo(0);
        return;  // Nobody waits any more, or the peer has gone.
      }
      if (num_let_in() >= options_.max_connections) {
        ++stats_.refused;
        // A client with TLS would not understand it.
        if (tls_ == nullptr) {
          static_cast<void>(send(fd.get(), kFull.data(), kFull.size(), MSG_NOSIGNAL));
        }
        continue;
      }
      Admit(std::move(fd), NetworkOf(from));
    }
  }

  // Listens for connections (EPOLLIN), or not (0): until the next scan.
  void ListenTo(uint32_t interest) {
    poll_.Change(listener_.get(), interest, &listener_);
    is_paused_ = interest == 0;
    if (is_paused_) next_scan_ = std::min(next_scan_, now_ + kAcceptPause);
  }

  static bool IsIn(const PeerConnection& connection) {
    return connection.is_ready() && connection.session().is_let_in;
  }
  size_t num_let_in() const { return peers_.size() - strangers_.size(); }

  // A stranger of the network comes.
  void MakePlaceFor(const std::string& network) {
    absl::flat_hash_map<std::string, size_t> counts;
    for (const Peer* peer : strangers_) ++counts[peer->connection.session().network];
    std::string crowded = network;
    if (counts[network] < kMaxStrangersOfNetwork) {
      if (strangers_.size() < kMaxStrangers) return;
      crowded = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                  return a.second < b.second;
                })->first;
    }
    const auto oldest = std::find_if(
        strangers_.begin(), strangers_.end(),
        [&crowded](const Peer* peer) { return peer->connection.session().network == crowded; });
    ++stats_.refused;
    Close(**oldest);
  }

  void Admit(FileDescriptor fd, std::string network) {
    const bool is_stranger = tls_ != nullptr || tokens_.are_required();
    if (is_stranger) MakePlaceFor(network);
    absl::StatusOr<std::unique_ptr<RedisSocket>> socket =
        RedisSocket::Accept(std::move(fd), tls_ == nullptr ? nullptr : tls_->Current());
    if (!socket.ok()) {
      ++stats_.failed;
      return;
    }
    const int number = (*socket)->fd();
    auto peer = absl::WrapUnique(
        new Peer{.connection = PeerConnection(*std::move(socket),
                                              PeerSession{.number = ++stats_.accepted,
                                                          .token = {},
                                                          .network = std::move(network),
                                                          .is_let_in = !tokens_.are_required()},
                                              &commands_, &stats_, absl::MakeSpan(buffer_), now_),
                 .is_stranger = is_stranger});
    if (!poll_.Add(number, peer->interest, peer.get())) {
      ++stats_.failed;
      return;
    }
    Queue(*peer);
    if (is_stranger) strangers_.push_back(peer.get());
    peers_.emplace(number, std::move(peer));
    stats_.connections = peers_.size();
  }

  void Close(Peer& peer) {
    if (peer.is_stranger) std::erase(strangers_, &peer);
    if (peer.is_queued) ready_.erase(std::find(ready_.begin(), ready_.end(), &peer));
    // The descriptor can live on in a child process that is being started. So its end does not
    // suffice to stop its events, which name the peer.
    poll_.Remove(peer.connection.fd());
    peers_.erase(peer.connection.fd());
    stats_.connections = peers_.size();
  }

  // Closes what takes too long, or has a token that is no longer valid.
  void Scan() {
    next_scan_ = now_ + kScanInterval;
    if (is_paused_) ListenTo(EPOLLIN);
    tokens_.Refresh();
    std::vector<Peer*> ended;
    for (const auto& [fd, peer] : peers_) {
      const PeerConnection& connection = peer->connection;
      absl::Time latest = connection.progress() + options_.idle_timeout;
      if (!IsIn(connection)) {
        latest = connection.opened() + options_.login_timeout;
      } else if (connection.is_sending()) {
        const double size = static_cast<double>(connection.answer_size());
        latest = connection.answered() + options_.stall_timeout +
                 absl::Seconds(size / static_cast<double>(kLeastBytesPerSecond));
      }
      const bool is_late = now_ > latest;
      const bool is_revoked =
          connection.session().token.has_value() && !tokens_.Knows(*connection.session().token);
      if (is_late || is_revoked) ended.push_back(peer.get());
    }
    stats_.failed += ended.size();
    for (Peer* peer : ended) Close(*peer);
  }

  void Publish() {
    absl::MutexLock lock(&mutex_);
    shared_stats_ = stats_;
  }

  const Options options_;
  const PeerCommands::Options command_options_;
  const TcpAddress address_;
  FileDescriptor listener_;
  EventPoll poll_;
  Thread thread_ ABSL_GUARDED_BY(stop_mutex_);

  // Only the thread uses the following members.
  PeerTokens tokens_;
  const std::unique_ptr<PeerTls> tls_;  // Null: no TLS.
  PeerStats stats_;
  PeerCommands::Caches caches_;
  PeerCommands commands_;
  absl::flat_hash_map<int, std::unique_ptr<Peer>> peers_;  // By descriptor.
  std::deque<Peer*> ready_;                                // They get a turn without waiting.
  std::vector<Peer*> strangers_;                           // The oldest first.
  std::vector<std::byte> buffer_ = std::vector<std::byte>(ReplyQueue::kBufferBytes);
  absl::Time now_ = absl::InfinitePast();
  absl::Time next_scan_ = absl::InfinitePast();
  bool is_paused_ = false;  // Nothing is accepted.

  absl::Mutex stop_mutex_;  // Before mutex_.
  mutable absl::Mutex mutex_;
  // The caches that others want to be served. Shared with caches_ and with the replies under way.
  PeerCommands::Caches served_ ABSL_GUARDED_BY(mutex_);
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;       // How often served_ has changed.
  uint64_t changes_seen_ ABSL_GUARDED_BY(mutex_) = 0;  // The changes that the thread has seen.
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  PeerStats shared_stats_ ABSL_GUARDED_BY(mutex_);  // A copy of stats_ after the last round.
};

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(Options options) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  absl::StatusOr<PeerTokens> tokens = PeerTokens::Read(options.tokens_file, options.exposure);
  if (!tokens.ok()) return tokens.status();
  std::unique_ptr<PeerTls> tls;
  if (options.tls.has_value()) {
    absl::StatusOr<std::unique_ptr<PeerTls>> loaded = PeerTls::Load(*options.tls, options.exposure);
    if (!loaded.ok()) return loaded.status();
    tls = *std::move(loaded);
  }
  absl::StatusOr<EventPoll> poll = EventPoll::Create();
  if (!poll.ok()) return poll.status();
  absl::StatusOr<ListeningSocket> listener = ListenOn(options.address, kBacklog);
  if (!listener.ok()) return listener.status();
  auto loop = std::make_unique<Loop>(std::move(options), *std::move(tokens), std::move(tls),
                                     *std::move(listener), *std::move(poll));
  if (absl::Status status = loop->Start(); !status.ok()) return status;
  return absl::WrapUnique(new PeerServer(std::move(loop)));
}

PeerServer::PeerServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}

PeerServer::~PeerServer() { Stop(); }

TcpAddress PeerServer::address() const { return loop_->address(); }

absl::Status PeerServer::AddCache(PeerCache::Options options) {
  return loop_->AddCache(std::move(options));
}

void PeerServer::RemoveCache(const std::string& name) { loop_->RemoveCache(name); }

void PeerServer::Stop() { loop_->Stop(); }

PeerStats PeerServer::stats() const { return loop_->stats(); }

std::vector<PeerServer::CacheStats> PeerServer::cache_stats() const { return loop_->cache_stats(); }

}  // namespace pagoda::server
