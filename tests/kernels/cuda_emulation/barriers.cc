#include "tests/kernels/cuda_emulation/barriers.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/hopper/hopper.h"

namespace pagoda::kernels::cuda::emulation {
namespace {

constexpr uint32_t kMostBytes = (1u << 20) - 1;  // The most bytes that a phase can count.

// The 128 bytes of a box's row; zeros beyond the tensor.
void ReadRow(const TensorShape& shape, const uint32_t (&place)[4], uint32_t row,
             std::byte (&bytes)[kColumnRowBytes]) {
  std::memset(bytes, 0, sizeof(bytes));
  const uint32_t token = place[1] + row;
  if (token >= shape.tokens || place[2] >= shape.heads || place[3] >= shape.slots) return;
  if (place[0] >= shape.elements) return;
  const uint32_t elements = std::min(kColumnElements, shape.elements - place[0]);
  std::memcpy(bytes,
              shape.base + token * shape.token_stride_bytes + place[2] * shape.head_stride_bytes +
                  place[3] * shape.slot_stride_bytes + place[0] * uint64_t{2},
              elements * uint64_t{2});
}

}  // namespace

void Barriers::Init(uint32_t thread, uint32_t address, uint32_t arrivals) {
  if (!shared_.MakeBarrier(thread, address)) return;
  const auto index = static_cast<uint32_t>(barriers_.size());
  if (index >= kMostBarriers || arrivals == 0) {
    Report("a barrier of " + std::to_string(arrivals) + " arrivals, or one too many");
    return;
  }
  barriers_[address] = {.index = index,
                        .arrivals = arrivals,
                        .left = arrivals,
                        .maker = thread,
                        .made_epoch = ordering_.epoch(thread / kWarpLanes),
                        .arriving = {},
                        .ended = {}};
}

void Barriers::FenceInit(uint32_t thread) {
  for (auto& [address, barrier] : barriers_) {
    if (barrier.maker == thread) barrier.fenced = true;
  }
}

Barriers::Barrier* Barriers::Find(uint32_t thread, uint32_t address) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) {
    Report("there is no barrier at shared byte " + std::to_string(address - kSharedBase));
    return nullptr;
  }
  Barrier& barrier = found->second;
  const uint32_t known = ordering_.of(thread).over.times[barrier.maker / kWarpLanes];
  if (thread != barrier.maker && barrier.made_epoch >= known) {
    Report("a barrier's use races with thread " + std::to_string(barrier.maker) + ", who made it");
  }
  return &barrier;
}

void Barriers::Arrive(uint32_t thread, uint32_t address, uint32_t bytes) {
  Barrier* barrier = Find(thread, address);
  if (barrier == nullptr) return;
  if (barrier->left == 0) {
    Report("more arrivals at a barrier than its " + std::to_string(barrier->arrivals));
    return;
  }
  --barrier->left;
  barrier->bytes += bytes;
  if (barrier->bytes > kMostBytes) Report("a barrier's phase expects more bytes than it can count");
  barrier->arriving.Join(ordering_.of(thread));
  EndPhaseIfComplete(*barrier);
}

void Barriers::EndPhaseIfComplete(Barrier& barrier) {
  if (barrier.left > 0 || barrier.bytes != 0) return;
  barrier.ended.Join(barrier.arriving);
  barrier.arriving = {};
  barrier.left = barrier.arrivals;
  ++barrier.phase;
}

bool Barriers::Ended(uint32_t address, uint32_t parity) const {
  const auto found = barriers_.find(address);
  return found == barriers_.end() || found->second.phase % 2 != parity % 2;
}

void Barriers::Learn(uint32_t thread, uint32_t address) {
  Barrier* barrier = Find(thread, address);
  if (barrier == nullptr) return;
  ordering_.Learn(thread, barrier->ended);
  ordering_.LearnPhases(thread, barrier->index, barrier->phase);
}

void Barriers::StartBox(uint32_t thread, uint32_t shared, const TensorMap& map,
                        const uint32_t (&place)[4], uint32_t barrier) {
  Barrier* counter = Find(thread, barrier);
  if (counter == nullptr) return;
  if (!counter->fenced) Report("a box for a barrier that no FenceBarriers told of");
  if (shared % (8 * kColumnRowBytes) != 0) {
    Report("a box, swizzled over 1,024 bytes, to shared byte " +
           std::to_string(shared - kSharedBase));
  }
  BoxSource source;
  std::memcpy(&source, map.bytes, sizeof(source));
  for (uint32_t at = 0; at < source.shape.box_tokens * kColumnRowBytes; at += 16) {
    if (!shared_.BeginBox(thread, shared + at)) return;
  }
  boxes_.push_back({.shared = shared,
                    .shape = source.shape,
                    .place = {place[0], place[1], place[2], place[3]},
                    .barrier = barrier});
}

bool Barriers::EndBox(uint32_t choice) {
  if (boxes_.empty()) return false;
  const auto chosen = boxes_.begin() + choice % boxes_.size();
  const Box box = *chosen;
  boxes_.erase(chosen);
  Barrier& barrier = barriers_.at(box.barrier);
  for (uint32_t row = 0; row < box.shape.box_tokens; ++row) {
    std::byte bytes[kColumnRowBytes];
    ReadRow(box.shape, box.place, row, bytes);
    for (uint32_t chunk = 0; chunk < kColumnRowBytes / 16; ++chunk) {
      // The swizzle pattern depends on the address.
      const uint32_t plain = box.shared + row * kColumnRowBytes + chunk * 16;
      shared_.EndBox(plain ^ (plain >> 7 & 7u) << 4, bytes + chunk * 16, barrier.index,
                     barrier.phase);
    }
  }
  barrier.bytes -= box.shape.box_tokens * kColumnRowBytes;
  EndPhaseIfComplete(barrier);
  return true;
}

}  // namespace pagoda::kernels::cuda::emulation
