// The self-test in separate processes. Scripts replace the program that tests. A family that hangs
// or dies is left out, and the others are tested.
#include "engine/gpu_self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "engine/model/cuda/cuda_backend.h"
#include "tests/engine/fixtures/golden.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuSelfTestProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("pagoda-self-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The program, which is started with "--gpu-self-test" and the request. `known` checks whether
  // the request has such a family; `begin` and `end` report one.
  absl::StatusOr<GpuSelfTestReport> Run(const std::string& script) {
    const std::string path = folder_ / "program";
    std::ofstream(path) << "#!/bin/sh\n"
                           "echo x >> "
                        << (folder_ / "starts").string()
                        << "\n[ \"$1\" = --gpu-self-test ] || exit 9\n"
                           "request=$2\n"
                           "known() { case \"$request\" in *\\\"$1\\\"*) return 0;; esac; "
                           "return 1; }\n"
                           "begin() { printf "
                           "'{\"family\":{\"part\":\"%s\",\"family\":\"%s\",\"needed\":true,"
                           "\"outcome\":\"running\"}}\\n' $1 $2; }\n"
                           "end() { printf "
                           "'{\"family\":{\"part\":\"%s\",\"family\":\"%s\",\"needed\":true,"
                           "\"outcome\":\"%s\",\"error\":0.001,\"tolerance\":0.01,"
                           "\"seconds\":%s,\"why\":\"\"}}\\n' $1 $2 $3 $4; }\n"
                           "all() { echo '{\"end\":{\"device\":\"cuda:1, a script\","
                           "\"all_tested\":true}}'; }\n"
                        << script;
    chmod(path.c_str(), 0755);
    return TestGpu({.model_dir = GoldenDir(kTinyModel),
                    .device = 1,
                    .tokens_per_block = 16,
                    .program = path,
                    .start_timeout = absl::Seconds(20),
                    .family_timeout = absl::Seconds(1)});
  }

  // How often the program was started.
  size_t Starts() const { return std::filesystem::file_size(folder_ / "starts") / 2; }

  std::filesystem::path folder_;
};

TEST_F(GpuSelfTestProcessTest, OneProcessTellsOfAll) {
  const auto report =
      Run("begin attention_decode sm80; end attention_decode sm80 right 0.002\n"
          "echo a line of some library; echo '{\"another\": 1}'\n"
          "begin attention_decode hopper; end attention_decode hopper right 0.001\n"
          "all\n");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->device, "cuda:1, a script");
  ASSERT_EQ(report->results.size(), 2u);
  EXPECT_EQ(report->results[0].outcome, GpuOutcome::kRight);
  EXPECT_EQ(report->results[1].outcome, GpuOutcome::kRuns);
  EXPECT_EQ(report->attention().decode, kernels::cuda::AttentionKernels::kHopper);
  EXPECT_DOUBLE_EQ(report->results[0].tolerance, 0.01);
  EXPECT_TRUE(report->Check().ok());
  EXPECT_EQ(Starts(), 1u);
}

TEST_F(GpuSelfTestProcessTest, AFamilyThatHangsIsLeftOutAndTheOthersAreTested) {
  const auto report =
      Run("known sm80 || { begin attention_decode sm80; end attention_decode sm80 right 0.002; }\n"
          "known hopper || { begin attention_decode hopper; exec sleep 100; }\n"
          "begin norm portable; end norm portable right 0\n"
          "all\n");
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->results.size(), 3u);
  EXPECT_EQ(report->results[0].outcome, GpuOutcome::kRuns);
  EXPECT_EQ(report->results[1].outcome, GpuOutcome::kTimeout);
  EXPECT_EQ(report->results[1].why, "its process did not end in 1s");
  EXPECT_EQ(report->results[2].outcome, GpuOutcome::kRuns);
  EXPECT_TRUE(report->Check().ok()) << report->Check();
  EXPECT_EQ(Starts(), 2u);
}

TEST_F(GpuSelfTestProcessTest, AFamilyThatDiesIsLeftOutAndTheOthersAreTested) {
  const auto report =
      Run("known hopper || { begin attention_decode hopper; kill -SEGV $$; }\n"
          "known sm80 || { begin attention_decode sm80; exit 3; }\n"
          "begin attention_decode generic; end attention_decode generic right 0\n"
          "all\n");
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->results.size(), 3u);
  EXPECT_EQ(report->results[0].outcome, GpuOutcome::kFailed);
  EXPECT_THAT(report->results[0].why, HasSubstr("its process was killed by signal 11"));
  EXPECT_EQ(report->results[1].outcome, GpuOutcome::kFailed);
  EXPECT_EQ(report->results[1].why, "its process ended with status 3");
  EXPECT_EQ(report->attention().decode, kernels::cuda::AttentionKernels::kGeneric);
  EXPECT_EQ(Starts(), 3u);
}

// The output of a process that lost its device: the next process has a working one.
TEST_F(GpuSelfTestProcessTest, WhatALostDeviceLeavesIsTestedByTheNextProcess) {
  const auto report =
      Run("known hopper || { begin attention_decode hopper; end attention_decode hopper failed 0\n"
          "echo '{\"end\":{\"device\":\"cuda:1\",\"all_tested\":false}}'; exit; }\n"
          "begin attention_decode sm80; end attention_decode sm80 right 0.1\n"
          "all\n");
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->results.size(), 2u);
  EXPECT_EQ(report->results[0].outcome, GpuOutcome::kFailed);
  EXPECT_EQ(report->results[1].outcome, GpuOutcome::kRuns);
  EXPECT_EQ(Starts(), 2u);
}

TEST_F(GpuSelfTestProcessTest, AProcessThatTestsNothingIsAnError) {
  const absl::Status died = Run("exit 7\n").status();
  EXPECT_EQ(died.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(died.message()), HasSubstr("ended with status 7 before it had tested"));
  EXPECT_EQ(Starts(), 1u);
  // Also if an earlier one did.
  const absl::Status later = Run("known norm && exit 7\n"
                                 "begin norm portable; end norm portable right 0\n")
                                 .status();
  EXPECT_EQ(later.code(), absl::StatusCode::kInternal);
}

TEST_F(GpuSelfTestProcessTest, AnErrorOfTheProcessIsTheErrorOfTheTest) {
  const absl::Status status =
      Run("echo '{\"error\":{\"code\":14,\"reason\":\"\",\"message\":\"no CUDA device\"}}'\n")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "no CUDA device");
  const absl::Status named =
      Run("echo '{\"error\":{\"code\":3,\"reason\":\"INVALID_CHECKPOINT\",\"message\":\"no\"}}'\n")
          .status();
  EXPECT_EQ(ReasonOf(named), Reason::kInvalidCheckpoint);
}

TEST_F(GpuSelfTestProcessTest, AProgramThatIsNotThereIsAnError) {
  const absl::Status status =
      TestGpu(
          {.model_dir = GoldenDir(kTinyModel), .tokens_per_block = 16, .program = folder_ / "none"})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("could not be started"), HasSubstr("No such file")));
}

// Output without end does not fill this process's memory.
TEST_F(GpuSelfTestProcessTest, EndlessOutputIsCutOff) {
  const absl::Status status = Run("exec yes\n").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

TEST(GpuSelfTestTest, WithoutAGpuItSaysWhatTheBackendSays) {
  const absl::Status usable = CheckCudaBackend(0);
  if (usable.ok()) GTEST_SKIP() << "there is a GPU: tests/gpu";
  const absl::StatusOr<GpuSelfTestReport> report =
      TestGpu({.model_dir = GoldenDir(kTinyModel), .tokens_per_block = 16, .program = ""});
  EXPECT_EQ(report.status(), usable);
}

TEST(GpuSelfTestTest, AModelThatIsNoneIsAnError) {
  const absl::Status status =
      TestGpu({.model_dir = "/nowhere", .tokens_per_block = 16, .program = ""}).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint);
}

// An invalid request is refused before the program searches for a device.
TEST(GpuSelfTestTest, ARequestThatIsNoneIsRefused) {
  std::string program = "program", flag = "--gpu-self-test", request = "[]";
  char* argv[] = {program.data(), flag.data(), request.data(), nullptr};
  EXPECT_EQ(GpuSelfTestMain(3, argv), 2);
}

}  // namespace
}  // namespace pagoda
