#include "clients/pagoda_plan/size/drive_life.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/byte_size.h"

namespace pagoda {
namespace {

std::string WithUnit(double value, const char* unit) {
  return value < 10 ? absl::StrFormat("%.2f %s", value, unit)
                    : absl::StrFormat("%.1f %s", value, unit);
}

}  // namespace

double EnduranceBytes(double capacity_bytes, double writes_per_day, double years) {
  return capacity_bytes * writes_per_day * kDaysPerYear * years;
}

double OneWritePerDay(double capacity_bytes) { return capacity_bytes / kSecondsPerDay; }

double LifeYears(const Drive& drive, double bytes_per_second) {
  return drive.endurance_bytes / bytes_per_second / kSecondsPerDay / kDaysPerYear;
}

std::optional<double> ParseByteRate(absl::string_view text) {
  if (!absl::ConsumeSuffix(&text, "/s")) return std::nullopt;
  const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
  if (!bytes.has_value() || *bytes == 0) return std::nullopt;
  return static_cast<double>(*bytes);
}

std::string FormatDecimalBytes(double bytes) {
  if (bytes < 1e3) return absl::StrFormat("%.0f B", bytes);
  double value = bytes;
  const char* unit = "B";
  for (const char* next : {"kB", "MB", "GB", "TB", "PB"}) {
    if (value < 1e3) break;
    value /= 1e3;
    unit = next;
  }
  return WithUnit(value, unit);
}

std::string FormatYears(double years) {
  if (years < 1) return absl::StrFormat("%.0f days", years * kDaysPerYear);
  return absl::StrFormat("%.1f years", years);
}

}  // namespace pagoda
