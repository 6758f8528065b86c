// The choice of the primary tier's memory on different machines: a GPU that works, a GPU whose
// kernels give wrong results, no GPU.
#include "server/cache/primary_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace pagoda::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What the engine's program answers: its kernels are right, or they are wrong.
v1::GpuSelfTest Right() {
  v1::GpuSelfTest test;
  test.set_device("cuda:0, Fake");
  v1::GpuSelfTest::Kernel& kernel = *test.add_kernels();
  kernel.set_part("attention_decode");
  kernel.set_family("sm80");
  kernel.set_outcome("runs");
  return test;
}
v1::GpuSelfTest Wrong() {
  v1::GpuSelfTest test = Right();
  test.mutable_kernels(0)->set_outcome("wrong");
  test.mutable_problem()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  test.mutable_problem()->set_message(
      "attention_decode by sm80 is left out: wrong: its error is 0.7, above 0.01");
  return test;
}

// A machine with a GPU, and a daemon with a bundled engine.
class PrimaryMemoryTest : public testing::Test {
 protected:
  PrimaryMemoryTest() {
    config_.engine.model_dir = "/models/any";
    config_.cache.kv_dtype = DType::kBFloat16;
    config_.cache.tokens_per_block = 32;
    probes_.describe = [](int device) {
      return cuda::DeviceInfo{.place = {.kind = MemoryKind::kCuda, .device = device},
                              .name = "Fake",
                              .free_bytes = uint64_t{3} << 20,
                              .total_bytes = uint64_t{4} << 20};
    };
    probes_.self_test = [this](const GpuQuestion& options) {
      ++tests_;
      asked_ = options;
      return test_;
    };
  }

  absl::StatusOr<ChosenMemory> Choose() { return ChoosePrimaryMemory(config_, probes_); }

  Config config_;
  GpuProbes probes_;
  absl::StatusOr<v1::GpuSelfTest> test_ = Right();
  int tests_ = 0;
  GpuQuestion asked_;
};

TEST_F(PrimaryMemoryTest, AutoTakesAGpuWhoseKernelsAreRight) {
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_TRUE(chosen->device.has_value());
  EXPECT_EQ(chosen->what, "in GPU memory: cuda:0, Fake, with 3 of 4 MiB free");
  ASSERT_TRUE(chosen->gpu_report.has_value());
  EXPECT_EQ(chosen->gpu_report->SerializeAsString(), test_->SerializeAsString());
}

TEST_F(PrimaryMemoryTest, TheSelfTestIsThatOfTheEnginesModel) {
  config_.cache.device = 2;
  config_.engine.compute = ComputeType::kFloat32;
  ASSERT_TRUE(Choose().ok());
  EXPECT_EQ(asked_.model_dir, "/models/any");
  EXPECT_EQ(asked_.device, 2);
  EXPECT_EQ(asked_.kv_dtype, DType::kBFloat16);
  EXPECT_EQ(asked_.tokens_per_block, 32u);
  EXPECT_EQ(asked_.compute, ComputeType::kFloat32);
  EXPECT_EQ(asked_.attention, GpuAttention::kAuto);
}

TEST_F(PrimaryMemoryTest, AutoTakesTheHostWhereTheSelfTestLeavesNothing) {
  test_ = Wrong();
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_FALSE(chosen->device.has_value());
  EXPECT_THAT(chosen->what,
              AllOf(HasSubstr("in host memory: the daemon's own engine cannot compute on cuda:0"),
                    HasSubstr("attention_decode by sm80 is left out: wrong")));
  ASSERT_TRUE(chosen->gpu_report.has_value()) << "status and metrics tell of it";
  EXPECT_EQ(chosen->gpu_report->SerializeAsString(), test_->SerializeAsString());
}

TEST_F(PrimaryMemoryTest, AutoTakesTheHostWhereTheSelfTestCannotRun) {
  test_ = absl::InternalError("the process of the GPU's self-test was killed");
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_FALSE(chosen->device.has_value());
  EXPECT_THAT(chosen->what, HasSubstr("was killed"));
  EXPECT_FALSE(chosen->gpu_report.has_value());
}

// A configuration that names a GPU gets an error with the self-test's report.
TEST_F(PrimaryMemoryTest, AGpuThatIsAskedForByNameIsRefusedWithTheReport) {
  test_ = Wrong();
  const auto expect_refused = [&](const char* wish) {
    const absl::Status status = Choose().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(wish), HasSubstr("attention_decode by sm80 is left out: wrong: "
                                                 "its error is 0.7, above 0.01")));
  };
  config_.cache.primary_memory = PrimaryMemory::kCuda;
  expect_refused("cache.primary_memory is cuda");
  config_.cache.primary_memory = PrimaryMemory::kAuto;
  config_.engine.backend = EngineBackend::kCuda;
  expect_refused("engine.backend is cuda");
  config_.engine.backend = EngineBackend::kAuto;
  config_.engine.gpu_attention = GpuAttention::kHopper;
  expect_refused("engine.gpu_attention is hopper");
  test_ = MakeError(Reason::kInvalidCheckpoint, "no such model");
  EXPECT_EQ(ReasonOf(Choose().status()), Reason::kInvalidCheckpoint);
}

// Then the engine does not compute on the GPU.
TEST_F(PrimaryMemoryTest, WithoutAnEngineOnTheGpuNothingIsTested) {
  test_ = Wrong();
  config_.engine.backend = EngineBackend::kCpu;
  EXPECT_FALSE(Choose()->device.has_value());
  config_.engine.backend = EngineBackend::kAuto;
  config_.cache.primary_memory = PrimaryMemory::kHost;
  EXPECT_FALSE(Choose()->device.has_value());
  config_.cache.primary_memory = PrimaryMemory::kAuto;
  config_.engine.model_dir.clear();
  EXPECT_TRUE(Choose()->device.has_value());
  EXPECT_EQ(tests_, 0);
}

// For example without cuBLASLt. The engine reports the error if it has to run on the GPU.
TEST_F(PrimaryMemoryTest, WithoutABackendThereIsNoReport) {
  test_ = v1::GpuSelfTest();
  test_->set_no_backend(true);
  test_->mutable_problem()->set_code(static_cast<int>(absl::StatusCode::kFailedPrecondition));
  test_->mutable_problem()->set_message("no cuBLASLt");
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_FALSE(chosen->device.has_value());
  EXPECT_THAT(chosen->what, HasSubstr("no cuBLASLt"));
  EXPECT_FALSE(chosen->gpu_report.has_value());
  config_.cache.primary_memory = PrimaryMemory::kCuda;
  EXPECT_TRUE(Choose()->device.has_value());
}

TEST_F(PrimaryMemoryTest, WithoutADeviceAutoIsTheHostAndANameIsAnError) {
  probes_.describe = [](int) -> absl::StatusOr<cuda::DeviceInfo> {
    return absl::UnavailableError("no CUDA driver");
  };
  const auto chosen = Choose();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->what, "in host memory: no CUDA driver");
  config_.engine.backend = EngineBackend::kCuda;
  const absl::Status status = Choose().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("engine.backend is cuda, and cache.device 0 cannot be used"));
  EXPECT_EQ(tests_, 0);
}

}  // namespace
}  // namespace pagoda::server
