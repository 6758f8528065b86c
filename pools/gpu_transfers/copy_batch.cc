#include "pools/gpu_transfers/copy_batch.h"

#include <algorithm>
#include <tuple>

#include "pools/copy_work.h"

namespace pagoda::cuda {

absl::StatusOr<uint64_t> CopyBatch::Add(const Order& order, const PoolSet& pools) {
  if (absl::Status status = CheckWindowOfOrder(order, pools); !status.ok()) return status;
  if (absl::Status status = CheckSlotsOfOrder(order, pools); !status.ok()) return status;
  const uint32_t window = order.window_index;
  uint64_t bytes = 0;
  for (uint32_t p = 0; p < pools.layout().windows()[window].pools.size(); ++p) {
    const Pool& pool = pools.any_pool(window, p, order.source.tier);
    const PoolLayout& layout = pool.layout();
    const uint64_t stride = layout.slot_stride_bytes();
    const PoolMemory source = pool.memory();
    const PoolMemory target = pools.any_pool(window, p, order.target.tier).memory();
    const PoolMemory& host = lane_ == Lane::kUp ? source : target;
    Range range{.window = window,
                .pool = p,
                .source = source.address + order.source.slot.value() * stride,
                .target = target.address + order.target.slot.value() * stride,
                .bytes = stride,
                .host_base = host.address,
                .host_chunk = lane_ == Lane::kWithin ? 0 : host.pinned_chunk_bytes};
    if (CopiesWholeSlot(order, layout)) {
      ranges_.push_back(range);
      bytes += stride;
    } else if (order.num_tokens > 0) {  // In a pool of elements.
      const kernels::TokenRuns runs = RunsOf(layout);
      range.bytes = runs.token_bytes * order.num_tokens;
      rows_.push_back({.first = range, .rows = runs.num_runs, .pitch_bytes = runs.run_bytes});
      bytes += runs.num_runs * range.bytes;
    }
  }
  return bytes;
}

absl::Status CopyBatch::Issue(const Driver& driver, CUstream stream, DriverCalls calls) {
  Join();
  // The batched call takes host addresses as the device sees them.
  const absl::Status status =
      IssueAll(driver, stream, Pieces(ranges_),
               lane_ == Lane::kWithin || AllPinned() ? calls : DriverCalls::kOneByOne);
  if (!status.ok()) return status;
  for (const Rows& rows : rows_) {
    if (absl::Status issued = IssueRows(driver, stream, rows); !issued.ok()) return issued;
  }
  return absl::OkStatus();
}

void CopyBatch::Join() {
  const auto place = [](const Range& range) {
    return std::tie(range.window, range.pool, range.source);
  };
  std::sort(ranges_.begin(), ranges_.end(),
            [&](const Range& a, const Range& b) { return place(a) < place(b); });
  std::vector<Range> joined;
  for (const Range& range : ranges_) {
    if (!joined.empty()) {
      Range& last = joined.back();
      if (last.window == range.window && last.pool == range.pool &&
          last.source + last.bytes == range.source && last.target + last.bytes == range.target) {
        last.bytes += range.bytes;
        continue;
      }
    }
    joined.push_back(range);
  }
  ranges_ = std::move(joined);
}

std::vector<CopyBatch::Range> CopyBatch::Pieces(const std::vector<Range>& ranges) const {
  std::vector<Range> pieces;
  for (Range rest : ranges) {
    while (rest.host_chunk > 0) {
      const uint64_t in_chunk = (HostAddress(rest) - rest.host_base) % rest.host_chunk;
      const uint64_t left = rest.host_chunk - in_chunk;
      if (left >= rest.bytes) break;
      Range piece = rest;
      piece.bytes = left;
      pieces.push_back(piece);
      rest.source += left;
      rest.target += left;
      rest.bytes -= left;
    }
    pieces.push_back(rest);
  }
  return pieces;
}

bool CopyBatch::AllPinned() const {
  return std::all_of(ranges_.begin(), ranges_.end(),
                     [](const Range& range) { return range.host_chunk > 0; });
}

absl::Status CopyBatch::IssueAll(const Driver& driver, CUstream stream,
                                 const std::vector<Range>& pieces, DriverCalls calls) const {
#if CUDA_VERSION >= 13000
  if (calls == DriverCalls::kBatched && driver.cuMemcpyBatchAsync != nullptr && pieces.size() > 1) {
    std::vector<CUdeviceptr> sources;
    std::vector<CUdeviceptr> targets;
    std::vector<size_t> sizes;
    for (const Range& piece : pieces) {
      sources.push_back(piece.source);
      targets.push_back(piece.target);
      sizes.push_back(piece.bytes);
    }
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0;
    return driver.Check("cuMemcpyBatchAsync",
                        driver.cuMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(),
                                                  pieces.size(), &attributes, &first, 1, stream));
  }
#else
  static_cast<void>(calls);
#endif
  for (const Range& piece : pieces) {
    if (absl::Status status = IssueOne(driver, stream, piece); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CopyBatch::IssueOne(const Driver& driver, CUstream stream, const Range& piece) const {
  switch (lane_) {
    case Lane::kUp:
      return driver.Check(
          "cuMemcpyHtoDAsync",
          driver.cuMemcpyHtoDAsync(piece.target, reinterpret_cast<const void*>(piece.source),
                                   piece.bytes, stream));
    case Lane::kDown:
      return driver.Check("cuMemcpyDtoHAsync",
                          driver.cuMemcpyDtoHAsync(reinterpret_cast<void*>(piece.target),
                                                   piece.source, piece.bytes, stream));
    default:
      return driver.Check("cuMemcpyDtoDAsync", driver.cuMemcpyDtoDAsync(piece.target, piece.source,
                                                                        piece.bytes, stream));
  }
}

absl::Status CopyBatch::IssueRows(const Driver& driver, CUstream stream, const Rows& rows) const {
  Range whole = rows.first;
  whole.bytes = (rows.rows - 1) * rows.pitch_bytes + rows.first.bytes;
  if (Pieces({whole}).size() == 1) {
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = lane_ == Lane::kUp ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.srcHost = reinterpret_cast<const void*>(lane_ == Lane::kUp ? whole.source : 0);
    copy.srcDevice = lane_ == Lane::kUp ? 0 : whole.source;
    copy.srcPitch = rows.pitch_bytes;
    copy.dstMemoryType = lane_ == Lane::kDown ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstHost = reinterpret_cast<void*>(lane_ == Lane::kDown ? whole.target : 0);
    copy.dstDevice = lane_ == Lane::kDown ? 0 : whole.target;
    copy.dstPitch = rows.pitch_bytes;
    copy.WidthInBytes = rows.first.bytes;
    copy.Height = rows.rows;
    const CUresult result = driver.cuMemcpy2DAsync(&copy, stream);
    // Within a device the driver can refuse pitches that it has not chosen itself.
    if (result != CUDA_ERROR_INVALID_VALUE) return driver.Check("cuMemcpy2DAsync", result);
  }
  std::vector<Range> each;
  for (uint64_t row = 0; row < rows.rows; ++row) {
    Range range = rows.first;
    range.source += row * rows.pitch_bytes;
    range.target += row * rows.pitch_bytes;
    each.push_back(range);
  }
  return IssueAll(driver, stream, Pieces(each), DriverCalls::kOneByOne);
}

}  // namespace pagoda::cuda
