// The kernels that a report chooses, and its errors if some are missing.
#include "engine/model/backend/gpu_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pagoda {
namespace {

using kernels::cuda::AttentionKernels;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

GpuKernelResult Right(const std::string& part, const std::string& family, double seconds) {
  return {.part = part,
          .family = family,
          .outcome = GpuOutcome::kRight,
          .error = 0.002,
          .tolerance = 0.01,
          .seconds = seconds,
          .why = ""};
}
GpuKernelResult Wrong(const std::string& part, const std::string& family) {
  return {.part = part,
          .family = family,
          .outcome = GpuOutcome::kWrong,
          .error = 0.5,
          .tolerance = 0.01,
          .seconds = 1e-9,
          .why = "its error is 0.5, above 0.01"};
}

// The running family of each part.
std::vector<std::string> Chosen(std::vector<GpuKernelResult> results) {
  GpuSelfTestReport report{.device = "", .results = std::move(results)};
  report.Choose();
  std::vector<std::string> families;
  for (const GpuKernelResult& result : report.results) {
    if (result.outcome == GpuOutcome::kRuns) families.push_back(result.family);
  }
  return families;
}
using Names = std::vector<std::string>;

TEST(GpuReportTest, TheFastestThatIsRightRuns) {
  EXPECT_EQ(Chosen({Right("a", "sm80", 2e-5), Right("a", "hopper", 1e-5)}), Names{"hopper"});
  EXPECT_EQ(Chosen({Right("a", "sm80", 1e-5), Right("a", "hopper", 2e-5)}), Names{"sm80"});
  EXPECT_EQ(Chosen({Right("a", "sm80", 1e-5), Wrong("a", "hopper")}), Names{"sm80"});
  EXPECT_EQ(Chosen({Wrong("a", "sm80"), Right("a", "hopper", 2e-5)}), Names{"hopper"});
  EXPECT_EQ(Chosen({Wrong("a", "sm80"), Wrong("a", "hopper")}), Names());
}

// The first family stays unless another one is faster by more than noise.
TEST(GpuReportTest, EquallyFastOnesAreTakenInTheirOrder) {
  EXPECT_EQ(Chosen({Right("a", "sm80", 1e-5), Right("a", "hopper", 1e-5)}), Names{"sm80"});
  EXPECT_EQ(Chosen({Right("a", "sm80", 1e-5), Right("a", "hopper", 0.96e-5)}), Names{"sm80"});
  EXPECT_EQ(Chosen({Right("a", "sm80", 1e-5), Right("a", "hopper", 0.94e-5)}), Names{"hopper"});
}

TEST(GpuReportTest, WhatIsNotTimedComesBehindWhatIs) {
  EXPECT_EQ(Chosen({Right("a", "sm80", 1), Right("a", "generic", 0)}), Names{"sm80"});
  EXPECT_EQ(Chosen({Right("a", "one", 0), Right("a", "other", 1)}), Names{"other"});
  EXPECT_EQ(Chosen({Wrong("a", "sm80"), Right("a", "generic", 0)}), Names{"generic"});
}

TEST(GpuReportTest, EachPartHasItsOwn) {
  EXPECT_EQ(Chosen({Right("a", "sm80", 1), Right("a", "hopper", 2), Right("b", "sm80", 2),
                    Right("b", "hopper", 1)}),
            (Names{"sm80", "hopper"}));
}

// Choose can run again on a report.
TEST(GpuReportTest, ChoosingTwiceIsChoosingOnce) {
  GpuSelfTestReport report{.device = "cuda:0",
                           .results = {Right("a", "sm80", 2), Right("a", "hopper", 1)}};
  report.Choose();
  const GpuSelfTestReport once = report;
  report.Choose();
  EXPECT_EQ(report, once);
}

TEST(GpuReportTest, AttentionIsWhatRunsForDecodeAndPrefill) {
  GpuSelfTestReport report{
      .device = "cuda:0",
      .results = {Right(kAttentionDecode, kFamilySm80, 1), Right(kAttentionPrefill, "sm80", 2),
                  Right(kAttentionPrefill, kFamilyHopper, 1)}};
  EXPECT_EQ(report.attention(), AttentionChoice()) << "nothing is chosen yet";
  report.Choose();
  EXPECT_EQ(report.attention(), (AttentionChoice{.decode = AttentionKernels::kSm80,
                                                 .prefill = AttentionKernels::kHopper}));
  report.results = {Right(kAttentionDecode, kFamilyGeneric, 0)};
  report.Choose();
  EXPECT_EQ(report.attention(), (AttentionChoice{.decode = AttentionKernels::kGeneric,
                                                 .prefill = AttentionKernels::kAuto}));
}

TEST(GpuReportTest, ACheckNamesTheNeededPartsThatHaveNothing) {
  GpuSelfTestReport report{.device = "cuda:3, NVIDIA X",
                           .results = {Right("norm", "portable", 0), Wrong("gate", "portable"),
                                       Wrong("block_copy", "portable")}};
  report.results[2].needed = false;
  report.Choose();
  const absl::Status status = report.Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cuda:3, NVIDIA X"),
                    HasSubstr("gate by portable is left out: wrong: its error is 0.5"),
                    Not(HasSubstr("norm")), Not(HasSubstr("block_copy"))));
  report.results.erase(report.results.begin() + 1);
  EXPECT_TRUE(report.Check().ok()) << report.Check();
}

TEST(GpuReportTest, AReportOfNothingProvesNothing) {
  EXPECT_FALSE(GpuSelfTestReport().Check().ok());
  GpuSelfTestReport report{.device = "", .results = {Right("block_copy", "portable", 0)}};
  report.results[0].needed = false;
  report.Choose();
  EXPECT_FALSE(report.Check().ok());
}

TEST(GpuReportTest, OutcomesHaveNames) {
  for (const GpuOutcome outcome :
       {GpuOutcome::kRunning, GpuOutcome::kRuns, GpuOutcome::kRight, GpuOutcome::kWrong,
        GpuOutcome::kFailed, GpuOutcome::kUnsupported, GpuOutcome::kTimeout}) {
    EXPECT_EQ(GpuOutcomeFromName(GpuOutcomeName(outcome)), outcome);
  }
  EXPECT_EQ(GpuOutcomeFromName("no such name"), GpuOutcome::kFailed);
}

TEST(GpuReportTest, AFamilyIsASentence) {
  GpuKernelResult result = Right("attention_decode", "hopper", 12.5e-6);
  EXPECT_EQ(Describe(result),
            "attention_decode by hopper is right but not chosen: 12.5 us, error 0.002 of 0.01");
  result.outcome = GpuOutcome::kRuns;
  result.seconds = 0;
  EXPECT_EQ(Describe(result), "attention_decode by hopper runs: error 0.002 of 0.01");
  result.outcome = GpuOutcome::kTimeout;
  result.why = "its process did not end in 10s";
  EXPECT_EQ(Describe(result),
            "attention_decode by hopper is left out: timeout: its process did not end in 10s");
}

}  // namespace
}  // namespace pagoda
