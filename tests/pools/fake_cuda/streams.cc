// Streams, events, and the copies on them.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/pools/fake_cuda/state.h"

namespace fake_cuda {
namespace {

// The work that an event stands for since it was last recorded.
struct Recorded {
  bool done = false;
};

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t streams = 0;
  uint64_t events = 0;
};

Shared& TheShared() {
  static Shared* const shared = new Shared;
  return *shared;
}

using Work = std::function<CUresult()>;

}  // namespace
}  // namespace fake_cuda

// A thread that runs work items in order.
struct CUstream_st {
  // fakeCudaHold holds every stream except the null stream.
  explicit CUstream_st(bool may_be_held = true) : held(may_be_held), thread([this] { Run(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
      changed.notify_all();
    }
    thread.join();
  }

  void Push(fake_cuda::Work work) {
    const std::lock_guard lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
  void Finish() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return queue.empty(); });
  }
  uint64_t unfinished() {
    const std::lock_guard lock(mutex);
    return queue.size();
  }
  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      const fake_cuda::Work& work = queue.front();  // Stays in the queue until it is done.
      lock.unlock();
      if (held) fake_cuda::WaitWhileHeld();
      // A lost device does no more work, and no thread may wait for it forever.
      if (const CUresult result = work(); result != CUDA_SUCCESS) fake_cuda::Lose(result);
      lock.lock();
      queue.pop_front();
      changed.notify_all();
    }
  }

  const bool held;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<fake_cuda::Work> queue;
  bool ending = false;
  std::thread thread;
};

struct CUevent_st {
  std::shared_ptr<fake_cuda::Recorded> recorded;  // Guarded by TheShared().mutex.
};

namespace fake_cuda {
namespace {

struct Copy {
  uint64_t target = 0;
  uint64_t source = 0;
  uint64_t bytes = 0;
};

CUresult Run(const std::vector<Copy>& copies) {
  std::this_thread::sleep_for(std::chrono::microseconds(NextDelay()));
  if (const CUresult lost = Lost(); lost != CUDA_SUCCESS) return lost;
  if (const CUresult fails = NextCopyFails(); fails != CUDA_SUCCESS) return fails;
  for (const Copy& copy : copies) {
    if (!CopyBytes(copy.target, copy.source, copy.bytes)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return CUDA_SUCCESS;
}

// Whether every range is in one of these places.
bool Good(const std::vector<Copy>& copies, bool from_device, bool to_device, bool only_pinned) {
  return std::all_of(copies.begin(), copies.end(), [&](const Copy& copy) {
    for (const auto& [address, on_device, writing] :
         {std::tuple(copy.source, from_device, false), std::tuple(copy.target, to_device, true)}) {
      const Place place = PlaceOf(address, copy.bytes, writing);
      const bool host = place == Place::kPinned || (place == Place::kPageable && !only_pinned);
      if (on_device ? place != Place::kDevice : !host) return false;
    }
    return true;
  });
}

bool IsPageable(uint64_t address, uint64_t bytes) {
  return PlaceOf(address, bytes, false) == Place::kPageable;
}

// Copies of one direction, on the stream. Bytes of pageable memory are taken at once. A copy to
// pageable memory has ended when the call returns.
CUresult Start(CUstream stream, std::vector<Copy> copies, bool from_device, bool to_device) {
  if (stream == nullptr || !Good(copies, from_device, to_device, /*only_pinned=*/false)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!from_device && IsPageable(copies.front().source, 1)) {
    uint64_t bytes = 0;
    for (const Copy& copy : copies) bytes += copy.bytes;
    auto staged = std::make_shared<std::vector<std::byte>>(bytes);
    uint64_t done = 0;
    for (Copy& copy : copies) {
      std::byte* const to = staged->data() + done;
      std::memcpy(to, reinterpret_cast<const void*>(copy.source), copy.bytes);
      done += copy.bytes;
      copy.source = reinterpret_cast<uint64_t>(to);
    }
    stream->Push([copies = std::move(copies), staged] { return Run(copies); });
    return CUDA_SUCCESS;
  }
  const bool waits = !to_device && IsPageable(copies.front().target, 1);
  stream->Push([copies = std::move(copies)] { return Run(copies); });
  if (waits) stream->Finish();
  return CUDA_SUCCESS;
}

}  // namespace

namespace {

// Not destroyed: its thread ends with the process.
CUstream_st& NullStream() {
  static auto* const stream = new CUstream_st(/*may_be_held=*/false);
  return *stream;
}

}  // namespace

void PushToNullStream(std::function<CUresult()> work) {
  NullStream().Push([work = std::move(work)] {
    std::this_thread::sleep_for(std::chrono::microseconds(NextDelay()));
    return work();
  });
}

void FinishNullStream() { NullStream().Finish(); }

void FillStreamUse(FakeCudaUse& use) {
  use.null_stream_work = NullStream().unfinished();
  const std::lock_guard lock(TheShared().mutex);
  use.streams = TheShared().streams;
  use.events = TheShared().events;
}

}  // namespace fake_cuda

using fake_cuda::Copy;
using fake_cuda::TheShared;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  FAKE_CUDA_ENTER_CONTEXT("cuStreamCreate");
  *stream = new CUstream_st;
  const std::lock_guard lock(TheShared().mutex);
  ++TheShared().streams;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  FAKE_CUDA_ENTER("cuStreamDestroy");
  delete stream;
  const std::lock_guard lock(TheShared().mutex);
  --TheShared().streams;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuStreamSynchronize");
  if (stream == nullptr) {
    fake_cuda::FinishNullStream();
  } else {
    stream->Finish();
  }
  return fake_cuda::Lost();
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_CUDA_ENTER_CONTEXT("cuEventCreate");
  *event = new CUevent_st;
  const std::lock_guard lock(TheShared().mutex);
  ++TheShared().events;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  FAKE_CUDA_ENTER("cuEventDestroy");
  delete event;
  const std::lock_guard lock(TheShared().mutex);
  --TheShared().events;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuEventRecord");
  auto recorded = std::make_shared<fake_cuda::Recorded>();
  {
    const std::lock_guard lock(TheShared().mutex);
    event->recorded = recorded;
  }
  stream->Push([recorded] {
    const std::lock_guard lock(TheShared().mutex);
    recorded->done = true;
    TheShared().changed.notify_all();
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  FAKE_CUDA_ENTER_CONTEXT("cuEventSynchronize");
  {
    std::unique_lock lock(TheShared().mutex);
    const auto recorded = event->recorded;
    TheShared().changed.wait(lock, [&] { return recorded == nullptr || recorded->done; });
  }
  return fake_cuda::Lost();
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  FAKE_CUDA_ENTER_CONTEXT("cuStreamWaitEvent");
  std::shared_ptr<fake_cuda::Recorded> recorded;
  {
    const std::lock_guard lock(TheShared().mutex);
    recorded = event->recorded;
  }
  if (recorded == nullptr) return CUDA_SUCCESS;
  stream->Push([recorded] {
    std::unique_lock lock(TheShared().mutex);
    TheShared().changed.wait(lock, [&] { return recorded->done; });
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyHtoDAsync");
  return fake_cuda::Start(stream, {{target, reinterpret_cast<uint64_t>(source), bytes}}, false,
                          true);
}

CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyDtoHAsync");
  return fake_cuda::Start(stream, {{reinterpret_cast<uint64_t>(target), source, bytes}}, true,
                          false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyDtoDAsync");
  return fake_cuda::Start(stream, {{target, source, bytes}}, true, true);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyAsync");
  const bool from_device = fake_cuda::PlaceOf(source, bytes, false) == fake_cuda::Place::kDevice;
  const bool to_device = fake_cuda::PlaceOf(target, bytes, true) == fake_cuda::Place::kDevice;
  return fake_cuda::Start(stream, {{target, source, bytes}}, from_device, to_device);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* rows, CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpy2DAsync");
  const bool from_device = rows->srcMemoryType == CU_MEMORYTYPE_DEVICE;
  const bool to_device = rows->dstMemoryType == CU_MEMORYTYPE_DEVICE;
  if (rows->WidthInBytes > rows->srcPitch || rows->WidthInBytes > rows->dstPitch ||
      (from_device && to_device && fake_cuda::GetSettings().refuse_rows_within)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t source = from_device ? rows->srcDevice : reinterpret_cast<uint64_t>(rows->srcHost);
  const uint64_t target = to_device ? rows->dstDevice : reinterpret_cast<uint64_t>(rows->dstHost);
  // The whole span must lie in one piece.
  const std::vector<Copy> span = {
      {target, source, (rows->Height - 1) * rows->srcPitch + rows->WidthInBytes}};
  if (!fake_cuda::Good(span, from_device, to_device, /*only_pinned=*/false)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Copy> copies;
  for (uint64_t row = 0; row < rows->Height; ++row) {
    copies.push_back(
        {target + row * rows->dstPitch, source + row * rows->srcPitch, rows->WidthInBytes});
  }
  return fake_cuda::Start(stream, std::move(copies), from_device, to_device);
}

#if CUDA_VERSION >= 13000
CUresult cuMemcpyBatchAsync(CUdeviceptr* targets, CUdeviceptr* sources, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first, size_t num_attributes,
                            CUstream stream) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyBatchAsync");
  if (stream == nullptr || count == 0 || num_attributes != 1 || *first != 0 ||
      attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Copy> copies;
  for (size_t i = 0; i < count; ++i) {
    const Copy copy = {targets[i], sources[i], sizes[i]};
    const bool from_device =
        fake_cuda::PlaceOf(copy.source, copy.bytes, false) == fake_cuda::Place::kDevice;
    const bool to_device =
        fake_cuda::PlaceOf(copy.target, copy.bytes, true) == fake_cuda::Place::kDevice;
    const bool host = !from_device || !to_device;
    if (!fake_cuda::Good({copy}, from_device, to_device, /*only_pinned=*/true) ||
        (host && !fake_cuda::GetSettings().same_addresses)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    copies.push_back(copy);
  }
  // The copies of a call have no order among themselves.
  std::reverse(copies.begin(), copies.end());
  stream->Push([copies = std::move(copies)] { return fake_cuda::Run(copies); });
  return CUDA_SUCCESS;
}
#endif

}  // extern "C"
