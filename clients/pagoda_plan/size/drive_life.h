// How long a drive lasts under a write budget. Sizes of drives are decimal: a TB is 10^12 bytes.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_SIZE_DRIVE_LIFE_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_SIZE_DRIVE_LIFE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pagoda {

// The figures of a drive's data sheet, in bytes that the host writes. 0: not known.
struct Drive {
  double capacity_bytes = 0;
  double endurance_bytes = 0;  // "TBW": the bytes that can be written over its lifetime.
};

inline constexpr double kSecondsPerDay = 86'400;
inline constexpr double kDaysPerYear = 365;

// The endurance of a drive that takes `writes_per_day` times its capacity each day for `years`
// years: "1 DWPD for 5 years".
double EnduranceBytes(double capacity_bytes, double writes_per_day, double years);

// One write of the whole drive a day, in bytes a second.
double OneWritePerDay(double capacity_bytes);

// Years until the endurance is used up if `bytes_per_second` are written all the time.
// REQUIRES: bytes_per_second > 0.
double LifeYears(const Drive& drive, double bytes_per_second);

// Parses bytes per second: "44MB/s", a size of ParseByteSizeWithUnit with "/s". None if the text
// has another form or the rate is 0.
std::optional<double> ParseByteRate(absl::string_view text);

std::string FormatDecimalBytes(double bytes);  // "44.0 MB", "3.84 TB", "7.00 PB"
std::string FormatYears(double years);         // "5.0 years", "73 days"

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_SIZE_DRIVE_LIFE_H_
