// Implements kernels/cuda/hopper/hopper.h on the host. See emulator.h.
#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_HOPPER_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_HOPPER_H_

#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/tensor_map.h"
#include "tests/kernels/cuda_emulation/emulator.h"

namespace pagoda::kernels::cuda {

PAGODA_DEVICE void InitBarrier(uint32_t barrier, uint32_t arrivals) {
  emulation::InitBarrier(barrier, arrivals);
}
PAGODA_DEVICE void FenceBarriers() { emulation::FenceBarriers(); }
PAGODA_DEVICE void Arrive(uint32_t barrier) { emulation::ArriveExpecting(barrier, 0); }
PAGODA_DEVICE void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  emulation::ArriveExpecting(barrier, bytes);
}
PAGODA_DEVICE void WaitFor(uint32_t barrier, uint32_t parity) {
  emulation::WaitFor(barrier, parity);
}
PAGODA_DEVICE void SyncSome(uint32_t id, uint32_t threads) { emulation::SyncSome(id, threads); }
PAGODA_DEVICE void ArriveSome(uint32_t id, uint32_t threads) { emulation::ArriveSome(id, threads); }

struct BoxPlace {
  uint32_t element;
  uint32_t token;
  uint32_t head;
  uint32_t slot;
};

PAGODA_DEVICE void PrefetchMap(const TensorMap&) {}
PAGODA_DEVICE void CopyBox(uint32_t shared, const TensorMap& map, const BoxPlace& place,
                           uint32_t barrier) {
  emulation::StartBox(shared, map, {place.element, place.token, place.head, place.slot}, barrier);
}

PAGODA_DEVICE void CopyBoxOnce(uint32_t shared, const TensorMap& map, const BoxPlace& place,
                               uint32_t barrier) {
  CopyBox(shared, map, place, barrier);
}

PAGODA_DEVICE void FenceAsync() { emulation::FenceAsync(); }

template <uint32_t kRegisters>
PAGODA_DEVICE void GiveUpRegisters() {
  emulation::SetRegisters(kRegisters, /*more=*/false);
}
template <uint32_t kRegisters>
PAGODA_DEVICE void TakeRegisters() {
  emulation::SetRegisters(kRegisters, /*more=*/true);
}

PAGODA_DEVICE void FenceProducts() {
  emulation::LaneData data;
  emulation::Collect("FenceProducts", data, [](emulation::LaneData*) {
    emulation::OfWarp([](emulation::Products& products, uint32_t warp) { products.Fence(warp); });
  });
}
PAGODA_DEVICE void CommitProducts() {
  emulation::LaneData data;
  emulation::Collect("CommitProducts", data, [](emulation::LaneData*) {
    emulation::OfWarp([](emulation::Products& products, uint32_t warp) { products.Commit(warp); });
  });
}
template <int kPending>
PAGODA_DEVICE void WaitForProducts() {
  emulation::LaneData data;
  emulation::Collect("WaitForProducts", data, [](emulation::LaneData*) {
    emulation::OfWarp(
        [](emulation::Products& products, uint32_t warp) { products.Wait(warp, kPending); });
  });
}
template <uint32_t kTiles>
PAGODA_DEVICE void PinRegisters(float (&)[kTiles][4]) {}
template <uint32_t kSteps>
PAGODA_DEVICE void PinRegisters(uint32_t (&)[kSteps][4]) {}
PAGODA_DEVICE uint32_t PinNumber(uint32_t number) { return number; }
PAGODA_DEVICE void ComputeFirst(const float (&weights)[2]) {
  if (weights[0] < 0 || weights[1] < 0) emulation::ReportProblem("a sum of weights is negative");
}

namespace emulation {

// Starts the product of the lanes' input: in[0..5] are the matrices and whether to add.
template <class T, uint32_t kTiles, bool kLeftInRegisters, bool kColumnsOfRight = kLeftInRegisters>
void StartProduct(LaneData* lanes) {
  Product product = {.to_float = [](uint16_t bits) { return ToFloat(T{bits}); },
                     .columns = kTiles * 8,
                     .add = lanes[0].in[4] != 0,
                     .left_in_registers = kLeftInRegisters,
                     .left = uint64_t{lanes[0].in[1]} << 32 | lanes[0].in[0],
                     .right = uint64_t{lanes[0].in[3]} << 32 | lanes[0].in[2],
                     .right_transposed = kColumnsOfRight,
                     .sums = {},
                     .registers = {}};
  for (uint32_t i = 0; i < kWarpLanes; ++i) {
    product.sums[i] = lanes[i].target;
    product.registers[i] = lanes[i].source;
    for (uint32_t w = 0; w < 5; ++w) {
      if (lanes[i].in[w] != lanes[0].in[w]) ReportProblem("lanes start different products");
    }
  }
  OfWarp([&product](Products& products, uint32_t warp) { products.Start(warp, product); });
}

}  // namespace emulation

template <class T, uint32_t kTiles>
PAGODA_DEVICE void MultiplyShared(float (&sums)[kTiles][4], uint64_t left, uint64_t right,
                                  bool add) {
  static_assert(kTiles == 4 || kTiles == 8 || kTiles == 16);
  emulation::LaneData data = {
      .in = {static_cast<uint32_t>(left), static_cast<uint32_t>(left >> 32),
             static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), add ? 1u : 0u},
      .target = &sums[0][0]};
  emulation::Collect("MultiplyShared", data, emulation::StartProduct<T, kTiles, false>);
}

template <class T, uint32_t kTiles>
PAGODA_DEVICE void MultiplyRegisters(float (&sums)[kTiles][4], const uint32_t (&left)[4],
                                     uint64_t right) {
  static_assert(kTiles == 8 || kTiles == 16);
  emulation::LaneData data = {
      .in = {0, 0, static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), 1u},
      .target = &sums[0][0],
      .source = left};
  emulation::Collect("MultiplyRegisters", data, emulation::StartProduct<T, kTiles, true>);
}

template <class T>
PAGODA_DEVICE void MultiplySharedColumns(float (&sums)[16][4], uint64_t left, uint64_t right) {
  emulation::LaneData data = {
      .in = {static_cast<uint32_t>(left), static_cast<uint32_t>(left >> 32),
             static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), 1u},
      .target = &sums[0][0]};
  emulation::Collect("MultiplySharedColumns", data,
                     emulation::StartProduct<T, 16, false, /*kColumnsOfRight=*/true>);
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_HOPPER_H_
