// An engine's pools in GPU memory, on the driver of tests/pools/fake_cuda: how this process's own
// are mapped, and what an engine that does not reach them says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/kv_file.h"
#include "engine/model/kv_pools.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "pools/check.h"
#include "pools/cuda/device.h"
#include "pools/error.h"
#include "pools/pool.h"
#include "tests/engine/golden.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class T>
T Require(absl::StatusOr<T> value) {
  PAGODA_CHECK(value.ok(), value.status().ToString().c_str());
  return *std::move(value);
}

class GpuPoolsTest : public testing::Test {
 protected:
  static constexpr uint32_t kBlocks = 6;

  GpuPoolsTest() {
    const CacheLayout layout =
        Require(CacheLayout::Create(Require(Engine::CacheSpecForModel(dir_, 16, DType::kFloat32))));
    const std::vector<uint32_t> primary(layout.windows().size(), kBlocks);
    PoolPlacement placement;
    placement.primary_device = Require(cuda::DescribeDevice(0)).place;
    pools_ = Require(PoolSet::Create(layout, {.primary = primary},
                                     "engine-gpu-test-" + std::to_string(getpid()), placement));
    manager_ = std::make_unique<SharedManager>(
        Require(BlockManager::Create({.layout = layout,
                                      .primary_blocks = primary,
                                      .secondary_blocks = {},
                                      .pool_mappings = pools_->Mappings(),
                                      .epoch = Epoch(1)})),
        &log_);
  }

  std::unique_ptr<CacheClient> OpenClient() {
    return Require(OpenLocalCacheClient(manager_.get(), "engine test", pools_.get()));
  }

  const std::string dir_ = GoldenDir(kTinyModel);
  std::unique_ptr<PoolSet> pools_;
  EventLog log_{EventLog::Limits{.max_events = 1 << 10}};
  std::unique_ptr<SharedManager> manager_;
};

TEST_F(GpuPoolsTest, LayersAreAtTheDevicesAddresses) {
  const auto client = OpenClient();
  const ModelConfig config = Require(LoadModelConfig(dir_));
  const KvPools pools = Require(KvPools::Map(*client, config));
  EXPECT_EQ(pools.place().kind, MemoryKind::kCuda);
  EXPECT_EQ(pools.place().device, 0);
  ASSERT_EQ(pools.layers().size(), config.layers.size());
  const PoolLayout layout = pools_->Mappings()[0].layout;
  for (size_t i = 1; i < pools.layers().size(); ++i) {
    EXPECT_EQ(pools.layers()[i].keys - pools.layers()[i - 1].keys, layout.layer_stride_bytes());
    EXPECT_EQ(pools.layers()[i].values - pools.layers()[i].keys, layout.kv_stride_bytes());
    EXPECT_EQ(pools.layers()[i].num_slots, kBlocks);
  }
  // What one mapping writes, the other one has: they are the same bytes, by the driver's copies.
  const auto ours = Require(client->MapPools(MemoryAccess::kReadWrite));
  const auto beside = Require(OpenClient()->MapPools(MemoryAccess::kRead));
  std::vector<std::byte> bytes(layout.slot_stride_bytes(), std::byte{7}), back(bytes.size());
  ASSERT_TRUE(ours[0]->WriteSlot(SlotIndex(3), bytes).ok());
  ASSERT_TRUE(beside[0]->ReadSlot(SlotIndex(3), absl::MakeSpan(back)).ok());
  EXPECT_EQ(back, bytes);
}

// Whoever does not own the pools has no name to map them by.
TEST_F(GpuPoolsTest, WithoutTheirOwnerTheyAreNotMapped) {
  const auto client = Require(OpenLocalCacheClient(manager_.get(), "engine test"));
  EXPECT_FALSE(client->MapPools(MemoryAccess::kRead).ok());
}

TEST_F(GpuPoolsTest, AnEngineOnTheCpuIsRefusedWithTheKeys) {
  const absl::Status on_cpu =
      Engine::Create({.model_dir = dir_, .backend = EngineBackend::kCpu}, OpenClient()).status();
  EXPECT_EQ(ReasonOf(on_cpu), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(on_cpu.message()),
              AllOf(HasSubstr("cache.primary_memory: host"), HasSubstr("engine.backend")));
  // The fake driver has memory and no kernels: CUDA's runtime finds no device there.
  const absl::Status automatic = Engine::Create({.model_dir = dir_}, OpenClient()).status();
  EXPECT_THAT(std::string(automatic.message()),
              AllOf(HasSubstr("in the memory of cuda:0"), HasSubstr("cannot compute there")));
}

TEST_F(GpuPoolsTest, FilesOfKvAreOfHostMemoryAlone) {
  const auto client = OpenClient();
  const KvPools pools = Require(KvPools::Map(*client, Require(LoadModelConfig(dir_))));
  const std::vector<TokenId> tokens = {1, 2, 3};
  EXPECT_EQ(SaveKv(*client, SequenceId(1), pools, {}, tokens, "/nowhere").status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(LoadKv(*client, SequenceId(1), pools, {}, "/nowhere").status().code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace pagoda
