#include "server/metrics/gpu_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "prometheus/text_serializer.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void Add(v1::GpuSelfTest& test, const std::string& part, const std::string& family,
         const std::string& outcome, double seconds) {
  v1::GpuSelfTest::Kernel& kernel = *test.add_kernels();
  kernel.set_part(part);
  kernel.set_family(family);
  kernel.set_needed(true);
  kernel.set_outcome(outcome);
  kernel.set_seconds(seconds);
}

std::string Text(const v1::GpuSelfTest& report) {
  return prometheus::TextSerializer().Serialize(CollectGpuReport(report));
}

TEST(GpuMetricsTest, AFamilyThatRunsIsOneAndTheOthersAreZero) {
  v1::GpuSelfTest report;
  Add(report, "attention_decode", "sm80", "right", 0.5);
  Add(report, "attention_decode", "hopper", "runs", 0.25);
  Add(report, "attention_decode", "generic", "wrong", 0);
  Add(report, "block_copy", "portable", "runs", 0);
  report.mutable_kernels(3)->set_needed(false);
  const std::string text = Text(report);
  const std::string prefix = R"(pagoda_engine_gpu_kernels{part="attention_decode",family=)";
  EXPECT_THAT(text, HasSubstr(prefix + R"("sm80",outcome="right"} 0)"));
  EXPECT_THAT(text, HasSubstr(prefix + R"("hopper",outcome="runs"} 1)"));
  EXPECT_THAT(text, HasSubstr(prefix + R"("generic",outcome="wrong"} 0)"));
  // Tested, but not used by the engine's steps.
  EXPECT_THAT(text, HasSubstr(R"({part="block_copy",family="portable",outcome="runs"} 0)"));
  const std::string seconds = R"(pagoda_engine_gpu_kernel_seconds{part="attention_decode",family=)";
  EXPECT_THAT(text, HasSubstr(seconds + R"("hopper"} 0.25)"));
  EXPECT_THAT(text, Not(HasSubstr(seconds + R"("generic")")));
}

// If one part has no usable kernel, the engine runs on the host and uses no GPU kernel.
TEST(GpuMetricsTest, WithAPartThatHasNothingNoneRuns) {
  v1::GpuSelfTest report;
  Add(report, "norm", "portable", "runs", 0);
  Add(report, "gate", "portable", "timeout", 0);
  report.mutable_problem()->set_message("no kernel for gate");
  const std::string text = Text(report);
  EXPECT_THAT(text, HasSubstr(R"({part="norm",family="portable",outcome="runs"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"({part="gate",family="portable",outcome="timeout"} 0)"));
}

}  // namespace
}  // namespace pagoda::server
