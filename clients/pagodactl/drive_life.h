// How long a drive lasts under a budget of writes. Drives are sold in decimal units: a TB is 10^12
// bytes.
#ifndef PAGODA_CLIENTS_PAGODACTL_DRIVE_LIFE_H_
#define PAGODA_CLIENTS_PAGODACTL_DRIVE_LIFE_H_

#include <optional>
#include <string>

namespace pagoda {

// What a data sheet says. Bytes are those that the host writes. 0: it is not known.
struct Drive {
  double capacity_bytes = 0;
  double endurance_bytes = 0;  // "TBW": what may be written in its life.
};

inline constexpr double kSecondsPerDay = 86'400;
inline constexpr double kDaysPerYear = 365;

// The endurance of a drive that takes `writes_per_day` times its capacity each day for `years`
// years: "1 DWPD for 5 years".
double EnduranceBytes(double capacity_bytes, double writes_per_day, double years);

// One write of the whole drive a day, in bytes a second.
double OneWritePerDay(double capacity_bytes);

// Years until the endurance is used up, where `bytes_per_second` are written all the time.
// REQUIRES: bytes_per_second > 0.
double LifeYears(const Drive& drive, double bytes_per_second);

// The bytes that "7PB", "7.68TB", "500GB", "44MB" or, in powers of 1024, "2TiB" says; none where it
// is something else, or not above 0.
std::optional<double> ParseDecimalBytes(const std::string& text);
// The bytes a second that "44MB/s" says. Likewise.
std::optional<double> ParseByteRate(const std::string& text);

std::string FormatDecimalBytes(double bytes);  // "44.0 MB", "3.84 TB", "7.00 PB"
std::string FormatYears(double years);         // "5.0 years", "73 days"

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_DRIVE_LIFE_H_
