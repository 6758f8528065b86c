#include "server/http/health.h"

#include <gtest/gtest.h>

namespace pagoda::server {
namespace {

using Phase = ServingState::Phase;

constexpr absl::Duration kFree = absl::ZeroDuration();
constexpr absl::Duration kBusy = absl::Seconds(10);
constexpr absl::Duration kStuck = absl::Milliseconds(12'500);

TEST(HealthTest, ADrainEndsReadinessAndNotLife) {
  EXPECT_EQ(Readiness(Phase::kDraining, kFree).status, 503);
  EXPECT_EQ(Readiness(Phase::kDraining, kFree).body, "draining\n");
  EXPECT_EQ(Liveness(kFree).status, 200);
}

TEST(HealthTest, OnlyAServingDaemonIsReady) {
  EXPECT_EQ(Readiness(Phase::kStarting, kFree).status, 503);
  EXPECT_EQ(Readiness(Phase::kServing, kFree).status, 200);
}

TEST(HealthTest, AStuckCoreIsNeitherAliveNorReady) {
  EXPECT_EQ(Liveness(kBusy).status, 200);
  EXPECT_EQ(Liveness(kStuck).status, 503);
  EXPECT_EQ(Liveness(kStuck).body, "the core has not answered for 12s\n");
  EXPECT_EQ(Readiness(Phase::kServing, kBusy).status, 200);
  EXPECT_EQ(Readiness(Phase::kServing, kStuck).status, 503);
  EXPECT_EQ(Readiness(Phase::kServing, kStuck).body, Liveness(kStuck).body);
}

}  // namespace
}  // namespace pagoda::server
