#include "clients/pagodactl/drive_options.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

std::string CheckRate(const std::string& text) {
  if (ParseByteRate(text).has_value()) return "";
  return absl::StrCat("\"", text, "\" is no rate such as 44MB/s");
}

std::string CheckSize(const std::string& text) {
  if (ParseDecimalBytes(text).has_value()) return "";
  return absl::StrCat("\"", text, "\" is no size such as 7.68TB or 7PB");
}

double BytesOr(const std::string& text, double otherwise) {
  return text.empty() ? otherwise : ParseDecimalBytes(text).value_or(otherwise);
}

}  // namespace

void AddDriveOptions(CLI::App& command, DriveOptions& options) {
  command
      .add_option("--write-budget", options.write_budget,
                  "Of the tier on disk: what may be written to it, 44MB/s")
      ->check(CheckRate);
  command
      .add_option("--drive-size", options.size, "Its drive: 3.84TB; else one as large as the tier")
      ->check(CheckSize);
  CLI::Option* const written =
      command
          .add_option("--drive-tbw", options.terabytes_written,
                      "What may be written to the drive in its life (TBW): 7PB")
          ->check(CheckSize);
  CLI::Option* const writes_per_day =
      command
          .add_option("--drive-dwpd", options.writes_per_day,
                      "Or how often a day it may be written whole (DWPD)")
          ->check(CLI::Range(0.001, 1000.0))
          ->excludes(written);
  command.add_option("--drive-years", options.years, "For so many years")
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
