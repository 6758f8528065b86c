#include "tests/sim/exchange/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tests/sim/words/fail.h"

namespace pagoda::exchange_sim {
namespace {

using sim::Random;

constexpr size_t kMostRunning = 6;

// An operation on a prefix, which all have the same fields.
template <class T>
T On(const StoredPrompt& prompt) {
  T operation;
  operation.name_space = prompt.name_space;
  operation.tokens = prompt.tokens;
  operation.extra_token_ids = prompt.extra_token_ids;
  operation.multimodal_items = prompt.multimodal_items;
  operation.keys = prompt.keys;
  return operation;
}

}  // namespace

Engine::Engine(Surroundings* surroundings, SimCache* cache)
    : surroundings_(*surroundings),
      cache_(*cache),
      tokens_per_block_(surroundings->config.tokens_per_block),
      session_(cache->OpenSession("engine")) {}

void Engine::Do(Kind kind, Random& random) {
  const auto count = static_cast<uint32_t>(running_.size());
  const auto any = [&] { return random.Below(count); };
  switch (kind) {
    case Kind::kAdd:
      if (count < kMostRunning) Add(random);
      break;
    case Kind::kProgress:
      if (count > 0) Progress(running_[any()], random);
      break;
    case Kind::kAppend:
      if (count > 0) AppendTo(running_[any()], random);
      break;
    case Kind::kFork:
      if (count > 0 && count < kMostRunning) Fork(running_[any()]);
      break;
    case Kind::kFree:
      if (count > 0) Free(any());
      break;
    case Kind::kPin: {
      auto pin = On<PinPrefix>(surroundings_.library.Draw(random));
      pin.lease = absl::Milliseconds(random.Between(1, 200));
      const absl::StatusOr<PinnedPrefix> pinned = Execute<PinnedPrefix>(pin);
      if (!pinned.ok() || pinned->pin == PinId()) break;
      pins_.push_back(pinned->pin);
      surroundings_.coverage.Add(Met::kPinned);
      break;
    }
    case Kind::kUnpin:
      if (pins_.empty()) break;
      Execute<UnpinnedPrefix>(UnpinPrefix{.pin = pins_.back()}).status().IgnoreError();
      pins_.pop_back();
      break;
    case Kind::kOffload:
      Execute<OffloadedPrefix>(On<OffloadPrefix>(surroundings_.library.Draw(random)))
          .status()
          .IgnoreError();
      break;
    case Kind::kPrefetch:
      Execute<PrefetchedPrefix>(On<PrefetchPrefix>(surroundings_.library.Draw(random)))
          .status()
          .IgnoreError();
      break;
    case Kind::kInvalidate:
      Execute<InvalidatedPrefix>(On<InvalidatePrefix>(surroundings_.library.Draw(random)))
          .status()
          .IgnoreError();
      break;
    case Kind::kReset:
      if (random.OneIn(3)) cache_.manager().ResetPrefixCache();
      break;
    default:
      sim::Fail("not an operation of an engine");
  }
}

void Engine::Add(Random& random) {
  Running running{SequenceId(++last_sequence_), surroundings_.library.Draw(random)};
  const StoredPrompt& prompt = running.content;
  auto add = On<AddSequence>(prompt);
  add.sequence = running.id;
  add.tenant = prompt.tenant;
  add.whole_blocks_only = random.Percent(50);
  const absl::StatusOr<AddedSequence> added = Execute<AddedSequence>(add);
  if (!added.ok()) {
    const Reason reason = ReasonOf(added.status());
    SIM_CHECK(reason == Reason::kBlocksExhausted || reason == Reason::kTenantQuotaExceeded ||
                  reason == Reason::kInvalidCount,
              "an engine's prompt is refused: ", added.status().ToString());
    surroundings_.coverage.Add(reason == Reason::kBlocksExhausted ? Met::kExhausted : Met::kQuota);
    return;
  }
  if (added->matched_tokens > 0) surroundings_.coverage.Add(Met::kMatched);
  running_.push_back(std::move(running));
}

// Reads what is there, and computes some of the rest.
void Engine::Progress(Running& running, Random& random) {
  const absl::StatusOr<DescribedSequence> now =
      Execute<DescribedSequence>(DescribeSequence{.sequence = running.id});
  SIM_CHECK(now.ok(), "a running sequence is unknown");
  if (now->losses > 0) return Free(static_cast<size_t>(&running - running_.data()));
  if (!IsReady(now->ready)) return;
  CheckTable(running, *now);
  const uint32_t left = std::min(now->token_count, now->reserved_tokens) - now->computed_tokens;
  if (left == 0) return;
  const bool keyed = running.content.name_space.keyed;
  const uint32_t unit = keyed ? tokens_per_block_ : 1;
  const uint32_t count = random.Percent(60) ? left : unit * random.Between(1, left / unit);
  const std::vector<Value> values =
      surroundings_.library.ValuesOf(cache_.config().model, running.content);
  const uint32_t begin = now->computed_tokens;
  // Kernels leave garbage behind the tokens that they have computed.
  for (uint32_t i = begin; i < begin + left; ++i) {
    const Value value = i < begin + count ? values[i] : random.Next();
    cache_.Write(now->tables[0].blocks[i / tokens_per_block_].slot, i % tokens_per_block_,
                 {&value, 1});
  }
  const absl::StatusOr<CommittedTokens> committed = Execute<CommittedTokens>(CommitTokens{
      .sequence = running.id, .tokens = {}, .computed_tokens = begin + count, .keys = {}});
  SIM_CHECK(committed.ok(), "a commit is refused: ", committed.status().ToString());
  computed_ = running.content;
}

void Engine::CheckTable(const Running& running, const DescribedSequence& now) {
  const std::vector<Value> values =
      surroundings_.library.ValuesOf(cache_.config().model, running.content);
  const auto& blocks = now.tables[0].blocks;
  for (uint32_t begin = 0; begin < now.computed_tokens; begin += tokens_per_block_) {
    const uint32_t count = std::min(tokens_per_block_, now.computed_tokens - begin);
    const SlotIndex slot = blocks[begin / tokens_per_block_].slot;
    SIM_CHECK(cache_.Holds({kPrimaryTier, slot}, 0, absl::MakeSpan(values).subspan(begin, count)),
              "sequence ", running.id.value(), " reads wrong bytes in its table at token ", begin);
  }
  surroundings_.coverage.Add(Met::kTableRead);
}

void Engine::AppendTo(Running& running, Random& random) {
  const uint32_t count = random.Between(1, running.content.name_space.keyed ? 2 : 6);
  StoredPrompt longer = running.content;
  surroundings_.library.Append(longer, count, random);
  AppendTokens append{.sequence = running.id, .tokens = {}};
  append.tokens.assign(longer.tokens.end() - (longer.tokens.empty() ? 0 : count),
                       longer.tokens.end());
  append.keys.assign(longer.keys.end() - (longer.keys.empty() ? 0 : count), longer.keys.end());
  if (Execute<AppendedTokens>(append).ok()) running.content = std::move(longer);
}

// Only when all is computed: then a fork writes nothing that the other one reads.
void Engine::Fork(const Running& running) {
  const absl::StatusOr<DescribedSequence> now =
      Execute<DescribedSequence>(DescribeSequence{.sequence = running.id});
  SIM_CHECK(now.ok(), "a running sequence is unknown");
  if (now->losses > 0 || now->computed_tokens < now->token_count) return;
  const SequenceId id(++last_sequence_);
  if (!Execute<ForkedSequence>(ForkSequence{.sequence = running.id, .new_sequence = id}).ok()) {
    return;
  }
  surroundings_.coverage.Add(Met::kForked);
  running_.push_back({id, StoredPrompt(running.content)});
}

void Engine::Free(size_t index) {
  const absl::StatusOr<FreedSequence> freed =
      Execute<FreedSequence>(FreeSequence{.sequence = running_[index].id});
  SIM_CHECK(freed.ok(), "a running sequence cannot be freed");
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
}

void Engine::Leave(Random& random) {
  for (size_t i = running_.size(); i-- > 0;) {
    Progress(running_[i], random);
    if (i < running_.size()) Free(i);
  }
  for (const PinId pin : pins_) {
    Execute<UnpinnedPrefix>(UnpinPrefix{.pin = pin}).status().IgnoreError();
  }
  pins_.clear();
}

}  // namespace pagoda::exchange_sim
