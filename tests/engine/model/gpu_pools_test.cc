// An engine's pools in GPU memory, on the driver of tests/pools/fake_cuda: how this process maps
// its own pools, and the errors of an engine that does not reach them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/kv_file.h"
#include "engine/model/kv/kv_pools.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "pools/cuda/device.h"
#include "pools/pool.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuPoolsTest : public testing::Test {
 protected:
  static constexpr uint32_t kBlocks = 6;

  GpuPoolsTest() {
    const CacheLayout layout =
        Require(CacheLayout::Create(Require(Engine::CacheSpecForModel(dir_, 16, DType::kFloat32))));
    const std::vector<uint32_t> primary(layout.windows().size(), kBlocks);
    PoolPlacement placement;
    placement.primary_device = Require(cuda::DescribeDevice(0)).place;
    pools_ = Require(PoolSet::Create(layout, {.tiers = {primary}},
                                     "engine-gpu-test-" + std::to_string(getpid()), placement));
    manager_ = std::make_unique<SharedManager>(
        Require(BlockManager::Create({.layout = layout,
                                      .tiers = HostTiers(primary),
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
  // One mapping has the bytes that the other one writes: they are the same memory, by the driver's
  // copies.
  const auto ours = Require(client->MapPools(MemoryAccess::kReadWrite));
  const auto beside = Require(OpenClient()->MapPools(MemoryAccess::kRead));
  std::vector<std::byte> bytes(layout.slot_stride_bytes(), std::byte{7}), back(bytes.size());
  ASSERT_TRUE(ours[0]->WriteSlot(SlotIndex(3), bytes).ok());
  ASSERT_TRUE(beside[0]->ReadSlot(SlotIndex(3), absl::MakeSpan(back)).ok());
  EXPECT_EQ(back, bytes);
}

// A process that does not own the pools has no name to map them by.
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

// A file of pools on a device equals a file of pools on the host.
TEST_F(GpuPoolsTest, KvGoesToAFileAndIntoOtherPools) {
  const ModelConfig config = Require(LoadModelConfig(dir_));
  const std::string path = testing::TempDir() + "/" + std::to_string(getpid()) + "-gpu-kv";
  const auto bytes_of = [](const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const auto client = OpenClient();
  const KvPools pools = Require(KvPools::Map(*client, config));
  // Two blocks and a half of random bytes, written by the client that computes them.
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < 40; ++token) tokens.push_back(token * 7 % 500);
  const AddedSequence added = Require(RunOne<AddedSequence>(
      *client, AddSequence{.sequence = SequenceId(5), .tokens = tokens, .reserved_tokens = 40}));
  std::mt19937 random(2);
  for (const auto& pool : Require(client->MapPools(MemoryAccess::kReadWrite))) {
    std::vector<std::byte> slot(pool->mapping().layout.slot_stride_bytes());
    for (const BlockHandle& block : added.tables[0].blocks) {
      for (std::byte& byte : slot) byte = static_cast<std::byte>(random());
      ASSERT_TRUE(pool->WriteSlot(block.slot, slot).ok());
    }
  }
  ASSERT_TRUE(RunOne<CommittedTokens>(
                  *client, CommitTokens{.sequence = SequenceId(5), .computed_tokens = 40})
                  .ok());
  ASSERT_TRUE(RunOne<FreedSequence>(*client, FreeSequence{SequenceId(5)}).ok());
  const KvFileReport saved = Require(SaveKv(*client, SequenceId(1), pools, {}, tokens, path));
  EXPECT_EQ(saved.tokens, 40u);
  EXPECT_EQ(saved.bytes, bytes_of(path).size());

  TestCache on_host(Require(Engine::CacheSpecForModel(dir_, 16, DType::kFloat32)),
                    {.primary_blocks = kBlocks});
  const auto other = on_host.OpenClient();
  const KvPools host_pools = Require(KvPools::Map(*other, config));
  EXPECT_EQ(Require(LoadKv(*other, SequenceId(1), host_pools, {}, path)).tokens, 40u);
  Require(SaveKv(*other, SequenceId(2), host_pools, {}, tokens, path + "-host"));
  EXPECT_EQ(bytes_of(path + "-host"), bytes_of(path));

  // Back into the GPU's pools, in another namespace. The cached KV of the same tokens in the first
  // namespace is not reused.
  const NamespaceKey salted = {.cache_salt = "other"};
  EXPECT_EQ(Require(LoadKv(*client, SequenceId(1), pools, salted, path + "-host")).tokens, 40u);
  Require(SaveKv(*client, SequenceId(2), pools, salted, tokens, path + "-back"));
  EXPECT_EQ(bytes_of(path + "-back"), bytes_of(path));
  for (const char* end : {"", "-host", "-back"}) std::filesystem::remove(path + end);
}

}  // namespace
}  // namespace pagoda
