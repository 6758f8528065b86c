// The client's side of a pair of rings.
#ifndef PAGODA_WIRE_RING_RING_CLIENT_H_
#define PAGODA_WIRE_RING_RING_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "wire/ring/ring_layout.h"
#include "wire/ring/ring_memory.h"
#include "wire/ring/ring_reader.h"
#include "wire/ring/ring_wake.h"
#include "wire/ring/ring_writer.h"

namespace pagoda::ring {

// Sends one request at a time, and waits for its answer. Thread-compatible.
//
// If a pair ends, the client cannot know whether the daemon ran the request that was under way: it
// sends the batch again over gRPC under the same retry_id.
class Client {
 public:
  // `memory` and `wake` are the descriptors of the answer on the map socket, in this order.
  // `version` and `bytes` are its RingPair. nullptr if this client cannot use the pair; `error`
  // then says why.
  static std::unique_ptr<Client> Open(FileDescriptor memory, FileDescriptor wake, uint32_t version,
                                      uint32_t bytes, std::string* error);

  uint32_t max_request_bytes() const { return MaxMessageBytes(memory_->bytes()); }

  enum class Outcome : uint8_t {
    kOk,
    kRequestTooLarge,  // Nothing was sent. The request must go over gRPC.
    kAnswerTooLarge,   // The batch ran. Its answer must be fetched over gRPC.
    kRefused,          // The daemon refused the batch as a whole. The pair goes on.
    kTimeout,          // The request is still under way.
    kEnded,            // No request can be sent any more: see `reason` and `error`.
  };
  // Sends a serialized SessionRequest. Never waits. REQUIRES: no request is under way. Outcomes:
  // kOk (the request is under way), kRequestTooLarge, kEnded.
  Outcome Send(std::string_view request);
  // Waits for the answer. Outcomes: kOk (`answer` is a serialized SessionResponse), kRefused (it is
  // a serialized google.rpc.Status), kAnswerTooLarge; kTimeout at `deadline`, then the caller can
  // wait again; kEnded. REQUIRES: a request is under way.
  Outcome Receive(Clock::time_point deadline, std::string* answer);

  // After kEnded: the serialized google.rpc.Status by which the daemon ended the pair. Empty if it
  // gave none: it is gone, for example.
  const std::string& reason() const { return reason_; }
  // After kEnded: what this side saw, as text.
  const std::string& error() const { return error_; }

 private:
  Client(std::unique_ptr<Memory> memory, FileDescriptor wake);
  // Whether there is something to read: an answer, or the end.
  bool Ready() const;
  // Sleeps until Ready or `deadline`. False at the deadline.
  bool Sleep(Clock::time_point deadline);
  Outcome TakeAnswer(std::string* answer);
  Outcome End(std::string error);

  const std::unique_ptr<Memory> memory_;
  const FileDescriptor wake_;
  Writer requests_;
  Reader answers_;
  Spin spin_ = Spin::ForAnswers();
  bool closed_ = false;  // The daemon has closed its end of the socket.
  bool ended_ = false;
  std::string reason_;
  std::string error_;
};

}  // namespace pagoda::ring

#endif  // PAGODA_WIRE_RING_RING_CLIENT_H_
