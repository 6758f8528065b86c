// How the options of a command name the drive of a tier on disk, and what they make of it.
#ifndef PAGODA_CLIENTS_PAGODACTL_DRIVE_OPTIONS_H_
#define PAGODA_CLIENTS_PAGODACTL_DRIVE_OPTIONS_H_

#include <optional>
#include <string>

#include "clients/pagodactl/drive_life.h"

namespace CLI {
class App;
}

namespace pagoda {

struct DriveOptions {
  std::string write_budget;  // As they were given; empty: none.
  std::string size;
  std::string terabytes_written;
  double writes_per_day = 0;  // 0: it was not given.
  double years = 5;

  // Whether anything is said of the drive.
  bool given() const {
    return !write_budget.empty() || !size.empty() || !terabytes_written.empty() ||
           writes_per_day > 0;
  }
};

// Adds --write-budget, --drive-size, --drive-tbw, --drive-dwpd and --drive-years. `options`
// outlives the parser.
void AddDriveOptions(CLI::App& command, DriveOptions& options);

struct DrivePlan {
  Drive drive;
  double budget = 0;  // Bytes a second; 0: none was given.

  // Years that the drive lasts if the budget is used up all the time; none where the budget or the
  // endurance is not known.
  std::optional<double> life_years() const {
    if (budget <= 0 || drive.endurance_bytes <= 0) return std::nullopt;
    return LifeYears(drive, budget);
  }
  // Of the whole drive, under the budget. REQUIRES: the capacity is above 0.
  double writes_per_day() const { return budget / OneWritePerDay(drive.capacity_bytes); }
};

// A drive whose size is not given is as large as its tier, `tier_bytes`. REQUIRES: the options were
// parsed.
DrivePlan PlanDrive(const DriveOptions& options, double tier_bytes);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_DRIVE_OPTIONS_H_
