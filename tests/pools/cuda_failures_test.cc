// Tests that need the fake driver: failures, waits, and that nothing is leaked.
#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/error.h"
#include "pools/cuda/memory.h"
#include "pools/gpu_transfers/transfers.h"
#include "tests/pools/copy_model.h"
#include "tests/pools/device_pools.h"
#include "tests/pools/fake_cuda/fake_cuda.h"
#include "tests/pools/transfer_recorder.h"

namespace pagoda {
namespace {

using namespace copy_model;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kInFull = 1;  // The index of the window.
const SlotCounts kSlots = {.tiers = {{8, 8}, {8, 8}}};

// A control of the fake driver that pools/cuda has loaded.
template <class Function>
Function* Control(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s: this test runs on the fake driver alone\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}
#define FAKE(name) Control<decltype(::name)>(#name)

Order Copy(uint64_t ticket, SlotRef source, SlotRef target, Ticket after = Ticket(0)) {
  return {.ticket = Ticket(ticket),
          .window_index = kInFull,
          .source = source,
          .target = target,
          .num_tokens = kTokens,
          .after = {after, Ticket(0)}};
}
SlotRef Primary(uint32_t slot) { return {kPrimaryTier, SlotIndex(slot)}; }
SlotRef Lower(uint32_t slot) { return {Tier(1), SlotIndex(slot)}; }

class CudaFailuresTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto device = cuda::DescribeDevice(0);
    ASSERT_TRUE(device.ok()) << device.status();
    FAKE(fakeCudaReset)();
  }
  // Each test resets the fake driver.
  void TearDown() override {
    transfers_.reset();
    device_.reset();
    FAKE(fakeCudaReset)();
    const FakeCudaUse use = FAKE(fakeCudaUse)();
    EXPECT_EQ(use.allocated_bytes, 0u);
    EXPECT_EQ(use.mapped_bytes, 0u);
    EXPECT_EQ(use.reserved_bytes, 0u);
    EXPECT_EQ(use.registered_bytes, 0u);
    EXPECT_EQ(use.contexts, 0u);
    EXPECT_EQ(use.streams, 0u);
    EXPECT_EQ(use.events, 0u);
  }

  void Make(cuda::TransferOptions options = {}, Pinning pinning = Pinning::kRequired) {
    device_.emplace(TwoWindows(), kSlots, pinning);
    ASSERT_TRUE(device_->ok());
    device_->Fill([byte = 0]() mutable { return byte++ % 251; });
    auto transfers = cuda::MakeTransfers(&device_->pools(), options, recorder_.completion());
    ASSERT_TRUE(transfers.ok()) << transfers.status();
    transfers_ = *std::move(transfers);
  }
  // Submits, waits, and compares the bytes with those of a sequential execution of the orders.
  void RunAndCheck(const std::vector<Order>& orders) {
    Bytes expected = device_->Snapshot();
    for (const Order& order : orders) CopyInModel(device_->pools().layout(), order, expected);
    transfers_->Submit(orders);
    transfers_->WaitUntilIdle();
    EXPECT_EQ(device_->Snapshot(), expected);
  }
  // Up() behind another order, so that all of them become ready together.
  void RunBehindOne(uint32_t count, uint32_t step = 1) {
    Bytes expected = device_->Snapshot();
    std::vector<Order> orders = {Copy(++last_, Lower(7), Primary(7))};
    FAKE(fakeCudaHold)(1);
    transfers_->Submit(orders);
    Await([&] { return transfers_->stats().running >= 1; });
    const std::vector<Order> up = Up(count, step);
    transfers_->Submit(up);
    FAKE(fakeCudaHold)(0);
    transfers_->WaitUntilIdle();
    orders.insert(orders.end(), up.begin(), up.end());
    for (const Order& order : orders) CopyInModel(device_->pools().layout(), order, expected);
    EXPECT_EQ(device_->Snapshot(), expected);
  }
  std::vector<Order> Up(uint32_t count, uint32_t step = 1) {
    std::vector<Order> orders;
    for (uint32_t i = 0; i < count; ++i) {
      orders.push_back(Copy(++last_, Lower(i * step), Primary(i * step)));
    }
    return orders;
  }
  // Waits for a condition that becomes true soon or never.
  template <class Condition>
  void Await(Condition condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!condition()) {
      if (absl::Now() > deadline) {
        FAKE(fakeCudaHold)(0);
        FAIL() << "it did not come";
      }
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  uint64_t Calls(const char* name) { return FAKE(fakeCudaCalls)(name); }

  uint64_t last_ = 0;
  TransferRecorder recorder_;
  std::optional<DevicePools> device_;
  std::unique_ptr<Transfers> transfers_;
};

TEST_F(CudaFailuresTest, LateCopiesKeepTheirOrder) {
  const CacheLayout layout = TwoWindows();
  for (uint32_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    FAKE(fakeCudaDelay)(200, seed);
    DevicePools device(layout,
                       {.tiers = {{kPrimarySlots, kPrimarySlots}, {kLowerSlots, kLowerSlots}}});
    ASSERT_TRUE(device.ok());
    RandomOrders random(seed);
    device.Fill([&] { return random.Below(256); });
    std::vector<Order> orders;
    for (int i = 0; i < 150; ++i) orders.push_back(random.Next(layout));
    Bytes expected = device.Snapshot();
    for (const Order& order : orders) CopyInModel(layout, order, expected);
    TransferRecorder recorder;
    auto transfers = cuda::MakeTransfers(&device.pools(), {.max_batch_orders = 1 + seed % 3},
                                         recorder.completion());
    ASSERT_TRUE(transfers.ok()) << transfers.status();
    (*transfers)->Submit(orders);
    (*transfers)->WaitUntilIdle();
    EXPECT_EQ(device.Snapshot(), expected);
    CheckReports(orders, std::vector<bool>(orders.size()), recorder.completed());
  }
}

TEST_F(CudaFailuresTest, AFollowerOnAnotherStreamWaitsForAnEventAndNotForTheReport) {
  Make();
  FAKE(fakeCudaHold)(1);
  const uint64_t waits = Calls("cuStreamWaitEvent");
  const uint64_t records = Calls("cuEventRecord");
  Bytes expected = device_->Snapshot();
  const std::vector<Order> orders = {Copy(1, Primary(0), Lower(0)),
                                     Copy(2, Lower(1), Primary(0), Ticket(1))};
  for (const Order& order : orders) CopyInModel(device_->pools().layout(), order, expected);
  transfers_->Submit(orders);
  Await([&] { return Calls("cuEventRecord") >= records + 2; });
  EXPECT_EQ(Calls("cuStreamWaitEvent"), waits + 1);
  EXPECT_EQ(transfers_->stats().running, 2u);
  EXPECT_TRUE(recorder_.completed().empty());
  FAKE(fakeCudaHold)(0);
  transfers_->WaitUntilIdle();
  EXPECT_THAT(recorder_.completed_tickets(), ElementsAre(1, 2));
  EXPECT_EQ(device_->Snapshot(), expected);
}

TEST_F(CudaFailuresTest, TheHostsCopyWaitsForTheReportOfOneOnAStream) {
  Make();
  FAKE(fakeCudaHold)(1);
  const uint64_t records = Calls("cuEventRecord");
  const std::vector<Order> orders = {Copy(1, Primary(0), Lower(0)),
                                     Copy(2, Lower(0), Lower(1), Ticket(1)),
                                     Copy(3, Lower(1), Primary(0), Ticket(2))};
  Bytes expected = device_->Snapshot();
  for (const Order& order : orders) CopyInModel(device_->pools().layout(), order, expected);
  transfers_->Submit({orders[0]});
  Await([&] { return Calls("cuEventRecord") > records; });
  absl::SleepFor(absl::Milliseconds(20));  // Waits until the driver has the first one.
  transfers_->Submit({orders[1], orders[2]});
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(transfers_->stats().running, 1u);
  EXPECT_EQ(transfers_->stats().queued, 2u);
  FAKE(fakeCudaHold)(0);
  transfers_->WaitUntilIdle();
  EXPECT_EQ(device_->Snapshot(), expected);
  EXPECT_THAT(recorder_.completed_tickets(), ElementsAre(1, 2, 3));
}

TEST_F(CudaFailuresTest, WhatIsOneBatchIsOneCall) {
  Make({.max_running_batches = 1});
  const uint64_t single = Calls("cuMemcpyHtoDAsync");
  const uint64_t batched = Calls("cuMemcpyBatchAsync");
  RunBehindOne(7);
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync"), single);
  EXPECT_EQ(Calls("cuMemcpyBatchAsync"), batched + 2);
}

TEST_F(CudaFailuresTest, NeighboursAreOneCopy) {
  FAKE(fakeCudaSameAddresses)(0);  // Then the batched call is not used.
  Make({.max_running_batches = 1});
  const uint64_t single = Calls("cuMemcpyHtoDAsync");
  const uint64_t batched = Calls("cuMemcpyBatchAsync");
  RunBehindOne(7);
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync"), single + 2 + 2);  // Two pools.
  EXPECT_EQ(Calls("cuMemcpyBatchAsync"), batched);
  RunBehindOne(4, 2);
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync"), single + 4 + 2 + 4 * 2);
}

TEST_F(CudaFailuresTest, RowsThatTheDriverRefusesGoOneByOne) {
  FAKE(fakeCudaRefuseRowsWithin)(1);
  Make();
  const uint64_t single = Calls("cuMemcpyDtoDAsync");
  Order part = Copy(1, Primary(0), Primary(1));
  part.num_tokens = 3;
  RunAndCheck({part});
  EXPECT_TRUE(recorder_.completed()[0].second.ok());
  EXPECT_EQ(Calls("cuMemcpyDtoDAsync"), single + 2 * 2 + 2 * 1);  // Layer by K, V and heads.
}

TEST_F(CudaFailuresTest, ACallThatFailsFailsItsTicketAndNoOther) {
  Make();
  FAKE(fakeCudaFail)("cuMemcpyHtoDAsync", 0, CUDA_ERROR_INVALID_HANDLE);
  FAKE(fakeCudaFail)("cuMemcpyBatchAsync", 0, CUDA_ERROR_INVALID_HANDLE);
  transfers_->Submit({Copy(1, Lower(0), Primary(0))});
  transfers_->WaitUntilIdle();
  FAKE(fakeCudaReset)();
  RunAndCheck({Copy(2, Lower(1), Primary(0), Ticket(1))});
  const auto completed = recorder_.completed();
  ASSERT_EQ(completed.size(), 2u);
  EXPECT_THAT(completed[0].second.message(),
              AllOf(HasSubstr("cuMemcpy"), HasSubstr("CUDA_ERROR_INVALID_HANDLE")));
  EXPECT_TRUE(completed[1].second.ok()) << completed[1].second;
  EXPECT_EQ(transfers_->stats().failed, 1u);
}

TEST_F(CudaFailuresTest, AnEventThatCannotBeRecordedFailsItsTicketWhenTheCopyIsOver) {
  Make();
  FAKE(fakeCudaFail)("cuEventRecord", 1, CUDA_ERROR_INVALID_HANDLE);
  FAKE(fakeCudaHold)(1);
  const uint64_t synchronised = Calls("cuStreamSynchronize");
  transfers_->Submit({Copy(1, Lower(0), Primary(0))});
  Await([&] { return Calls("cuStreamSynchronize") > synchronised; });
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(recorder_.completed().empty()) << "the copy may still write";
  FAKE(fakeCudaHold)(0);
  transfers_->WaitUntilIdle();
  EXPECT_THAT(recorder_.completed()[0].second.message(), HasSubstr("cuEventRecord"));
  RunAndCheck({Copy(2, Primary(0), Lower(5), Ticket(1))});
  EXPECT_TRUE(recorder_.completed()[1].second.ok());
}

TEST_F(CudaFailuresTest, OfALostDeviceEveryTicketFailsAndNobodyWaits) {
  Make({.max_batch_orders = 1});
  FAKE(fakeCudaLoseDevice)(3, CUDA_ERROR_ILLEGAL_ADDRESS);
  transfers_->Submit(Up(8));
  transfers_->WaitUntilIdle();
  transfers_->Submit({Copy(100, Primary(0), Primary(1)), Copy(101, Primary(3), Lower(3)),
                      Copy(102, Lower(4), Lower(5))});
  transfers_->WaitUntilIdle();
  const auto completed = recorder_.completed();
  ASSERT_EQ(completed.size(), 11u);
  uint64_t failed = 0;
  for (const auto& [ticket, status] : completed) {
    failed += status.ok() ? 0 : 1;
    if (ticket == 100 || ticket == 101) {
      EXPECT_THAT(status.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
    if (ticket == 102) {
      EXPECT_TRUE(status.ok()) << "the host's copies go on: " << status;
    }
  }
  EXPECT_GE(failed, 7u);
  EXPECT_EQ(transfers_->stats().failed, failed);
  FAKE(fakeCudaReset)();  // Memory that a lost device has registered cannot be unregistered.
}

TEST_F(CudaFailuresTest, SubmitDoesNotWaitAndStopCancelsWhatTheDriverDoesNotHave) {
  Make({.max_batch_orders = 1, .max_running_batches = 2});
  FAKE(fakeCudaHold)(1);
  std::vector<Order> orders = Up(6);
  orders.push_back(Copy(++last_, Primary(0), Lower(7), Ticket(1)));  // Behind the first one.
  orders.push_back(Copy(++last_, Primary(5), Lower(6), Ticket(6)));  // Behind a waiting one.
  orders.push_back(Copy(++last_, Lower(7), Lower(6), Ticket(8)));
  transfers_->Submit(orders);
  Await([&] { return transfers_->stats().running >= 3; });
  absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(transfers_->stats().running, 3u);
  EXPECT_EQ(transfers_->stats().queued, 6u);
  std::thread stop([this] { transfers_->Stop(); });
  absl::SleepFor(absl::Milliseconds(10));
  FAKE(fakeCudaHold)(0);
  stop.join();
  const auto completed = recorder_.completed();
  ASSERT_EQ(completed.size(), orders.size());
  for (const auto& [ticket, status] : completed) {
    const bool with_driver = ticket <= 2 || ticket == 7;
    EXPECT_EQ(status.ok(), with_driver) << ticket << ": " << status;
    EXPECT_EQ(absl::IsCancelled(status), !with_driver) << ticket << ": " << status;
  }
  EXPECT_EQ(transfers_->stats().cancelled, 6u);
  std::vector<bool> fails(orders.size(), true);
  fails[0] = fails[1] = fails[6] = false;
  CheckReports(orders, fails, completed);
}

TEST_F(CudaFailuresTest, MemoryThatCannotBePinnedIsAnErrorOrAWarning) {
  FAKE(fakeCudaLimits)(uint64_t{64} << 20, 4096);
  const auto required = PoolSet::Create(TwoWindows(), kSlots, DevicePools::Instance(),
                                        DevicePools::Placement(Pinning::kRequired));
  EXPECT_EQ(ReasonOf(required.status()), Reason::kOutOfMemory) << required.status();
  EXPECT_THAT(required.status().message(),
              AllOf(HasSubstr("the secondary pool /pagoda-device-pools-"),
                    HasSubstr("cannot be pinned for cuda:0: cuMemHostRegister: "
                              "CUDA_ERROR_OUT_OF_MEMORY for bytes 0 to ")));
  EXPECT_EQ(FAKE(fakeCudaUse)().registered_bytes, 0u);
  Make({}, Pinning::kPreferred);
  EXPECT_EQ(ReasonOf(device_->pools().pinned()), Reason::kOutOfMemory);
  RunAndCheck(Up(8));
  for (const auto& [ticket, status] : recorder_.completed()) EXPECT_TRUE(status.ok()) << status;
}

TEST_F(CudaFailuresTest, AllOfAPoolIsPinnedOrNothing) {
  DevicePools device(TwoWindows(), kSlots, Pinning::kOff);
  ASSERT_TRUE(device.ok());
  SharedMemoryPool& pool = device.pools().pool(1, 0, Tier(1));
  const uint64_t bytes = pool.bytes().size();
  std::vector<uint64_t> done;
  const auto progress = [&](uint64_t so_far, uint64_t of) {
    done.push_back(so_far);
    EXPECT_EQ(of, bytes);
  };
  const uint64_t chunk = bytes / 4;
  FAKE(fakeCudaFail)("cuMemHostRegister", 3, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_THAT(pool.Pin({.chunk_bytes = chunk, .progress = progress}).message(),
              HasSubstr("CUDA_ERROR_OPERATING_SYSTEM"));
  EXPECT_EQ(FAKE(fakeCudaUse)().registered_bytes, 0u);
  EXPECT_EQ(pool.memory().pinned_chunk_bytes, 0u);
  EXPECT_THAT(done, ElementsAre(chunk, 2 * chunk));
  done.clear();
  EXPECT_TRUE(pool.Pin({.chunk_bytes = chunk, .progress = progress}).ok());
  EXPECT_THAT(done, ElementsAre(chunk, 2 * chunk, 3 * chunk));
  EXPECT_EQ(FAKE(fakeCudaUse)().registered_bytes, bytes);
  EXPECT_EQ(pool.memory().pinned_chunk_bytes, chunk);
}

TEST_F(CudaFailuresTest, MemoryThatIsNotThereIsNamedInBytes) {
  FAKE(fakeCudaLimits)(uint64_t{13} << 20, uint64_t{1} << 30);
  // Six pools of 2 MiB each fit, as the driver counts. The first pool of another set does not.
  DevicePools device(TwoWindows(), kSlots);
  ASSERT_TRUE(device.ok());
  const auto second =
      PoolSet::Create(TwoWindows(), kSlots, DevicePools::Instance(), DevicePools::Placement());
  EXPECT_EQ(ReasonOf(second.status()), Reason::kOutOfMemory);
  EXPECT_EQ(second.status().message(),
            "GPU memory of 2097152 bytes on CUDA device 0, where 1048576 of 13631488 are free");
}

TEST_F(CudaFailuresTest, WhateverStepFailsNothingIsLeft) {
  for (const char* call : {"cuDevicePrimaryCtxRetain", "cuMemCreate", "cuMemAddressReserve",
                           "cuMemMap", "cuMemSetAccess", "cuMemsetD8", "cuStreamSynchronize",
                           "cuMemHostRegister", "cuMemGetAllocationGranularity"}) {
    for (int nth = 1; nth <= 3; ++nth) {
      const PoolPlacement placement = DevicePools::Placement();
      FAKE(fakeCudaFail)(call, nth, CUDA_ERROR_LAUNCH_FAILED);
      const auto pools = PoolSet::Create(TwoWindows(), kSlots, DevicePools::Instance(), placement);
      EXPECT_FALSE(pools.ok()) << call << " " << nth;
      const FakeCudaUse use = FAKE(fakeCudaUse)();
      EXPECT_EQ(use.allocated_bytes + use.mapped_bytes + use.reserved_bytes + use.registered_bytes +
                    use.contexts,
                0u)
          << call << " " << nth;
    }
  }
  device_.emplace(TwoWindows(), kSlots);
  ASSERT_TRUE(device_->ok());
  for (int nth = 1; nth <= 3; ++nth) {
    FAKE(fakeCudaFail)("cuStreamCreate", nth, CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_FALSE(cuda::MakeTransfers(&device_->pools(), {}, recorder_.completion()).ok());
    EXPECT_EQ(FAKE(fakeCudaUse)().streams, 0u);
  }
}

TEST_F(CudaFailuresTest, MemoryIsZeroedAndWrittenWhenTheCallReturns) {
  FAKE(fakeCudaDelay)(20'000, /*seed=*/1);
  for (int round = 0; round < 5; ++round) {
    auto memory = cuda::Memory::Create(0, 3 << 20);
    EXPECT_EQ(FAKE(fakeCudaUse)().null_stream_work, 0u) << "behind the zeroing";
    ASSERT_TRUE(memory.ok()) << memory.status();
    ASSERT_TRUE(memory->Write(0, std::vector<std::byte>(1 << 20, std::byte{7})).ok());
    EXPECT_EQ(FAKE(fakeCudaUse)().null_stream_work, 0u) << "behind the write";
  }
}

TEST_F(CudaFailuresTest, AMappingForReadingDoesNotWrite) {
  device_.emplace(TwoWindows(), kSlots);
  ASSERT_TRUE(device_->ok());
  const auto readers = device_->Map(MemoryAccess::kRead);
  const std::vector bytes(readers[0]->mapping().layout.slot_stride_bytes(), std::byte{1});
  ASSERT_FALSE(readers[0]->on_host());
  EXPECT_FALSE(readers[0]->WriteSlot(SlotIndex(0), bytes).ok());
}

}  // namespace
}  // namespace pagoda
