#include "wire/retention_fields.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/sequences/operation_checks.h"
#include "manager/words/retention.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr uint64_t kMaxMilliseconds = std::numeric_limits<int64_t>::max();

// The fields are named `prefix` + "priority" and `prefix` + "duration_ms".
absl::StatusOr<BlockRetention> BlockRetentionFrom(const std::string& prefix, uint32_t priority,
                                                  std::optional<uint64_t> duration_ms) {
  if (priority > kMaxPriority) {
    return InvalidArgument(
        absl::StrCat(prefix, "priority is ", priority, "; at most ", kMaxPriority));
  }
  BlockRetention retention{.priority = Priority(static_cast<uint8_t>(priority))};
  if (!duration_ms.has_value()) return retention;
  const absl::StatusOr<absl::Duration> duration =
      DurationFromMilliseconds(absl::StrCat(prefix, "duration_ms"), *duration_ms);
  if (!duration.ok()) return duration.status();
  retention.duration = *duration;
  return retention;
}

}  // namespace

absl::StatusOr<absl::Duration> DurationFromMilliseconds(const std::string& field,
                                                        uint64_t milliseconds) {
  if (milliseconds <= kMaxMilliseconds) {
    return absl::Milliseconds(static_cast<int64_t>(milliseconds));
  }
  return InvalidArgument(absl::StrCat(field, " is ", milliseconds, "; at most ", kMaxMilliseconds));
}

void RangesToProto(const std::vector<RetentionRange>& ranges, RetentionProtos* out) {
  for (const RetentionRange& range : ranges) {
    v1::RetentionRange* proto = out->Add();
    proto->set_token_start(range.token_start);
    if (range.token_end.has_value()) proto->set_token_end(*range.token_end);
    proto->set_priority(range.retention.priority.value());
    if (const auto duration_ms = MillisecondsOf(range.retention.duration)) {
      proto->set_duration_ms(*duration_ms);
    }
  }
}

absl::StatusOr<std::vector<RetentionRange>> RangesFromProto(const RetentionProtos& protos) {
  const auto count = static_cast<size_t>(protos.size());
  if (count > kMaxRetentionRanges) {
    return InvalidArgument(
        absl::StrCat(count, " retention ranges; at most ", kMaxRetentionRanges, " are allowed"));
  }
  std::vector<RetentionRange> ranges;
  ranges.reserve(count);
  for (const v1::RetentionRange& proto : protos) {
    const auto duration_ms =
        proto.has_duration_ms() ? std::optional(proto.duration_ms()) : std::nullopt;
    const absl::StatusOr<BlockRetention> retention = BlockRetentionFrom(
        absl::StrCat("retention[", ranges.size(), "]."), proto.priority(), duration_ms);
    if (!retention.ok()) return retention.status();
    RetentionRange& range = ranges.emplace_back();
    range.token_start = proto.token_start();
    if (proto.has_token_end()) range.token_end = proto.token_end();
    range.retention = *retention;
  }
  return ranges;
}

void RetentionToProto(const SequenceRetention& retention, v1::AddSequenceRequest* out) {
  RangesToProto(retention.ranges, out->mutable_retention());
  if (!retention.generated.has_value()) return;
  out->set_generated_priority(retention.generated->priority.value());
  if (const auto duration_ms = MillisecondsOf(retention.generated->duration)) {
    out->set_generated_duration_ms(*duration_ms);
  }
}

absl::StatusOr<SequenceRetention> RetentionFromProto(const v1::AddSequenceRequest& proto) {
  absl::StatusOr<std::vector<RetentionRange>> ranges = RangesFromProto(proto.retention());
  if (!ranges.ok()) return ranges.status();
  SequenceRetention retention{.ranges = *std::move(ranges)};
  const auto duration_ms = proto.has_generated_duration_ms()
                               ? std::optional(proto.generated_duration_ms())
                               : std::nullopt;
  if (!proto.has_generated_priority()) {
    if (duration_ms.has_value()) {
      return InvalidArgument("generated_duration_ms is set without a generated_priority");
    }
    return retention;
  }
  const absl::StatusOr<BlockRetention> generated =
      BlockRetentionFrom("generated_", proto.generated_priority(), duration_ms);
  if (!generated.ok()) return generated.status();
  retention.generated = *generated;
  return retention;
}

}  // namespace pagoda
