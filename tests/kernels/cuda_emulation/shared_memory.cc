#include "tests/kernels/cuda_emulation/shared_memory.h"

#include <cstring>
#include <utility>

#include "tests/kernels/cuda_emulation/emulator.h"

namespace pagoda::kernels::cuda::emulation {
namespace {

constexpr uint32_t WarpOf(uint32_t thread) { return thread / 32; }

}  // namespace

// All bits set is NaN in each type.
SharedMemory::SharedMemory(uint32_t bytes, uint32_t warps, Reporter report)
    : bytes_(bytes, std::byte{0xff}),
      words_((bytes + 3) / 4),
      warp_epochs_(warps, 1),
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

void SharedMemory::Read(uint32_t thread, uint32_t address, void* to, uint32_t bytes) {
  std::memset(to, 0xff, bytes);
  if (!Check("a read", address, bytes)) return;
  const auto warp = static_cast<uint16_t>(WarpOf(thread));
  for (uint32_t i = 0; i < bytes / 4; ++i) {
    Word& word = words_[(address - kSharedBase) / 4 + i];
    if (word.copier != kNobody) {
      Report("a read", address,
             "of what a copy of thread " + std::to_string(word.copier) +
                 " brings, which has not waited for it");
    }
    if (word.writer != kNobody && word.writer != thread && word.write_block_epoch == block_epoch_ &&
        !(WarpOf(word.writer) == warp && word.write_warp_epoch < warp_epochs_[warp])) {
      Report("a read", address, "races with a write of thread " + std::to_string(word.writer));
    }
    if (word.read_block_epoch != block_epoch_ || word.reader_warp == kNobody) {
      word.read_block_epoch = block_epoch_;
      word.reader_warp = warp;
      word.reader = static_cast<uint16_t>(thread);
      word.read_warp_epoch = warp_epochs_[warp];
    } else if (word.reader_warp != warp) {
      word.reader_warp = kSeveral;
    } else if (word.read_warp_epoch != warp_epochs_[warp]) {
      word.reader = static_cast<uint16_t>(thread);
      word.read_warp_epoch = warp_epochs_[warp];
    } else if (word.reader != thread) {
      word.reader = kSeveral;
    }
  }
  std::memcpy(to, bytes_.data() + (address - kSharedBase), bytes);
}

void SharedMemory::CheckWrite(const char* what, uint32_t thread, uint32_t address,
                              const Word& word) {
  const uint32_t warp = WarpOf(thread);
  if (word.copier != kNobody) {
    Report(what, address,
           "meets a copy of thread " + std::to_string(word.copier) + " on its way there");
  }
  if (word.writer != kNobody && word.writer != thread && word.write_block_epoch == block_epoch_ &&
      !(WarpOf(word.writer) == warp && word.write_warp_epoch < warp_epochs_[warp])) {
    Report(what, address, "races with a write of thread " + std::to_string(word.writer));
  }
  if (word.reader_warp == kNobody || word.read_block_epoch != block_epoch_) return;
  const bool of_others = word.reader_warp != warp ||
                         (word.read_warp_epoch == warp_epochs_[warp] && word.reader != thread);
  if (of_others) Report(what, address, "races with a read of another thread");
}

void SharedMemory::MarkWritten(uint32_t thread, Word& word) {
  word.writer = static_cast<uint16_t>(thread);
  word.write_block_epoch = block_epoch_;
  word.write_warp_epoch = warp_epochs_[WarpOf(thread)];
}

void SharedMemory::Write(uint32_t thread, uint32_t address, const void* from, uint32_t bytes) {
  if (!Check("a write", address, bytes)) return;
  for (uint32_t i = 0; i < bytes / 4; ++i) {
    Word& word = words_[(address - kSharedBase) / 4 + i];
    CheckWrite("a write", thread, address, word);
    MarkWritten(thread, word);
  }
  std::memcpy(bytes_.data() + (address - kSharedBase), from, bytes);
}

bool SharedMemory::BeginCopy(uint32_t thread, uint32_t address) {
  if (!Check("a copy", address, 16)) return false;
  for (uint32_t i = 0; i < 4; ++i) {
    Word& word = words_[(address - kSharedBase) / 4 + i];
    CheckWrite("a copy", thread, address, word);
    word.copier = static_cast<uint16_t>(thread);
  }
  return true;
}

void SharedMemory::EndCopy(uint32_t thread, uint32_t address, const std::byte* bytes) {
  for (uint32_t i = 0; i < 4; ++i) {
    Word& word = words_[(address - kSharedBase) / 4 + i];
    word.copier = kNobody;
    MarkWritten(thread, word);
  }
  std::memcpy(bytes_.data() + (address - kSharedBase), bytes, 16);
}

}  // namespace pagoda::kernels::cuda::emulation
