#include "manager/restart/slot_stamps.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/byte_codec.h"
#include "base/check.h"
#include "base/counted.h"
#include "events/client_key.h"
#include "manager/restart/content_codec.h"
#include "manager/restart/slot_checksum.h"

namespace pagoda {
namespace {

constexpr uint64_t kMagic = 0x53'50'4d'54'53'47'44'50;  // "PDGSTMPS" in memory.
constexpr uint32_t kFormat = 1;

constexpr uint64_t kHeaderBytes = 4096;
constexpr size_t kMagicAt = 0;
constexpr size_t kHeaderChecksumAt = 8;
constexpr size_t kHeaderRestAt = 16;
constexpr size_t kHeaderRestBytes = 4 + 4 + 8 + 4 + 32 + 8;

constexpr size_t kControlAt = 0;
constexpr size_t kChecksumAt = 8;
constexpr size_t kSizeAt = 16;
constexpr size_t kBodyAt = 20;
constexpr uint64_t kStampAlignment = 64;

constexpr uint64_t kValid = 1;

uint64_t StrideBytes(uint32_t tokens_per_block) {
  const uint64_t fixed = kBodyAt + 8 + 4 + 32 + 32 + 8 + 1 + 1 + 4;
  const uint64_t name = 8 + 4 + kMaxCacheSaltBytes + 4 + kMaxTenantBytes;
  // The larger of tokens with extras and a client's key.
  const uint64_t tokens = std::max<uint64_t>(
      uint64_t{tokens_per_block} * (sizeof(TokenId) + kTokenExtraBytes), sizeof(ClientKey));
  return (fixed + name + tokens + kStampAlignment - 1) / kStampAlignment * kStampAlignment;
}

// The header's bytes in memory from kHeaderRestAt on.
std::vector<std::byte> HeaderRest(const SlotStamps::Options& options, uint64_t stride_bytes) {
  std::vector<std::byte> rest;
  ByteWriter out(&rest);
  out.Put(kFormat);
  out.Put(options.num_slots);
  out.Put(stride_bytes);
  out.Put(options.tokens_per_block);
  out.PutBytes(options.fingerprint.bytes.data(), options.fingerprint.bytes.size());
  out.Put(options.note);
  PAGODA_CHECK(rest.size() == kHeaderRestBytes, "the header has its size");
  return rest;
}

struct Header {
  uint64_t magic = 0;
  uint64_t checksum = 0;
  uint32_t format = 0;
  uint32_t num_slots = 0;
  uint64_t stride_bytes = 0;
  uint32_t tokens_per_block = 0;
  ContentDigest fingerprint;
  uint64_t note = 0;
  bool whole = false;  // The magic and the checksum are right.
};

Header ReadHeader(absl::Span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < kHeaderBytes) return header;
  ByteReader in(bytes.first(kHeaderBytes));
  header.magic = in.Get<uint64_t>();
  header.checksum = in.Get<uint64_t>();
  header.format = in.Get<uint32_t>();
  header.num_slots = in.Get<uint32_t>();
  header.stride_bytes = in.Get<uint64_t>();
  header.tokens_per_block = in.Get<uint32_t>();
  in.GetBytes(header.fingerprint.bytes.data(), header.fingerprint.bytes.size());
  header.note = in.Get<uint64_t>();
  header.whole = header.magic == kMagic &&
                 header.checksum == Checksum(bytes.subspan(kHeaderRestAt, kHeaderRestBytes));
  return header;
}

std::vector<std::byte> EncodeBody(SlotIndex slot, SlotStamps::Version version,
                                  const SlotStamp& stamp) {
  std::vector<std::byte> body;
  body.reserve(128 + stamp.tokens.size() * sizeof(TokenId));
  ByteWriter out(&body);
  out.Put(version);
  out.Put(slot.value());
  out.PutBytes(stamp.digest.bytes.data(), stamp.digest.bytes.size());
  out.PutBytes(stamp.parent.bytes.data(), stamp.parent.bytes.size());
  out.Put(stamp.bytes_checksum);
  PutContent(stamp.name_space.has_value() ? &*stamp.name_space : nullptr, stamp.priority,
             stamp.key(), out);
  return body;
}

// Decodes the body. False if it is damaged, or belongs to another slot or version.
bool DecodeBody(absl::Span<const std::byte> body, SlotIndex slot, SlotStamps::Version version,
                uint32_t tokens_per_block, SlotStamp* stamp) {
  ByteReader in(body);
  if (in.Get<uint64_t>() != version || in.Get<uint32_t>() != slot.value()) return false;
  in.GetBytes(stamp->digest.bytes.data(), stamp->digest.bytes.size());
  in.GetBytes(stamp->parent.bytes.data(), stamp->parent.bytes.size());
  stamp->bytes_checksum = in.Get<uint64_t>();
  std::optional<CodedContent> content = GetContent(in, tokens_per_block);
  if (!content.has_value()) return false;
  stamp->name_space = std::move(content->name_space);
  stamp->priority = content->priority;
  stamp->tokens = std::move(content->tokens);
  stamp->extras = std::move(content->extras);
  stamp->keyed = content->keyed;
  return in.at_end();
}

}  // namespace

std::string StampsName(const std::string& instance, WindowSize window, Tier tier) {
  return absl::StrCat("/pagoda-", instance, "-w", WindowName(window), "-stamps",
                      tier == kPrimaryTier ? "" : absl::StrCat("-", DefaultTierName(tier)));
}

void PutShape(const PoolLayout& pool, ByteWriter& out) {
  out.Put(static_cast<uint32_t>(pool.layers.size()));
  for (const uint32_t layer : pool.layers) out.Put(layer);
  out.Put(pool.num_kv_heads);
  out.Put(pool.head_dim);
  out.Put(static_cast<uint8_t>(pool.dtype));
  out.Put(pool.kv_factor);
  out.Put(pool.tokens_per_block);
}

ContentDigest StampsFingerprint(const CacheLayout& layout, uint32_t window_index, Tier tier) {
  const CacheSpec& spec = layout.spec();
  const WindowLayout& window = layout.windows()[window_index];
  std::vector<std::byte> bytes;
  ByteWriter out(&bytes);
  out.PutText(spec.name);
  out.PutText(spec.model_fingerprint);
  out.Put(uint32_t{0});  // No longer used. Kept so that older stamps still fit.
  out.Put(window.window.value());
  out.Put(tier.value());
  for (const PoolLayout& pool : window.pools) {
    PutShape(pool, out);
    // Left out so that stamps from before there were other contents still fit.
    if (pool.content == PoolContent::kElements) continue;
    out.Put(static_cast<uint8_t>(pool.content));
    out.Put(pool.bytes_per_block);
  }
  return ContentDigester().OfBytes(bytes);
}

absl::StatusOr<std::unique_ptr<SlotStamps>> SlotStamps::Create(Options options) {
  const uint64_t size_bytes = SizeBytes(options.num_slots, options.tokens_per_block);
  absl::StatusOr<SharedMemory> memory = SharedMemory::CreateOrAdopt(options.shm_name, size_bytes);
  if (!memory.ok()) return memory.status();
  return absl::WrapUnique(new SlotStamps(std::move(options), *std::move(memory)));
}

SlotStamps::SlotStamps(Options options, SharedMemory memory)
    : options_(std::move(options)),
      stride_bytes_(StrideBytes(options_.tokens_per_block)),
      memory_(std::move(memory)),
      fresh_because_(WhyForeign()) {
  if (!adopted()) Format();
}

uint64_t SlotStamps::SizeBytes(uint32_t num_slots, uint32_t tokens_per_block) {
  return kHeaderBytes + num_slots * StrideBytes(tokens_per_block);
}

std::optional<SlotStamps::Peeked> SlotStamps::Peek(const std::string& shm_name) {
  const absl::StatusOr<SharedMemory> memory = SharedMemory::Open(shm_name);
  if (!memory.ok()) return std::nullopt;
  const Header header = ReadHeader(memory->bytes());
  if (!header.whole || header.format != kFormat) return std::nullopt;
  return Peeked{
      .fingerprint = header.fingerprint, .num_slots = header.num_slots, .note = header.note};
}

std::string SlotStamps::WhyForeign() const {
  if (!memory_.adopted()) return "no stamps of this size were left";
  const Header header = ReadHeader(memory_.bytes());
  if (header.magic != kMagic) return "the memory that was left holds no stamps";
  if (!header.whole) return "the header of the stamps is damaged";
  if (header.format != kFormat) {
    return absl::StrCat("the stamps have format ", header.format, ", not ", kFormat);
  }
  if (header.num_slots != options_.num_slots || header.stride_bytes != stride_bytes_ ||
      header.tokens_per_block != options_.tokens_per_block) {
    return absl::StrCat("the stamps are of ", Counted(header.num_slots, "slot"), " of ",
                        Counted(header.tokens_per_block, "token"), ", not ", options_.num_slots,
                        " of ", options_.tokens_per_block);
  }
  if (header.fingerprint != options_.fingerprint) {
    return "the stamps are of another cache, model or layout";
  }
  return "";
}

// The magic is cleared first and written last. If the process dies in between, there are no stamps.
void SlotStamps::Format() {
  std::byte* const base = memory_.bytes().data();
  std::atomic_ref<uint64_t> magic(*reinterpret_cast<uint64_t*>(base + kMagicAt));
  magic.store(0, std::memory_order_seq_cst);
  // New memory is zero already, and is not touched.
  if (memory_.adopted()) {
    std::memset(base + kHeaderRestAt, 0, memory_.bytes().size() - kHeaderRestAt);
  }
  const std::vector<std::byte> rest = HeaderRest(options_, stride_bytes_);
  const uint64_t checksum = Checksum(rest);
  std::memcpy(base + kHeaderRestAt, rest.data(), rest.size());
  std::memcpy(base + kHeaderChecksumAt, &checksum, sizeof(checksum));
  magic.store(kMagic, std::memory_order_seq_cst);
}

absl::Span<std::byte> SlotStamps::StampAt(SlotIndex slot) const {
  PAGODA_CHECK(slot.value() < options_.num_slots, "a slot that stamps are kept of");
  return memory_.bytes().subspan(kHeaderBytes + slot.value() * stride_bytes_, stride_bytes_);
}

uint64_t& SlotStamps::control(SlotIndex slot) const {
  return *reinterpret_cast<uint64_t*>(StampAt(slot).data() + kControlAt);
}

// A plain store is enough: a Publish between the load and the store is overwritten, and a later one
// finds another version.
SlotStamps::Version SlotStamps::Invalidate(SlotIndex slot) {
  std::atomic_ref<uint64_t> word(control(slot));
  const Version version = (word.load(std::memory_order_relaxed) >> 1) + 1;
  word.store(version << 1, std::memory_order_release);
  return version;
}

bool SlotStamps::IsOpen(SlotIndex slot, Version version) const {
  return std::atomic_ref(control(slot)).load(std::memory_order_acquire) == version << 1;
}

bool SlotStamps::IsValid(SlotIndex slot) const {
  return (std::atomic_ref(control(slot)).load(std::memory_order_acquire) & kValid) != 0;
}

bool SlotStamps::WriteBody(SlotIndex slot, Version version, const SlotStamp& stamp) {
  const std::vector<std::byte> body = EncodeBody(slot, version, stamp);
  if (kBodyAt + body.size() > stride_bytes_ || !IsOpen(slot, version)) return false;
  const auto size = static_cast<uint32_t>(body.size());
  std::byte* const at = StampAt(slot).data();
  std::memcpy(at + kSizeAt, &size, sizeof(size));
  std::memcpy(at + kBodyAt, body.data(), body.size());
  return true;
}

void SlotStamps::WriteChecksum(SlotIndex slot) {
  const absl::Span<std::byte> at = StampAt(slot);
  uint32_t size = 0;
  std::memcpy(&size, &at[kSizeAt], sizeof(size));
  const uint64_t checksum = Checksum(at.subspan(kSizeAt, kBodyAt - kSizeAt + size));
  std::memcpy(&at[kChecksumAt], &checksum, sizeof(checksum));
}

bool SlotStamps::Publish(SlotIndex slot, Version version) {
  uint64_t open = version << 1;
  return std::atomic_ref(control(slot))
      .compare_exchange_strong(open, open | kValid, std::memory_order_acq_rel);
}

absl::StatusOr<std::optional<SlotStamp>> SlotStamps::Read(SlotIndex slot) const {
  const absl::Span<const std::byte> at = StampAt(slot);
  const uint64_t word = std::atomic_ref(control(slot)).load(std::memory_order_acquire);
  if ((word & kValid) == 0) return std::optional<SlotStamp>();
  ByteReader in(at.subspan(kChecksumAt));
  const auto checksum = in.Get<uint64_t>();
  const auto size = in.Get<uint32_t>();
  if (size > stride_bytes_ - kBodyAt ||
      checksum != Checksum(at.subspan(kSizeAt, kBodyAt - kSizeAt + size))) {
    return absl::DataLossError(absl::StrCat("the stamp of slot ", slot.value(), " is damaged"));
  }
  SlotStamp stamp;
  if (!DecodeBody(at.subspan(kBodyAt, size), slot, word >> 1, options_.tokens_per_block, &stamp)) {
    return absl::DataLossError(
        absl::StrCat("the stamp of slot ", slot.value(), " does not belong there"));
  }
  return std::optional<SlotStamp>(std::move(stamp));
}

}  // namespace pagoda
