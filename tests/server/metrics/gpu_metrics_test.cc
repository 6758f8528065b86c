#include "server/metrics/gpu_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "prometheus/text_serializer.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GpuKernelResult Result(const std::string& part, const std::string& family, GpuOutcome outcome,
                       double seconds) {
  return {.part = part,
          .family = family,
          .outcome = outcome,
          .error = 0,
          .tolerance = 0.01,
          .seconds = seconds,
          .why = ""};
}

std::string Text(const GpuSelfTestReport& report) {
  return prometheus::TextSerializer().Serialize(CollectGpuReport(report));
}

TEST(GpuMetricsTest, AFamilyThatRunsIsOneAndTheOthersAreZero) {
  GpuSelfTestReport report{
      .device = "cuda:0",
      .results = {Result("attention_decode", "sm80", GpuOutcome::kRight, 0.5),
                  Result("attention_decode", "hopper", GpuOutcome::kRight, 0.25),
                  Result("attention_decode", "generic", GpuOutcome::kWrong, 0),
                  Result("block_copy", "portable", GpuOutcome::kRight, 0)}};
  report.results[3].needed = false;
  report.Choose();
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
  GpuSelfTestReport report{.device = "cuda:0",
                           .results = {Result("norm", "portable", GpuOutcome::kRight, 0),
                                       Result("gate", "portable", GpuOutcome::kTimeout, 0)}};
  report.Choose();
  const std::string text = Text(report);
  EXPECT_THAT(text, HasSubstr(R"({part="norm",family="portable",outcome="runs"} 0)"));
  EXPECT_THAT(text, HasSubstr(R"({part="gate",family="portable",outcome="timeout"} 0)"));
}

}  // namespace
}  // namespace pagoda::server
