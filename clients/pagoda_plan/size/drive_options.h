// The options that describe the drive of a disk tier, and the plan that follows from them.
#ifndef PAGODA_CLIENTS_PAGODA_PLAN_SIZE_DRIVE_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODA_PLAN_SIZE_DRIVE_OPTIONS_H_

#include <optional>
#include <string>

#include "clients/pagoda_plan/size/drive_life.h"

namespace CLI {
class App;
}

namespace pagoda {

struct DriveOptions {
  std::string write_budget;  // The three texts are as given; empty: not given.
  std::string size;
  std::string terabytes_written;
  double writes_per_day = 0;  // 0: not given.
  double years = 5;

  // Whether any option describes the drive.
  bool given() const {
    return !write_budget.empty() || !size.empty() || !terabytes_written.empty() ||
           writes_per_day > 0;
  }
};

// Adds --write-budget, --drive-size, --drive-tbw, --drive-dwpd and --drive-years. `options` must
// outlive the parser.
void AddDriveOptions(CLI::App& command, DriveOptions& options);

struct DrivePlan {
  Drive drive;
  double budget = 0;  // Bytes per second; 0: not given.

  // Years that the drive lasts if the budget is always used up. None if the budget or the endurance
  // is not known.
  std::optional<double> life_years() const {
    if (budget <= 0 || drive.endurance_bytes <= 0) return std::nullopt;
    return LifeYears(drive, budget);
  }
  // How often the budget writes the whole drive in a day. REQUIRES: the capacity is above 0.
  double writes_per_day() const { return budget / OneWritePerDay(drive.capacity_bytes); }
};

// If the drive's size is not given, it is `tier_bytes`, the tier's size. REQUIRES: the options were
// parsed.
DrivePlan PlanDrive(const DriveOptions& options, double tier_bytes);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_PLAN_SIZE_DRIVE_OPTIONS_H_
