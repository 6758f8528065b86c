// A request to OpenCache of arbitrary bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/error.h"
#include "pools/layout.h"
#include "pools/sizing.h"
#include "server/config/config.h"
#include "tests/fuzz/planted.h"
#include "wire/caches.h"
#include "wire/served_fields.h"

namespace pagoda::server {
namespace {

// The free bytes of each medium.
constexpr uint64_t kFreeBytes = uint64_t{1} << 30;

void CheckRefusal(const absl::Status& status) {
  PAGODA_CHECK(ReasonOf(status) != Reason::kNone, "a refusal has a reason");
  PAGODA_CHECK(!status.message().empty(), "a refusal says what is wrong");
}

// The sizes of an accepted layout match the request, and fit into 64 bits.
void CheckSizes(const CacheLayout& layout, const OpenCacheCall& call) {
  SizingRequest request{.workload = {.max_sequence_tokens = 8192, .chunk_tokens = 512}};
  for (const TierWish& wish : call.tiers) {
    const uint64_t bytes =
        wish.bytes > 0 ? std::min(wish.bytes, kFreeBytes) : kFreeBytes / 1000 * wish.free_permille;
    request.tiers.push_back({.budget = ByteBudget{bytes}, .medium = wish.medium});
  }
  const absl::StatusOr<SizingPlan> plan = PlanSizes(layout, request);
  if (!plan.ok()) return CheckRefusal(plan.status());
  for (size_t t = 0; t < call.tiers.size(); ++t) {
    const uint64_t asked = std::get<ByteBudget>(request.tiers[t].budget).bytes;
    const uint64_t bytes = plan->bytes(Tier(t));
    PAGODA_CHECK(bytes > 0, "a cache that is opened has a block in every tier");
    PAGODA_CHECK(bytes <= (fuzz::Planted("OverBudget") ? asked / 2 : asked),
                 "a cache takes no more than it asked for");
  }
}

void Check(const std::string& bytes) {
  v1::OpenCacheRequest proto;
  if (!proto.ParseFromString(bytes)) return;
  if (const absl::Status served = CheckServed(proto); !served.ok()) return CheckRefusal(served);
  const absl::StatusOr<OpenCacheCall> call = OpenCacheFromProto(proto);
  if (!call.ok()) return CheckRefusal(call.status());
  v1::OpenCacheRequest again;
  OpenCacheToProto(*call, &again);
  const absl::StatusOr<OpenCacheCall> back = OpenCacheFromProto(again);
  PAGODA_CHECK(back.ok(), "what was accepted is accepted again");
  PAGODA_CHECK(back->identity == call->identity && back->layers == call->layers &&
                   back->tiers == call->tiers,
               "what was accepted comes back as it was");
  if (const absl::Status name = CheckCacheName(call->name); !name.ok()) return CheckRefusal(name);
  PAGODA_CHECK(call->name.find('/') == std::string::npos, "a name leads out of no folder");
  const absl::StatusOr<CacheLayout> layout =
      CacheLayout::Create({.name = call->name,
                           .model_fingerprint = call->identity.Text(),
                           .tokens_per_block = call->tokens_per_block,
                           .layers = call->layers});
  if (!layout.ok()) return CheckRefusal(layout.status());
  CheckSizes(*layout, *call);
}

}  // namespace
}  // namespace pagoda::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::server::Check(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
