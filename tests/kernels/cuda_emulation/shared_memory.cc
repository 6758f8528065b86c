#include "tests/kernels/cuda_emulation/shared_memory.h"

#include <cstring>
#include <utility>

#include "tests/kernels/cuda_emulation/emulator.h"

namespace pagoda::kernels::cuda::emulation {
namespace {

constexpr uint32_t kNoThread = ~uint32_t{0};
constexpr uint32_t WarpOf(uint32_t thread) { return thread / kWarpLanes; }
constexpr size_t WordOf(uint32_t address) { return (address - kSharedBase) / 4; }

}  // namespace

// All bits set is NaN in each type.
SharedMemory::SharedMemory(uint32_t bytes, uint32_t warps, Ordering& ordering, Reporter report)
    : warps_(warps),
      bytes_(bytes, std::byte{0xff}),
      words_((bytes + 3) / 4),
      reads_(words_.size() * warps, 0),
      ordering_(ordering),
      report_(std::move(report)) {}

void SharedMemory::Report(const char* what, uint32_t address, const std::string& text) {
  report_(std::string(what) + " at shared byte " + std::to_string(address - kSharedBase) + " " +
          text);
}

bool SharedMemory::Check(const char* what, uint32_t address, uint32_t bytes) {
  if (address < kSharedBase || uint64_t{address} - kSharedBase + bytes > bytes_.size()) {
    Report(what, address, "outside of " + std::to_string(bytes_.size()));
    return false;
  }
  if (address % bytes != 0) {
    Report(what, address, "not aligned to " + std::to_string(bytes));
    return false;
  }
  return true;
}

// `thread`: the reading thread, or kNoThread for a product of a warp.
void SharedMemory::CheckRead(const char* what, uint32_t thread, const Knowledge& knowledge,
                             uint32_t address, const Word& word) {
  if (word.is_barrier) Report(what, address, "of a barrier");
  if (word.copier != kNobody) {
    Report(what, address,
           word.copier == kBox ? "of what a box brings, which is still on its way"
                               : "of what a copy of thread " + std::to_string(word.copier) +
                                     " brings, which has not waited for it");
  }
  if (word.writer == kNobody) return;
  if (word.writer == kBox) {
    if (knowledge.over.times[kMostWarps + word.barrier] <= word.write_epoch) {
      Report(what, address, "of what a box brought, for whose barrier it has not waited");
    }
    return;
  }
  if (word.writer == thread) return;
  const uint32_t warp = WarpOf(word.writer);
  if (word.write_epoch >= knowledge.over.times[warp]) {
    Report(what, address, "races with a write of thread " + std::to_string(word.writer));
  } else if (thread == kNoThread && word.write_epoch >= knowledge.fenced.times[warp]) {
    Report(what, address,
           "of what thread " + std::to_string(word.writer) +
               " stored without a fence for the asynchronous proxy");
  }
}

void SharedMemory::MarkRead(uint32_t warp, uint32_t lane, size_t index) {
  uint32_t& read = reads_[index * warps_ + warp];
  const uint32_t epoch = ordering_.epoch(warp);
  const bool of_others = read / 64 == epoch && read % 64 != lane;
  read = epoch * 64 + (of_others ? kSeveralLanes : lane);
}

void SharedMemory::Read(uint32_t thread, uint32_t address, void* to, uint32_t bytes) {
  std::memset(to, 0xff, bytes);
  if (!Check("a read", address, bytes)) return;
  for (uint32_t i = 0; i < bytes / 4; ++i) {
    CheckRead("a read", thread, ordering_.of(thread), address, words_[WordOf(address) + i]);
    MarkRead(WarpOf(thread), thread % kWarpLanes, WordOf(address) + i);
  }
  std::memcpy(to, bytes_.data() + (address - kSharedBase), bytes);
}

void SharedMemory::CheckWrite(const char* what, uint32_t thread, uint32_t address, size_t index) {
  const Word& word = words_[index];
  const Clock& over = ordering_.of(thread).over;
  if (word.is_barrier) Report(what, address, "of a barrier");
  if (word.copier != kNobody) {
    Report(what, address,
           word.copier == kBox
               ? "meets a box on its way there"
               : "meets a copy of thread " + std::to_string(word.copier) + " on its way there");
  }
  if (word.products > 0) Report(what, address, "meets a product that has not ended");
  if (word.writer == kBox) {
    if (over.times[kMostWarps + word.barrier] <= word.write_epoch) {
      Report(what, address, "over what a box brought, for whose barrier it has not waited");
    }
  } else if (word.writer != kNobody && word.writer != thread &&
             word.write_epoch >= over.times[WarpOf(word.writer)]) {
    Report(what, address, "races with a write of thread " + std::to_string(word.writer));
  }
  for (uint32_t warp = 0; warp < warps_; ++warp) {
    const uint32_t read = reads_[index * warps_ + warp];
    if (read == 0 || read / 64 < over.times[warp]) continue;
    if (warp * kWarpLanes + read % 64 == thread && read % 64 != kSeveralLanes) continue;
    Report(what, address, "races with a read of another thread");
    return;
  }
}

void SharedMemory::MarkWritten(uint32_t thread, Word& word) {
  word.writer = static_cast<uint16_t>(thread);
  word.write_epoch = ordering_.epoch(WarpOf(thread));
  ordering_.Wrote(thread);
}

void SharedMemory::Write(uint32_t thread, uint32_t address, const void* from, uint32_t bytes) {
  if (!Check("a write", address, bytes)) return;
  for (uint32_t i = 0; i < bytes / 4; ++i) {
    CheckWrite("a write", thread, address, WordOf(address) + i);
    MarkWritten(thread, words_[WordOf(address) + i]);
  }
  std::memcpy(bytes_.data() + (address - kSharedBase), from, bytes);
}

bool SharedMemory::BeginCopy(uint32_t thread, uint32_t address) {
  if (!Check("a copy", address, 16)) return false;
  for (uint32_t i = 0; i < 4; ++i) {
    CheckWrite("a copy", thread, address, WordOf(address) + i);
    words_[WordOf(address) + i].copier = static_cast<uint16_t>(thread);
  }
  return true;
}

void SharedMemory::EndCopy(uint32_t thread, uint32_t address, const std::byte* bytes) {
  for (uint32_t i = 0; i < 4; ++i) {
    Word& word = words_[WordOf(address) + i];
    word.copier = kNobody;
    MarkWritten(thread, word);
  }
  std::memcpy(bytes_.data() + (address - kSharedBase), bytes, 16);
}

bool SharedMemory::MakeBarrier(uint32_t thread, uint32_t address) {
  if (!Check("a barrier", address, 8)) return false;
  for (uint32_t i = 0; i < 2; ++i) {
    CheckWrite("a barrier", thread, address, WordOf(address) + i);
    words_[WordOf(address) + i].is_barrier = true;
  }
  return true;
}

bool SharedMemory::BeginBox(uint32_t thread, uint32_t address) {
  if (!Check("a box", address, 16)) return false;
  const Clock& fenced = ordering_.of(thread).fenced;
  for (uint32_t i = 0; i < 4; ++i) {
    Word& word = words_[WordOf(address) + i];
    CheckWrite("a box", thread, address, WordOf(address) + i);
    if (word.writer < kBox && word.write_epoch >= fenced.times[WarpOf(word.writer)]) {
      Report("a box", address,
             "over what thread " + std::to_string(word.writer) +
                 " stored without a fence for the asynchronous proxy");
    }
    word.copier = kBox;
  }
  return true;
}

void SharedMemory::EndBox(uint32_t address, const std::byte* bytes, uint32_t barrier,
                          uint32_t phase) {
  for (uint32_t i = 0; i < 4; ++i) {
    Word& word = words_[WordOf(address) + i];
    word.copier = kNobody;
    word.writer = kBox;
    word.barrier = static_cast<uint16_t>(barrier);
    word.write_epoch = phase;
  }
  std::memcpy(bytes_.data() + (address - kSharedBase), bytes, 16);
}

bool SharedMemory::BeginProduct(const Knowledge& knowledge, uint32_t address) {
  if (!Check("a product's read", address, 16)) return false;
  for (uint32_t i = 0; i < 4; ++i) {
    Word& word = words_[WordOf(address) + i];
    CheckRead("a product's read", kNoThread, knowledge, address, word);
    ++word.products;
  }
  return true;
}

void SharedMemory::EndProduct(uint32_t warp, uint32_t address, std::byte* to) {
  for (uint32_t i = 0; i < 4; ++i) {
    --words_[WordOf(address) + i].products;
    MarkRead(warp, kSeveralLanes, WordOf(address) + i);
  }
  std::memcpy(to, bytes_.data() + (address - kSharedBase), 16);
}

}  // namespace pagoda::kernels::cuda::emulation
