#include "manager/exchange/block_exchange.h"

#include <array>
#include <memory>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "base/error.h"
#include "manager/exchange/exchange_core.h"

namespace pagoda {
namespace {

constexpr std::array<const char*, kFetchOutcomes> kOutcomeNames = {
    "fetched", "cached",  "missing", "partly",   "failed",
    "slower",  "no_room", "refused", "cancelled"};

}  // namespace

const char* FetchOutcomeName(FetchOutcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}

absl::StatusOr<std::unique_ptr<BlockExchange>> BlockExchange::Create(SharedManager* manager,
                                                                     PoolSet* pools, Store* store,
                                                                     Options options) {
  const CacheLayout& layout = pools->layout();
  if (layout.spec().model_fingerprint.empty()) {
    return InvalidArgument(
        "a cache that exchanges blocks with a store needs a model fingerprint: without it, blocks "
        "of different models could mix");
  }
  if (layout.windows().size() != 1 || layout.windows()[0].window != kFullAttention) {
    return absl::UnimplementedError("blocks of sliding windows are not exchanged with a store");
  }
  if (pools->place(Tier::kPrimary).kind != MemoryKind::kHost) {
    return absl::UnimplementedError("blocks on a device are not exchanged with a store");
  }
  auto core = std::make_shared<Core>(manager, pools, store, options);
  if (absl::Status status = core->Start(); !status.ok()) return status;
  return absl::WrapUnique(new BlockExchange(std::move(core)));
}

BlockExchange::BlockExchange(std::shared_ptr<Core> core) : core_(std::move(core)) {}

BlockExchange::~BlockExchange() { Stop(); }

void BlockExchange::Fetch(StoredPrompt prompt, absl::Duration most, FetchDone done) {
  core_->Fetch(std::move(prompt), most, std::move(done));
}

void BlockExchange::Publish(StoredPrompt prompt, PublishDone done) {
  core_->Publish(std::move(prompt), std::move(done));
}

void BlockExchange::Stop() { core_->Stop(); }

ExchangeStats BlockExchange::stats() const { return core_->stats(); }

}  // namespace pagoda
