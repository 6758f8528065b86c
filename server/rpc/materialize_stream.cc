#include "server/rpc/materialize_stream.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/sequences/running_sequences.h"
#include "manager/shared_manager.h"
#include "server/batch/batch_run.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

// The core's lock is held while the blocks of a message are looked up.
constexpr uint32_t kMostBlocks = 1024;

// How often a message is read again because its blocks have changed meanwhile. A block of a
// sequence is exchanged once, when another sequence has published the same content, or passed once.
constexpr int kTries = 16;

bool SameBlocks(const SequenceKv& a, const SequenceKv& b, size_t count) {
  return a.blocks.size() >= count && b.blocks.size() >= count &&
         std::equal(a.blocks.begin(), a.blocks.begin() + static_cast<std::ptrdiff_t>(count),
                    b.blocks.begin());
}

absl::Status NeedsMapping() {
  return MakeError(Reason::kPermissionDenied,
                   "a tenant's session reads KV through the daemon only after it has mapped the "
                   "pools for writing, because a slot can hold bytes of other tenants");
}

std::byte* BytesOf(std::string* rows) { return reinterpret_cast<std::byte*>(rows->data()); }

}  // namespace

MaterializeStream* MaterializeStream::Start(Options options, LayerReader reader,
                                            StreamSlots::Slot slot) {
  const std::shared_ptr<MaterializeStream> stream(
      new MaterializeStream(std::move(options), std::move(reader), std::move(slot)));
  stream->self_ = stream;
  stream->next_ = stream->options_.token_begin;
  stream->Advance();
  return stream.get();
}

void MaterializeStream::Advance() {
  for (;;) {
    absl::StatusOr<Step> step = cancelled() ? ClientGone() : Next();
    if (!step.ok()) return Finish(ToGrpcStatus(step.status(), metadata_));
    if (std::holds_alternative<End>(*step)) return Finish(grpc::Status::OK);
    if (std::holds_alternative<Write>(*step)) return StartWrite(&message_);
    if (Suspend(std::get<Ticket>(*step))) return;
  }
}

absl::StatusOr<MaterializeStream::Step> MaterializeStream::Next() {
  if (described_ && next_ == end_) return Step(End{});
  if (absl::Status known = options_.check_caller(); !known.ok()) return known;
  for (int tries = 0; tries < kTries; ++tries) {
    absl::StatusOr<SequenceKv> kv = Look();
    if (!kv.ok()) return kv.status();
    const Ticket completed = options_.cache->manager->Read(
        [](const BlockManager& core) { return core.completed_ticket(); });
    if (kv->ready > completed) {
      // Sets the range only when the bytes are there: copies that fail shorten it.
      return Step(kv->ready);
    }
    if (!version_.has_value()) {
      if (absl::Status begun = BeginAt(*kv); !begun.ok()) return begun;
    }
    const uint32_t num_tokens = NextTokens();
    message_.Clear();
    if (absl::Status filled = Fill(*kv, num_tokens); !filled.ok()) return filled;
    const absl::StatusOr<SequenceKv> again = Look();
    if (!again.ok()) return again.status();
    if (!SameBlocks(*kv, *again, BlocksOf(num_tokens))) continue;
    if (!described_) {
      v1::MaterializedLayer* layer = message_.mutable_layer();
      layer->set_dtype(DTypeToProto(reader_.form().dtype));
      layer->set_num_kv_heads(reader_.form().num_kv_heads);
      layer->set_head_dim(reader_.form().head_dim);
      layer->set_token_begin(next_);
      layer->set_token_end(end_);
      described_ = true;
    }
    next_ += num_tokens;
    return Step(Write{});
  }
  return absl::AbortedError("the sequence's blocks change faster than they are read");
}

absl::StatusOr<SequenceKv> MaterializeStream::Look() {
  absl::StatusOr<SequenceKv> kv =
      options_.cache->manager->Read([&](const BlockManager& core) -> absl::StatusOr<SequenceKv> {
        if (absl::Status open = core.CheckSession(options_.session); !open.ok()) return open;
        absl::StatusOr<SequenceKv> found = core.sequences().ReadSequence(
            options_.session.id, options_.sequence, reader_.window_index(), next_ / block_tokens(),
            BlocksOf(NextTokens()));
        if (found.ok() && options_.needs_mapping && !core.HasWriter(options_.session.id)) {
          return NeedsMapping();
        }
        return found;
      });
  if (!kv.ok()) return kv;
  if (kv->must_be_freed || (version_.has_value() && kv->losses != losses_)) {
    return MakeError(
        Reason::kKvLost,
        absl::StrCat("a copy failed, and sequence ", options_.sequence.value(), " has only ",
                     Counted(kv->computed_tokens, "computed token"), " now"));
  }
  if (version_.has_value() && kv->version != *version_) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("sequence ", options_.sequence.value(),
                                  " was truncated while its KV was read"));
  }
  const uint32_t held = std::min(kv->first_block * block_tokens(), kv->computed_tokens);
  if (next_ >= held) return kv;
  metadata_["first_token"] = absl::StrCat(held);
  return MakeError(
      Reason::kWindowPassed,
      absl::StrCat("the window of this layer has passed token ", next_, " of sequence ",
                   options_.sequence.value(), "; it holds the tokens from ", held, " on"));
}

absl::Status MaterializeStream::BeginAt(const SequenceKv& kv) {
  const uint32_t end = options_.token_end == 0 ? kv.computed_tokens : options_.token_end;
  if (end > kv.computed_tokens || next_ > end) {
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("tokens ", next_, " to ", end, " of sequence ", options_.sequence.value(),
                     ", of which ", kv.computed_tokens, " are computed"));
  }
  version_ = kv.version;
  losses_ = kv.losses;
  end_ = end;
  return absl::OkStatus();
}

absl::Status MaterializeStream::Fill(const SequenceKv& kv, uint32_t num_tokens) {
  const RowForm& form = reader_.form();
  const uint64_t row_bytes = form.row_bytes();
  std::string* const keys = message_.mutable_keys();
  std::string* const values = message_.mutable_values();
  keys->resize(num_tokens * row_bytes);
  if (form.kv_factor == 2) values->resize(num_tokens * row_bytes);
  const uint32_t first_block = next_ / block_tokens();
  for (uint32_t done = 0; done < num_tokens;) {
    const uint32_t token = next_ + done;
    const uint32_t offset = token % block_tokens();
    const uint32_t count = std::min(num_tokens - done, block_tokens() - offset);
    const size_t index = token / block_tokens() - first_block;
    if (index >= kv.blocks.size() || kv.blocks[index].id == kNoBlock) {
      return absl::InternalError(
          absl::StrCat("token ", token, " is computed, and its block is in no table"));
    }
    if (absl::Status read =
            reader_.Read(kv.blocks[index].slot, offset, count, BytesOf(keys) + done * row_bytes,
                         form.kv_factor == 2 ? BytesOf(values) + done * row_bytes : nullptr);
        !read.ok()) {
      return read;
    }
    done += count;
  }
  return absl::OkStatus();
}

uint32_t MaterializeStream::NextTokens() const {
  const uint64_t fit = std::max<uint64_t>(kMessageBytes / reader_.form().token_bytes(), 1);
  const uint64_t most = std::min<uint64_t>(fit, uint64_t{kMostBlocks} * block_tokens());
  const uint32_t end = version_.has_value() ? end_ : options_.token_end;
  if (!version_.has_value() && end <= next_) return static_cast<uint32_t>(most);
  return static_cast<uint32_t>(std::min<uint64_t>(most, end - next_));
}

uint32_t MaterializeStream::BlocksOf(uint32_t num_tokens) const {
  if (num_tokens == 0) return 0;
  const uint64_t last = uint64_t{next_} + num_tokens - 1;
  return static_cast<uint32_t>(last / block_tokens() - next_ / block_tokens() + 1);
}

bool MaterializeStream::Suspend(Ticket ticket) {
  uint64_t wait = 0;
  {
    absl::MutexLock lock(&mutex_);
    wait = ++waits_;
  }
  // A weak reference: a copy can outlast the call that waited for it.
  options_.cache->manager->NotifyWhenDone(
      ticket, [weak = std::weak_ptr<MaterializeStream>(self_), wait] {
        if (const std::shared_ptr<MaterializeStream> stream = weak.lock()) stream->CopiesDone(wait);
      });
  absl::MutexLock lock(&mutex_);
  if (cancelled_ || copies_done_ == wait) return false;
  // From here on another thread can continue the call. The wait begins anew when the time is over.
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(absl::Now() + kMaxTicketWait),
              [stream = self_](bool) { stream->WakeUp(); });
  return true;
}

void MaterializeStream::WakeUp() {
  {
    absl::MutexLock lock(&mutex_);
    alarm_.reset();
  }
  Advance();
}

void MaterializeStream::CopiesDone(uint64_t wait) {
  absl::MutexLock lock(&mutex_);
  copies_done_ = std::max(copies_done_, wait);
  // An earlier wait can end by its time before its copies are done. The alarm is then a later
  // one's.
  if (alarm_ != nullptr && copies_done_ == waits_) alarm_->Cancel();
}

bool MaterializeStream::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

void MaterializeStream::OnWriteDone(bool ok) {
  if (!ok) return Finish(ToGrpcStatus(ClientGone()));
  Advance();
}

void MaterializeStream::OnCancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (alarm_ != nullptr) alarm_->Cancel();
}

void MaterializeStream::OnDone() {
  slot_.reset();
  const std::shared_ptr<MaterializeStream> last = std::move(self_);
}

}  // namespace pagoda::server
