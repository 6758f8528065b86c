// One call of CacheService.Materialize: the K and V of one layer of a sequence.
#ifndef PAGODA_SERVER_RPC_MATERIALIZE_STREAM_H_
#define PAGODA_SERVER_RPC_MATERIALIZE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/server_callback.h"
#include "manager/api/sequence_calls.h"
#include "pagoda/v1/cache.pb.h"
#include "server/callers/stream_slots.h"
#include "server/directory/cache_parts.h"
#include "server/rpc/layer_reader.h"
#include "wire/errors.h"

namespace pagoda::server {

// Sends the tokens in order, with one message at a time in memory: a client that does not read
// holds up only its call. Waits for copies into the sequence's slots without a thread. Alive as
// long as its call, or a wait's alarm. Thread-safe.
//
// Takes no hold of the sequence. It reads the slots without the core's lock. Afterwards it asks the
// core whether the version of the KV and the blocks are the same. If the blocks are others, it
// reads again. A message therefore has the sequence's bytes, or the call ends with an error.
//
// The limit: a float8 block with scales that is not full yet. If its client computes further tokens
// meanwhile, a larger one can raise the block's scale, and the client then writes the block's
// earlier elements anew. A message can have old elements with the new scale, or the reverse, and
// these tokens' numbers are then wrong by a power of two. Nothing reports such writes to the core.
// So a caller reads full blocks only, or reads while the client computes nothing for the sequence.
class MaterializeStream final : public grpc::ServerWriteReactor<v1::MaterializeResponse> {
 public:
  struct Options {
    CachePtr cache;
    SessionRef session;
    SequenceId sequence;
    uint32_t token_begin = 0;
    uint32_t token_end = 0;  // 0: up to the last computed token.
    // A slot is not cleared when it gets another owner, and its new owner can call tokens computed
    // whose KV nobody wrote. So a caller who is not trusted with all tenants' bytes reads only
    // for a session that has mapped the pools for writing, and could read every byte there.
    bool needs_mapping = true;
    // Fails when the caller's token has been revoked. Everything that it refers to outlives the
    // call.
    std::function<absl::Status()> check_caller;
  };

  // The bytes of K and V in a message, unless one token has more.
  static constexpr uint64_t kMessageBytes = uint64_t{1} << 20;

  // Begins the call. REQUIRES: `reader` is of the options' cache.
  static MaterializeStream* Start(Options options, LayerReader reader, StreamSlots::Slot slot);

  void OnWriteDone(bool ok) override;
  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override;

 private:
  // What comes next: a message is ready, the end, or a wait for copies.
  struct Write {};
  struct End {};
  using Step = std::variant<Write, End, Ticket>;

  MaterializeStream(Options options, LayerReader reader, StreamSlots::Slot slot)
      : options_(std::move(options)), reader_(std::move(reader)), slot_(std::move(slot)) {}

  // Sends the next message, begins a wait, or ends the call. One thread at a time runs it.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Step> Next();
  // The sequence's blocks from the next token on, if its KV is still the one that the call sends.
  absl::StatusOr<SequenceKv> Look();
  // Sets the end of the range that the call sends.
  absl::Status BeginAt(const SequenceKv& kv);
  // Reads the next `num_tokens` tokens into the message.
  absl::Status Fill(const SequenceKv& kv, uint32_t num_tokens);
  uint32_t block_tokens() const { return options_.cache->layout->spec().tokens_per_block; }
  // The number of tokens of the next message, as far as it is known.
  uint32_t NextTokens() const;
  // The number of blocks that the next `num_tokens` tokens lie in.
  uint32_t BlocksOf(uint32_t num_tokens) const;
  // False: the copies are done, or the client has left.
  bool Suspend(Ticket ticket) ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeUp() ABSL_LOCKS_EXCLUDED(mutex_);
  void CopiesDone(uint64_t wait) ABSL_LOCKS_EXCLUDED(mutex_);
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  std::shared_ptr<MaterializeStream> self_;  // The call's reference; released in OnDone.

  // Used by Advance.
  LayerReader reader_;
  std::optional<StreamSlots::Slot> slot_;  // Until the call is over.
  std::optional<uint64_t> version_;        // The version of the KV; set with `end_`.
  bool described_ = false;                 // Whether a message has described the arrays.
  uint32_t losses_ = 0;                    // When the call began.
  uint32_t next_ = 0;                      // The first token that is not sent.
  uint32_t end_ = 0;
  v1::MaterializeResponse message_;  // gRPC uses it while a write is outstanding.
  ErrorMetadata metadata_;           // The metadata of the error that ends the call.

  mutable absl::Mutex mutex_;  // Only the alarm is called under it.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t waits_ ABSL_GUARDED_BY(mutex_) = 0;        // How many waits have begun.
  uint64_t copies_done_ ABSL_GUARDED_BY(mutex_) = 0;  // The last wait whose copies are done.
  // While the call waits. Fires when the wait is over.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_MATERIALIZE_STREAM_H_
