#include "server/rpc/layer_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "pools/memory/shared_memory.h"

namespace pagoda::server {

absl::StatusOr<absl::Span<const std::byte>> LayerReader::Source::Slot(SlotIndex slot,
                                                                      uint64_t slot_bytes) {
  if (host != nullptr) return absl::MakeConstSpan(host + slot.value() * slot_bytes, slot_bytes);
  copy.resize(slot_bytes);
  absl::Status read = device->ReadSlot(slot, absl::MakeSpan(copy));
  if (!read.ok()) return read;
  return absl::MakeConstSpan(copy);
}

absl::StatusOr<LayerReader::Source> LayerReader::SourceOf(const PoolSet& pools,
                                                          uint32_t window_index,
                                                          uint32_t pool_index) {
  const Pool& pool = pools.any_pool(window_index, pool_index);
  Source source;
  const PoolMemory memory = pool.memory();
  if (memory.place.kind == MemoryKind::kHost) {
    source.host = reinterpret_cast<const std::byte*>(memory.address);
    return source;
  }
  absl::StatusOr<FileDescriptor> descriptor = pool.OpenDescriptor(MemoryAccess::kRead);
  if (!descriptor.ok()) return descriptor.status();
  std::vector<FileDescriptor> descriptors;
  descriptors.push_back(*std::move(descriptor));
  absl::StatusOr<std::unique_ptr<MappedPool>> mapped =
      MappedPool::FromDescriptors({.window = pools.layout().windows()[window_index].window,
                                   .pool_index = pool_index,
                                   .layout = pool.layout(),
                                   .num_slots = pool.num_slots(),
                                   .segments = {pool.segment()}},
                                  std::move(descriptors), MemoryAccess::kRead);
  if (!mapped.ok()) return mapped.status();
  source.device = *std::move(mapped);
  return source;
}

absl::StatusOr<LayerReader> LayerReader::Open(const PoolSet& pools, uint32_t layer) {
  const std::vector<WindowLayout>& windows = pools.layout().windows();
  for (uint32_t w = 0; w < windows.size(); ++w) {
    for (uint32_t p = 0; p < windows[w].pools.size(); ++p) {
      const PoolLayout& layout = windows[w].pools[p];
      const auto found = std::find(layout.layers.begin(), layout.layers.end(), layer);
      // The scales of a layer follow its elements, so the first pool found is never one of scales.
      if (found == layout.layers.end()) continue;
      if (layout.content == PoolContent::kOpaque) {
        return MakeError(Reason::kInvalidArgument,
                         absl::StrCat("layer ", layer,
                                      " is opaque: only its clients know what is K and V in it"));
      }
      LayerReader reader;
      reader.layout_ = &layout;
      reader.form_ = RowFormOf(layout);
      reader.window_index_ = w;
      reader.layer_index_ = static_cast<size_t>(found - layout.layers.begin());
      absl::StatusOr<Source> elements = SourceOf(pools, w, p);
      if (!elements.ok()) return elements.status();
      reader.elements_ = *std::move(elements);
      if (!layout.has_scales()) return reader;
      absl::StatusOr<Source> scales = SourceOf(pools, w, p + 1);
      if (!scales.ok()) return scales.status();
      reader.scales_ = *std::move(scales);
      reader.scales_bytes_ = windows[w].pools[p + 1].slot_stride_bytes();
      return reader;
    }
  }
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("the cache has no layer ", layer, "; it has ",
                                pools.layout().spec().layers.size(), ", which count from 0"));
}

absl::Status LayerReader::Read(SlotIndex slot, uint32_t first_token, uint32_t num_tokens,
                               std::byte* keys, std::byte* values) {
  BlockBytes block;
  const auto elements = elements_.Slot(slot, layout_->slot_stride_bytes());
  if (!elements.ok()) return elements.status();
  block.elements = *elements;
  if (scales_bytes_ != 0) {
    const auto scales = scales_.Slot(slot, scales_bytes_);
    if (!scales.ok()) return scales.status();
    block.scales = *scales;
  }
  CopyRows(*layout_, layer_index_, block, first_token, num_tokens, keys, values);
  return absl::OkStatus();
}

}  // namespace pagoda::server
