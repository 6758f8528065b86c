#include "clients/pagodactl/plan/drive_life.h"

#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace pagoda {
namespace {

struct Unit {
  const char* suffix;
  double bytes;
};
// A suffix stands before the suffixes that it ends with ("KiB" before "B").
constexpr std::array kUnits = {Unit{"PiB", 0x1p50}, Unit{"TiB", 0x1p40}, Unit{"GiB", 0x1p30},
                               Unit{"MiB", 0x1p20}, Unit{"KiB", 0x1p10}, Unit{"PB", 1e15},
                               Unit{"TB", 1e12},    Unit{"GB", 1e9},     Unit{"MB", 1e6},
                               Unit{"kB", 1e3},     Unit{"B", 1}};

// SimpleAtod also accepts "inf", "1e3" and blanks.
bool IsPlainNumber(absl::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == absl::string_view::npos;
}

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

std::optional<double> ParseDecimalBytes(const std::string& text) {
  for (const Unit& unit : kUnits) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.suffix)) continue;
    double value = 0;
    if (!IsPlainNumber(number) || !absl::SimpleAtod(number, &value)) return std::nullopt;
    const double bytes = value * unit.bytes;
    if (bytes > 0 && std::isfinite(bytes)) return bytes;
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> ParseByteRate(const std::string& text) {
  absl::string_view bytes = text;
  if (!absl::ConsumeSuffix(&bytes, "/s")) return std::nullopt;
  return ParseDecimalBytes(std::string(bytes));
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
