#include "manager/disk/disk_stats.h"

namespace pagoda {

std::string_view DiskErrorName(DiskError error) {
  switch (error) {
    case DiskError::kIo:
      return "io";
    case DiskError::kNoSpace:
      return "no space";
    case DiskError::kBadBlock:
      return "bad block";
    case DiskError::kRefused:
      return "refused";
    case DiskError::kOrphaned:
      return "orphaned";
    case DiskError::kTooLarge:
      return "too large";
    case DiskError::kInvalid:
      return "invalid";
    case DiskError::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::optional<DiskError> DiskErrorOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return std::nullopt;
    case absl::StatusCode::kResourceExhausted:
      return DiskError::kNoSpace;
    case absl::StatusCode::kDataLoss:
      return DiskError::kBadBlock;
    case absl::StatusCode::kFailedPrecondition:
      return DiskError::kRefused;
    case absl::StatusCode::kNotFound:
      return DiskError::kOrphaned;
    case absl::StatusCode::kOutOfRange:
      return DiskError::kTooLarge;
    case absl::StatusCode::kInvalidArgument:
      return DiskError::kInvalid;
    case absl::StatusCode::kCancelled:
      return DiskError::kCancelled;
    default:
      return DiskError::kIo;
  }
}

}  // namespace pagoda
