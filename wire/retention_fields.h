// The fields of retention, and durations of whole milliseconds.
#ifndef PAGODA_WIRE_RETENTION_FIELDS_H_
#define PAGODA_WIRE_RETENTION_FIELDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/api/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// The inverse of MillisecondsOf. Errors: INVALID_ARGUMENT above 2^63 - 1; the message names the
// field.
absl::StatusOr<absl::Duration> DurationFromMilliseconds(const std::string& field,
                                                        uint64_t milliseconds);

using RetentionProtos = google::protobuf::RepeatedPtrField<v1::RetentionRange>;

void RangesToProto(const std::vector<RetentionRange>& ranges, RetentionProtos* out);
// Errors: INVALID_ARGUMENT (a priority above 100, a duration that is too long, or more than
// kMaxRetentionRanges ranges; these are counted before any is copied).
absl::StatusOr<std::vector<RetentionRange>> RangesFromProto(const RetentionProtos& protos);

void RetentionToProto(const SequenceRetention& retention, v1::AddSequenceRequest* out);
// Errors: those of RangesFromProto, also for generated tokens; a generated duration without a
// priority.
absl::StatusOr<SequenceRetention> RetentionFromProto(const v1::AddSequenceRequest& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_RETENTION_FIELDS_H_
