#include "pools/store/redis_connection.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/check.h"

namespace pagoda {
namespace {

constexpr size_t kBufferBytes = 16 << 10;
constexpr size_t kMaxBufferBytes = 4 << 20;  // The map of a thousand servers takes 300 KiB.
// Before a value, and with its last bytes, only so many bytes of the next reply are read: its first
// line and its header. They are copied once more.
constexpr size_t kReadAheadBytes = 512;
constexpr size_t kSkipBytes = 64 << 10;
constexpr size_t kMaxUnsentBytes = 256 << 10;
// More values at the same time do not fit into the server's cache: it copies each before it sends
// it.
constexpr uint64_t kMaxExpectedBytes = 4 << 20;
constexpr size_t kMaxReadAtOnce = 1 << 20;  // Then other connections are served.
constexpr size_t kMaxPieces = 64;
constexpr absl::string_view kAsking = "*1\r\n$6\r\nASKING\r\n";

absl::Span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Where skipped bytes go. Nobody reads them. On the heap: thread-local bytes would be a part of the
// stack of every thread of the process, and those of the HTTP server have 100 KiB.
char* SkippedBytes() {
  static thread_local const std::unique_ptr<char[]> bytes(new char[kSkipBytes]);
  return bytes.get();
}

}  // namespace

RedisConnection::RedisConnection(const RedisOptions& options, RedisAddress address, bool is_replica,
                                 Owner& owner)
    : options_(options), address_(std::move(address)), is_replica_(is_replica), owner_(owner) {}

void RedisConnection::Connect(const SocketAddress& address, TlsContext* tls,
                              const std::string& password, absl::Time now) {
  absl::StatusOr<std::unique_ptr<RedisSocket>> socket =
      RedisSocket::Connect(address, tls, address_.host);
  if (!socket.ok()) return Close(socket.status());
  socket_ = *std::move(socket);
  password_ = password;
  stalled_at_ = now + options_.connect_timeout;
  MakeRoom(kBufferBytes);
}

bool RedisConnection::HasRoom() const {
  return is_ready() && in_flight_.size() < options_.pipeline && unsent_bytes_ < kMaxUnsentBytes &&
         expected_bytes_ < kMaxExpectedBytes;
}

bool RedisConnection::wants_write() const {
  return !segments_.empty() || (socket_ != nullptr && socket_->wants_write());
}

void RedisConnection::Append(const RedisCall& call, absl::Span<const std::byte> bytes) {
  if (bytes.empty()) return;
  segments_.push_back({&call, bytes});
  unsent_bytes_ += bytes.size();
}

void RedisConnection::Send(std::unique_ptr<RedisCall> call, absl::Time now) {
  call->connection = this;
  call->replies_before = call->is_asking ? 1 : 0;
  if (call->is_asking) Append(*call, AsBytes(kAsking));
  Append(*call, AsBytes(call->head));
  if (call->command == RedisCommand::kPut) {
    Append(*call, call->header);
    for (const absl::Span<const std::byte> piece : call->pieces) Append(*call, piece);
    Append(*call, AsBytes(call->tail));
  }
  if (call->reader != nullptr) expected_bytes_ += call->reader->block_bytes();
  if (in_flight_.empty() && is_ready()) stalled_at_ = now + options_.stall_timeout;
  in_flight_.push_back(std::move(call));
}

void RedisConnection::Flush() {
  while (!segments_.empty() && state_ != State::kClosed && state_ != State::kConnecting) {
    std::array<iovec, kMaxPieces> pieces;
    size_t count = 0;
    for (const Segment& segment : segments_) {
      if (count == pieces.size()) break;
      const size_t sent = count == 0 ? front_sent_ : 0;
      pieces[count++] = {const_cast<std::byte*>(segment.bytes.data()) + sent,
                         segment.bytes.size() - sent};
    }
    absl::StatusOr<size_t> written = socket_->Write(absl::MakeSpan(pieces).first(count));
    if (!written.ok()) return Close(written.status());
    if (*written == 0) return;
    unsent_bytes_ -= *written;
    front_sent_ += *written;
    while (!segments_.empty() && front_sent_ >= segments_.front().bytes.size()) {
      front_sent_ -= segments_.front().bytes.size();
      segments_.pop_front();
    }
  }
}

void RedisConnection::Handle(absl::Time now) {
  if (state_ == State::kConnecting) {
    absl::StatusOr<bool> is_up = socket_->Handshake();
    if (!is_up.ok()) return Close(is_up.status());
    if (!*is_up) return;
    SetUp(now);
  }
  Flush();
  if (state_ == State::kClosed) return;
  if (absl::Status status = Receive(now); !status.ok()) return Close(std::move(status));
  Flush();
}

// --- Setting up ---

void RedisConnection::SendSetUp(RedisCommand command, absl::Span<const absl::string_view> arguments,
                                absl::Time now) {
  auto call = std::make_unique<RedisCall>();
  call->command = command;
  resp::AppendCommand(arguments, call->head);
  ++set_up_calls_;
  Send(std::move(call), now);
}

void RedisConnection::SetUp(absl::Time now) {
  state_ = State::kSettingUp;
  if (!options_.username.empty()) {
    SendSetUp(RedisCommand::kAuth, {"AUTH", options_.username, password_}, now);
  } else if (!password_.empty()) {
    SendSetUp(RedisCommand::kAuth, {"AUTH", password_}, now);
  }
  password_.clear();
  if (is_replica_) SendSetUp(RedisCommand::kReadOnly, {"READONLY"}, now);
  // A stopped server accepts connections too. Only a reply shows that it works.
  SendSetUp(RedisCommand::kPing, {"PING"}, now);
}

void RedisConnection::EndSetUp(const RedisCall& call) {
  --set_up_calls_;
  const bool is_error = call.reply.kind == resp::Kind::kError;
  const bool is_refused = is_error && absl::StartsWith(call.reply.text, "NOPERM");
  // A user without the right to PING is let in. A plain server has no READONLY.
  const bool is_good = call.command == RedisCommand::kReadOnly || !is_error ||
                       (call.command == RedisCommand::kPing && is_refused);
  if (!is_good) return Close(absl::UnavailableError(call.reply.text));
  if (!is_error && call.reply.kind != resp::Kind::kText) {
    return Close(absl::UnavailableError("the server does not speak RESP"));
  }
  if (call.command == RedisCommand::kReadOnly) is_readonly_refused_ = is_refused;
  if (set_up_calls_ > 0 || state_ != State::kSettingUp) return;
  state_ = State::kReady;
  stalled_at_ = absl::InfiniteFuture();
  owner_.OnReady(*this);
}

// --- Receiving ---

// Makes room for `bytes` behind end_.
void RedisConnection::MakeRoom(size_t bytes) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_bytes_ - end_ >= bytes) return;
  const absl::string_view kept = received();
  if (buffer_bytes_ >= kept.size() + bytes) {
    std::memmove(buffer_.get(), kept.data(), kept.size());
  } else {
    buffer_bytes_ = std::max({kBufferBytes, 2 * buffer_bytes_, kept.size() + bytes});
    std::unique_ptr<char[]> larger(new char[buffer_bytes_]);  // Not zeroed.
    if (!kept.empty()) std::memcpy(larger.get(), kept.data(), kept.size());
    buffer_ = std::move(larger);
  }
  end_ = kept.size();
  begin_ = 0;
}

absl::Status RedisConnection::Receive(absl::Time now) {
  has_more_ = false;
  size_t read = 0;
  for (size_t more = 1; more > 0 && read < kMaxReadAtOnce; read += more) {
    absl::StatusOr<size_t> result = ReadMore();
    if (!result.ok()) return result.status();
    more = *result;
    absl::Status parsed = Parse(now);
    if (!parsed.ok() || state_ == State::kClosed) return parsed;
  }
  has_more_ = read >= kMaxReadAtOnce && socket_->has_received();
  socket_->Expect(reading_ == Reading::kValue ? value_left_ : 1);
  return absl::OkStatus();
}

// Reads once. Bytes of a value go to their places, the others to the buffer.
absl::StatusOr<size_t> RedisConnection::ReadMore() {
  std::array<iovec, kMaxPieces> pieces;
  size_t count = 0;
  size_t value_bytes = 0;  // The value bytes that this read can bring.
  StoredValueReader* reader = nullptr;
  if (reading_ == Reading::kValue) {
    reader = in_flight_.front()->reader.get();
    count = reader->Places(absl::MakeSpan(pieces).first(kMaxPieces - 1));
    if (count == 0) {  // Nobody needs the rest.
      reader = nullptr;
      pieces[count++] = {SkippedBytes(), std::min<size_t>(value_left_, kSkipBytes)};
    }
    for (size_t i = 0; i < count; ++i) value_bytes += pieces[i].iov_len;
  }
  if (value_bytes == value_left_ || reading_ != Reading::kValue) {
    const bool is_get = !in_flight_.empty() && in_flight_.front()->command == RedisCommand::kGet;
    const size_t ahead = is_get ? kReadAheadBytes : kBufferBytes;
    if (received().size() + ahead > kMaxBufferBytes) {
      return absl::UnavailableError("a reply is too long");
    }
    MakeRoom(ahead);
    pieces[count++] = {buffer_.get() + end_, ahead};
  }
  absl::StatusOr<size_t> read = socket_->Read(absl::MakeSpan(pieces).first(count));
  if (!read.ok()) return read.status();
  const size_t of_value = std::min(*read, value_bytes);
  if (reader != nullptr) reader->Advance(of_value);
  value_left_ -= of_value;
  end_ += *read - of_value;
  if (reading_ == Reading::kValue && value_left_ == 0) reading_ = Reading::kLineEnd;
  return *read;
}

// Parses what has arrived.
absl::Status RedisConnection::Parse(absl::Time now) {
  while (state_ != State::kClosed) {
    switch (reading_) {
      case Reading::kReply: {
        absl::StatusOr<bool> is_parsed = ParseReply(now);
        if (!is_parsed.ok()) return is_parsed.status();
        if (!*is_parsed) return absl::OkStatus();
        break;
      }
      case Reading::kValue:
        if (value_left_ > 0 && received().empty()) return absl::OkStatus();
        TakeValue();
        break;
      case Reading::kLineEnd: {
        if (received().size() < 2) return absl::OkStatus();
        if (received().substr(0, 2) != "\r\n") {
          return absl::UnavailableError("not RESP: a value without its line end");
        }
        begin_ += 2;
        reading_ = Reading::kReply;
        resp::Value reply;
        reply.kind = resp::Kind::kBulk;
        EndCall(std::move(reply), now);
        break;
      }
    }
  }
  return absl::OkStatus();
}

// False: the reply is not complete.
absl::StatusOr<bool> RedisConnection::ParseReply(absl::Time now) {
  const absl::string_view bytes = received();
  if (bytes.empty()) return false;
  if (in_flight_.empty()) return absl::UnavailableError("a reply to no command");
  RedisCall& call = *in_flight_.front();
  if (call.command != RedisCommand::kClusterSlots) {
    absl::StatusOr<std::optional<resp::Head>> head = resp::ParseHead(bytes);
    if (!head.ok()) return absl::UnavailableError(head.status().message());
    if (!head->has_value()) return false;
    const bool is_bulk = (*head)->kind == resp::Kind::kBulk;
    const bool is_value = is_bulk && call.command == RedisCommand::kGet && call.replies_before == 0;
    if ((is_bulk && !is_value) || ((*head)->kind == resp::Kind::kArray && (*head)->number > 0)) {
      return absl::UnavailableError("a reply of another kind than the command has");
    }
    if (is_value) {
      begin_ += (*head)->line_bytes;
      value_left_ = static_cast<uint64_t>((*head)->number);
      call.reader->Begin(value_left_);
      reading_ = value_left_ > 0 ? Reading::kValue : Reading::kLineEnd;
      return true;
    }
  }
  absl::StatusOr<bool> is_complete = scanner_.Scan(bytes);
  if (!is_complete.ok()) return absl::UnavailableError(is_complete.status().message());
  if (!*is_complete) return false;
  absl::StatusOr<std::optional<resp::Parsed>> parsed = resp::Parse(bytes.substr(0, scanner_.end()));
  if (!parsed.ok() || !parsed->has_value()) return absl::UnavailableError("a reply is not RESP");
  scanner_.Reset();
  begin_ += (*parsed)->bytes;
  if (call.replies_before > 0) {
    --call.replies_before;
    return true;
  }
  EndCall(std::move((*parsed)->value), now);
  return true;
}

// Moves bytes of a value from the buffer to their places.
void RedisConnection::TakeValue() {
  StoredValueReader& reader = *in_flight_.front()->reader;
  while (value_left_ > 0 && !received().empty()) {
    const size_t available = std::min<size_t>(received().size(), value_left_);
    iovec place;
    size_t taken = available;
    if (reader.Places(absl::MakeSpan(&place, 1)) > 0) {
      taken = std::min(available, place.iov_len);
      std::memcpy(place.iov_base, received().data(), taken);
      reader.Advance(taken);
    }
    begin_ += taken;
    value_left_ -= taken;
  }
  if (value_left_ == 0) reading_ = Reading::kLineEnd;
}

void RedisConnection::EndCall(resp::Value reply, absl::Time now) {
  std::unique_ptr<RedisCall> call = std::move(in_flight_.front());
  in_flight_.pop_front();
  // A server may refuse a put before it has all of it. Its bytes must still go out, so the call
  // stays alive until the connection has ended.
  if (!segments_.empty() && segments_.front().call == call.get()) {
    in_flight_.push_front(std::move(call));
    return Close(absl::UnavailableError("a reply to a command that is not sent yet"));
  }
  if (call->reader != nullptr) expected_bytes_ -= call->reader->block_bytes();
  stalled_at_ = in_flight_.empty() ? absl::InfiniteFuture() : now + options_.stall_timeout;
  call->connection = nullptr;
  call->reply = std::move(reply);
  switch (call->command) {
    case RedisCommand::kAuth:
    case RedisCommand::kReadOnly:
    case RedisCommand::kPing:
      return EndSetUp(*call);
    case RedisCommand::kGet:
    case RedisCommand::kPut:
    case RedisCommand::kExists:
    case RedisCommand::kClusterSlots:
      return owner_.OnReply(*this, std::move(call));
  }
}

// --- Ending ---

void RedisConnection::Abandon(RedisCall& call) {
  PAGODA_CHECK(call.batch == nullptr && call.connection == this, "the call was sent here");
  if (call.reader != nullptr) call.reader->Drop();
  if (call.command != RedisCommand::kPut) return;
  const auto is_its = [&call](const Segment& segment) { return segment.call == &call; };
  const auto first = std::find_if(segments_.begin(), segments_.end(), is_its);
  if (first == segments_.end()) return;  // All of it was sent.
  if (first == segments_.begin()) {
    // A part of it may be sent, and the rest must not be read any more.
    return Close(absl::DeadlineExceededError("a value was not sent by its deadline"));
  }
  for (const Segment& segment : segments_)
    unsent_bytes_ -= is_its(segment) ? segment.bytes.size() : 0;
  std::erase_if(segments_, is_its);
  std::erase_if(in_flight_, [&call](const auto& other) { return other.get() == &call; });
}

void RedisConnection::Close(absl::Status why) {
  if (state_ == State::kClosed) return;
  owner_.OnClose(*this);
  state_ = State::kClosed;
  error_ = std::move(why);
  socket_.reset();
  segments_.clear();
  has_more_ = false;
  stalled_at_ = absl::InfiniteFuture();
}

std::vector<std::unique_ptr<RedisCall>> RedisConnection::TakeCalls() {
  PAGODA_CHECK(state_ == State::kClosed, "the connection is closed");
  std::vector<std::unique_ptr<RedisCall>> calls(std::make_move_iterator(in_flight_.begin()),
                                                std::make_move_iterator(in_flight_.end()));
  in_flight_.clear();
  for (const std::unique_ptr<RedisCall>& call : calls) call->connection = nullptr;
  return calls;
}

}  // namespace pagoda
