#include "tests/pools/file/simulated_disk.h"

#include <cstring>

namespace pagoda {

bool SimulatedDisk::Step() {
  if (is_cut_) return false;
  if (steps_left_ == 0) {
    is_cut_ = true;
    return false;
  }
  --steps_left_;
  return true;
}

void SimulatedDisk::PowerUp() {
  for (auto& [page, versions] : unsynced_) {
    const size_t survivor = random_() % (versions.size() + 1);
    if (survivor < versions.size()) durable_[page] = versions[survivor];
  }
  unsynced_.clear();
  current_ = durable_;
  steps_left_ = UINT64_MAX;
  is_cut_ = false;
}

int SimulatedDisk::Read(uint64_t page, std::byte* to) {
  if (is_cut_) return EIO;
  const auto found = current_.find(page);
  if (found == current_.end()) {
    std::memset(to, 0, slab::kPageBytes);
  } else {
    std::memcpy(to, found->second.data(), slab::kPageBytes);
  }
  return 0;
}

int SimulatedDisk::Write(uint64_t page, const std::byte* from) {
  if (!Step()) return EIO;
  slab::Page bytes;
  std::memcpy(bytes.data(), from, bytes.size());
  current_[page] = bytes;
  unsynced_[page].push_back(bytes);
  return 0;
}

int SimulatedDisk::Sync() {
  if (!Step()) return EIO;
  for (const auto& [page, versions] : unsynced_) durable_[page] = versions.back();
  unsynced_.clear();
  return 0;
}

void SimulatedEngine::Submit(FileRequest request) {
  const int error = Run(request);
  request.done(error);
}

int SimulatedEngine::Run(const FileRequest& request) {
  const int fault = fault_ ? fault_(request) : 0;
  if (request.kind == FileRequest::Kind::kSync) return fault != 0 ? fault : disk_->Sync();
  std::vector<std::byte> bytes;
  for (const iovec& piece : request.pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  const bool is_read = request.kind == FileRequest::Kind::kRead;
  if (fault != 0 && is_read) return fault;
  const size_t pages = bytes.size() / slab::kPageBytes;
  const size_t moved = fault != 0 ? pages / 2 : pages;
  for (size_t i = 0; i < moved; ++i) {
    std::byte* at = bytes.data() + i * slab::kPageBytes;
    const uint64_t page = request.offset_bytes / slab::kPageBytes + i;
    const int error = is_read ? disk_->Read(page, at) : disk_->Write(page, at);
    if (error != 0) return error;
  }
  if (fault != 0) return fault;
  if (is_read) {
    const std::byte* from = bytes.data();
    for (const iovec& piece : request.pieces) {
      std::memcpy(piece.iov_base, from, piece.iov_len);
      from += piece.iov_len;
    }
  }
  return 0;
}

}  // namespace pagoda
