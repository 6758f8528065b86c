// The disk of a world: the core's orders, the reports to it, and the blocks that a restart finds on
// it.
#ifndef PAGODA_TESTS_SIM_DISK_STEPS_H_
#define PAGODA_TESTS_SIM_DISK_STEPS_H_

#include <cstdint>
#include <vector>

#include "tests/sim/world.h"

namespace pagoda::sim {

// Takes the orders of a call. Called before the call's events are applied: they can say that a
// block has left since.
void NoteFiles(World& world, const std::vector<Order>& commands, const Scope& scope);
// Checks the orders after the call's events.
void CheckFiles(World& world, const std::vector<Order>& commands);
// Backups that the end of a copy should have ordered, and did not.
void FollowDroppedBackups(World& world, uint32_t window);
// Gives up the fetches whose deadline is over. Returns whether there were any.
bool ExpireFetches(World& world);

// A step of the disk, between two operations: some of its commands end.
void DiskStep(World& world, uint32_t index);
// Ends everything that is on its way.
void FinishDisk(World& world);

// After a restart, reports to the core the blocks that were found on disk.
void RestoreDisk(World& world, const std::vector<RecoveredWindow>& windows);

// Stops the run if a slot of the file is not what the core and the carrier think.
void CheckDisk(World& world, uint32_t window);

}  // namespace pagoda::sim

#endif  // PAGODA_TESTS_SIM_DISK_STEPS_H_
