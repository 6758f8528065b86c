#include "server/http/health.h"

#include <gtest/gtest.h>

namespace pagoda::server {
namespace {

using Phase = ServingState::Phase;

constexpr absl::Duration kFree = absl::ZeroDuration();
constexpr absl::Duration kBusy = absl::Seconds(10);
constexpr absl::Duration kStuck = absl::Milliseconds(12'500);
const ListenerWatch::Silence kHeard = {.listener = "", .time = absl::ZeroDuration()};

HttpResponse Readiness(Phase phase, absl::Duration core_waiting,
                       const ListenerWatch::Silence& silence) {
  return server::Readiness({.phase = phase, .core_waiting = core_waiting, .silence = silence});
}

TEST(HealthTest, ADrainEndsReadinessAndNotLife) {
  EXPECT_EQ(Readiness(Phase::kDraining, kFree, kHeard).status, 503);
  EXPECT_EQ(Readiness(Phase::kDraining, kFree, kHeard).body, "draining\n");
  EXPECT_EQ(Liveness(kFree).status, 200);
}

TEST(HealthTest, OnlyAServingDaemonIsReady) {
  EXPECT_EQ(Readiness(Phase::kStarting, kFree, kHeard).status, 503);
  EXPECT_EQ(Readiness(Phase::kServing, kFree, kHeard).status, 200);
}

TEST(HealthTest, AStartSaysHowFarItIs) {
  const HttpResponse starting =
      server::Readiness({.start = "starting: 41 % of 12288 MiB of memory are taken"});
  EXPECT_EQ(starting.status, 503);
  EXPECT_EQ(starting.body, "starting: 41 % of 12288 MiB of memory are taken\n");
}

TEST(HealthTest, AnEngineWhoseModelHasChangedIsNotReadyAndItsPathIsNoStrangersBusiness) {
  const HttpResponse unready = server::Readiness(
      {.phase = Phase::kServing, .engine = absl::DataLossError("/models/a: was cut")});
  EXPECT_EQ(unready.status, 503);
  EXPECT_EQ(unready.body, "a file of the engine's model has changed\n");
}

TEST(HealthTest, AStuckCoreIsNeitherAliveNorReady) {
  EXPECT_EQ(Liveness(kBusy).status, 200);
  EXPECT_EQ(Liveness(kStuck).status, 503);
  EXPECT_EQ(Liveness(kStuck).body, "the core has not answered for 12s\n");
  EXPECT_EQ(Readiness(Phase::kServing, kBusy, kHeard).status, 200);
  EXPECT_EQ(Readiness(Phase::kServing, kStuck, kHeard).status, 503);
  EXPECT_EQ(Readiness(Phase::kServing, kStuck, kHeard).body, Liveness(kStuck).body);
}

TEST(HealthTest, ADaemonWithASilentListenerIsNotReady) {
  const auto silent = [](absl::Duration time) {
    return ListenerWatch::Silence{.listener = "127.0.0.1:7070", .time = time};
  };
  EXPECT_EQ(Readiness(Phase::kServing, kFree, silent(absl::Seconds(10))).status, 200);
  const HttpResponse unready = Readiness(Phase::kServing, kFree, silent(absl::Seconds(11)));
  EXPECT_EQ(unready.status, 503);
  EXPECT_EQ(unready.body, "no connection has been accepted at 127.0.0.1:7070 for 11s\n");
  // A drain closes the listeners.
  EXPECT_EQ(Readiness(Phase::kDraining, kFree, silent(absl::Seconds(11))).body, "draining\n");
}

}  // namespace
}  // namespace pagoda::server
