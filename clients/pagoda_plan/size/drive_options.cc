#include "clients/pagoda_plan/size/drive_options.h"

#include <cstdint>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/byte_size.h"

namespace pagoda {
namespace {

std::string CheckRate(const std::string& text) {
  if (ParseByteRate(text).has_value()) return "";
  return absl::StrCat("\"", text, "\" is not a rate such as 44MB/s");
}

std::string CheckSize(const std::string& text) {
  if (ParseByteSizeWithUnit(text).value_or(0) > 0) return "";
  return absl::StrCat("\"", text, "\" is not a number of ", kByteSizeForms);
}

double BytesOr(const std::string& text, double otherwise) {
  const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
  return bytes.has_value() ? static_cast<double>(*bytes) : otherwise;
}

}  // namespace

void AddDriveOptions(CLI::App& command, DriveOptions& options) {
  command
      .add_option("--write-budget", options.write_budget,
                  "The write budget of the disk tier, such as 44MB/s")
      ->check(CheckRate);
  command
      .add_option("--drive-size", options.size,
                  "The size of its drive, such as 3.84TB; default: the size of the tier")
      ->check(CheckSize);
  CLI::Option* const written =
      command
          .add_option("--drive-tbw", options.terabytes_written,
                      "The bytes that can be written over the drive's lifetime (TBW), such as 7PB")
          ->check(CheckSize);
  CLI::Option* const writes_per_day =
      command
          .add_option("--drive-dwpd", options.writes_per_day,
                      "Instead of --drive-tbw: how often the drive can be fully written per day "
                      "(DWPD)")
          ->check(CLI::Range(0.001, 1000.0))
          ->excludes(written);
  command.add_option("--drive-years", options.years, "The years for which --drive-dwpd holds")
      ->check(CLI::Range(0.1, 100.0))
      ->capture_default_str()
      ->needs(writes_per_day);
}

DrivePlan PlanDrive(const DriveOptions& options, double tier_bytes) {
  DrivePlan plan;
  plan.drive.capacity_bytes = BytesOr(options.size, tier_bytes);
  plan.drive.endurance_bytes =
      options.writes_per_day > 0
          ? EnduranceBytes(plan.drive.capacity_bytes, options.writes_per_day, options.years)
          : BytesOr(options.terabytes_written, 0);
  if (!options.write_budget.empty()) plan.budget = ParseByteRate(options.write_budget).value_or(0);
  return plan;
}

}  // namespace pagoda
