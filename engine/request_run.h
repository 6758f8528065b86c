// One request's way through the model and the cache.
#ifndef PAGODA_ENGINE_REQUEST_RUN_H_
#define PAGODA_ENGINE_REQUEST_RUN_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/engine.h"
#include "engine/model/model_input.h"
#include "engine/model/transformer.h"
#include "kernels/types.h"
#include "manager/cache_client.h"

namespace pagoda {

// What all requests of an engine have done; the fields of EngineStats of the same names.
struct EngineCounters {
  std::atomic<uint64_t> prompt_tokens{0};
  std::atomic<uint64_t> reused_tokens{0};
  std::atomic<uint64_t> computed_tokens{0};
  std::atomic<uint64_t> generated_tokens{0};
};

// Generates greedily; used once. Each step of the model is one batch of operations on the cache: it
// declares the KV that the step before wrote complete, and takes the room that the next step writes
// to. So a token is named one step before its KV is there, and the last token never gets any. Slots
// are touched when the copies that they wait for are done, and what such a copy has lost is
// computed again. A step has ended before the next batch, so the client does not count steps.
class RequestRun {
 public:
  struct Options {
    SequenceId sequence;  // Not in use in the client's session.
    const GenerateRequest& request;
    uint32_t prefill_chunk_tokens = 0;
    Transformer& model;
    CacheClient& client;
    absl::Span<const kernels::KvLayer> kv;
    EngineCounters& counters;
  };

  explicit RequestRun(const Options& options);

  // The sequence is freed when this returns, whatever it returns, unless `is_open` says that the
  // client could not be asked; what was computed stays cached.
  // Errors: CANCELLED where `on_token` or the request's `cancelled` said so; KV_LOST where a copy
  // took what a sliding window has passed; those of the client and of Transformer::Forward.
  absl::StatusOr<FinishReason> Generate(const TokenCallback& on_token);

  uint32_t reused_tokens() const { return reused_tokens_; }
  // Whether the session, if it lives, may still have the sequence.
  bool is_open() const { return open_; }

 private:
  absl::Status Open();
  void Close();
  // Computes what is not cached of the prompt. Returns the logits of its last token.
  absl::StatusOr<absl::Span<const float>> Prefill();
  // Appends `token` and computes it. Returns its logits.
  absl::StatusOr<absl::Span<const float>> Decode(TokenId token);
  enum class Logits { kNone, kOfLastToken };
  // Runs the sequence's next tokens; their KV is complete afterwards. Returns the wanted logits.
  absl::StatusOr<absl::Span<const float>> Compute(absl::Span<const TokenId> tokens, Logits wanted);

  // One operation on the cache, as a batch of its own.
  template <class Result>
  absl::StatusOr<Result> Run(Operation operation);
  // Takes over changed tables, whose slots may be touched when this returns.
  absl::Status Take(absl::Span<const BlockTable> tables, Ticket ready);
  // Notes what the cache tells of copies that are done or have failed. Errors: KV_LOST where the
  // sequence cannot go on.
  absl::Status Note(const BatchResult& batch);

  const Options options_;
  const uint32_t tokens_per_block_;
  bool open_ = false;
  std::vector<SlotIndex> block_table_;
  ModelInput input_;
  Ticket completed_;              // Every copy up to this one has ended.
  uint32_t computed_tokens_ = 0;  // KV of the sequence's first tokens that is complete.
  uint32_t losses_ = 0;           // Of the sequence, as far as the cache has told.
  uint32_t reused_tokens_ = 0;
  uint32_t generated_tokens_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_REQUEST_RUN_H_
