// The memory that a dead daemon left, damaged or forged. Everything that is taken back from it must
// be true.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "manager/block_manager.h"
#include "manager/restart/content_digest.h"
#include "manager/restart/recovery.h"
#include "manager/restart/slot_checksum.h"
#include "manager/restart/stamp_set.h"
#include "manager/warm_restart.h"
#include "manager/words/retention.h"
#include "pools/pool.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/planted.h"
#include "tests/manager/fixtures/host_tiers.h"

namespace pagoda::fuzz {
namespace {

constexpr uint32_t kTokensPerBlock = 4;
constexpr uint32_t kPrimarySlots = 6;
constexpr uint32_t kLowerBlocks = 3;
constexpr uint32_t kLowerSlots = 4;  // With the spare one.
constexpr uint32_t kMaxHoles = 5;
constexpr int kMaxSteps = 48;
// The layout of manager/restart/slot_stamps.h.
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kStampHeadBytes = 20;  // Control, checksum, size.
constexpr uint64_t kValid = 1;

CacheLayout Layout() {
  return *CacheLayout::Create(
      {.name = "fuzz",
       .tokens_per_block = kTokensPerBlock,
       .layers = {{.window = WindowSize{8}, .num_kv_heads = 1, .head_dim = 2},
                  {.window = kFullAttention, .num_kv_heads = 1, .head_dim = 2},
                  {.window = kFullAttention, .num_kv_heads = 2, .head_dim = 2}}});
}

std::string Instance() { return absl::StrCat("fuzz-", getpid()); }

// Removes all traces of this process. If it dies badly, fuzz_test.py removes them.
void RemoveAll() {
  const std::string prefix = absl::StrCat("pagoda-", Instance(), "-");
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (absl::StartsWith(entry.path().filename().string(), prefix)) {
      std::filesystem::remove(entry.path());
    }
  }
}

// The content of a block that was stamped once: others can be below it.
struct Content {
  ContentDigest digest;
  bool full = false;
};

// One daemon after another on the same memory.
class State {
 public:
  explicit State(ByteReader& in) : in_(in) {
    Start();
    stamps_->InvalidateAll();
  }

  void Step() {
    const uint8_t choice = in_.Byte();
    switch (choice % 8) {
      case 4:
        return Forge();
      case 5:
        return Damage();
      case 6:
        return ChangeBytes();
      case 7:
        return choice & 8 ? MakeUp() : Restart();
      default:
        return Stamp();
    }
  }

  // A new daemon starts with the memory as it is.
  void Restart() {
    stamps_.reset();
    pools_.reset();
    Start();
    const RecoveryOptions options = {.num_threads = 1, .max_holes = kMaxHoles};
    const Recovery first = Recover(*pools_, *stamps_, options);
    for (size_t w = 0; w < first.windows.size(); ++w) {
      Check(static_cast<uint32_t>(w), first.windows[w].blocks);
    }
    Restore(first.windows);
    const Recovery second = Recover(*pools_, *stamps_, options);
    PAGODA_CHECK(second.report.found == first.report.recovered,
                 "only what was taken back has a stamp");
  }

 private:
  struct Place {
    uint32_t window = 0;
    SlotRef slot;
  };

  void Start() {
    const SlotCounts slots = {
        .tiers = {{kPrimarySlots, kPrimarySlots}, {kLowerSlots, kLowerSlots}}};
    auto pools = PoolSet::Create(Layout(), slots, Instance(), MemoryLifetime::kKept);
    PAGODA_CHECK(pools.ok(), "there is memory for tiny pools");
    pools_ = *std::move(pools);
    auto stamps = StampSet::Create(*pools_, Instance());
    PAGODA_CHECK(stamps.ok(), "there is memory for their stamps");
    stamps_ = *std::move(stamps);
    pools_->KeepNames();
    stamps_->KeepNames();
  }

  Place Draw() {
    const uint8_t byte = in_.Byte();
    const Tier tier = byte & 2 ? Tier(1) : kPrimaryTier;
    const uint32_t slots = tier == kPrimaryTier ? kPrimarySlots : kLowerSlots;
    return {.window = byte & 1u, .slot = {tier, SlotIndex{(byte >> 2) % slots}}};
  }
  SlotStamps& StampsAt(const Place& place) { return *stamps_->Find(place.window, place.slot.tier); }
  absl::Span<std::byte> StampBytes(const Place& place) {
    SlotStamps& stamps = StampsAt(place);
    const size_t stride = (stamps.bytes().size() - kHeaderBytes) / stamps.num_slots();
    return stamps.bytes().subspan(kHeaderBytes + place.slot.slot.value() * stride, stride);
  }

  // Calls `visit` with every byte of the slot, and with the value that it must have for that
  // content.
  template <class Visit>
  void ForEachByte(const Place& place, const ContentDigest& digest, Visit visit) {
    const size_t pools = pools_->layout().windows()[place.window].pools.size();
    for (uint32_t p = 0; p < pools; ++p) {
      const absl::Span<std::byte> bytes =
          pools_->pool(place.window, p, place.slot.tier).slot(place.slot.slot);
      for (size_t i = 0; i < bytes.size(); ++i) {
        visit(bytes[i], digest.bytes[i % digest.bytes.size()] ^ static_cast<std::byte>(p));
      }
    }
  }

  // In SlotStamper's order: invalidate, bytes, body, publish.
  void Stamp() {
    const Place place = Draw();
    const uint8_t shape = in_.Byte();
    SlotStamp stamp{.priority = Priority{static_cast<uint8_t>(in_.Below(101))}};
    const uint32_t count = shape & 128 ? 1 + shape % (kTokensPerBlock - 1) : kTokensPerBlock;
    for (uint32_t i = 0; i < count; ++i) stamp.tokens.push_back(in_.Below(3));
    if (shape & 64) {
      stamp.extras.resize(count);
      stamp.extras.back().extra_id = 1;
    }
    const uint32_t above = in_.Byte() % (contents_.size() + 1);
    if (above == contents_.size()) {
      stamp.name_space = NamespaceKey{.cache_salt = shape & 32 ? "salt" : ""};
      stamp.parent = digester_.OfNamespace(*stamp.name_space);
    } else {
      stamp.parent = contents_[above].digest;
    }
    stamp.digest = digester_.OfBlock(stamp.parent, {stamp.tokens, stamp.extras});
    const SlotStamps::Version version = StampsAt(place).Invalidate(place.slot.slot);
    ForEachByte(place, stamp.digest, [](std::byte& byte, std::byte right) { byte = right; });
    Publish(place, version, stamp);
    contents_.push_back({.digest = stamp.digest, .full = count == kTokensPerBlock});
  }

  void Publish(const Place& place, SlotStamps::Version version, SlotStamp& stamp) {
    stamp.bytes_checksum = ChecksumSlot(*pools_, place.window, place.slot);
    PAGODA_CHECK(StampsAt(place).WriteBody(place.slot.slot, version, stamp), "a stamp has room");
    StampsAt(place).WriteChecksum(place.slot.slot);
    PAGODA_CHECK(StampsAt(place).Publish(place.slot.slot, version), "nobody else stamps");
  }

  // Changes a stamp's body, and its checksum with it.
  void Forge() {
    const Place place = Draw();
    const absl::Span<std::byte> stamp = StampBytes(place);
    const size_t at = sizeof(uint64_t) * 2 + (in_.Byte() | in_.Byte() << 8) % 192;
    stamp[at % stamp.size()] ^= static_cast<std::byte>(in_.Byte());
    StampsAt(place).WriteChecksum(place.slot.slot);
  }

  // Changes any byte, of headers too, without its checksum.
  void Damage() {
    const absl::Span<std::byte> bytes = StampsAt(Draw()).bytes();
    const size_t at = in_.Byte() | in_.Byte() << 8;
    // The header's page is nearly empty.
    bytes[at % 2 ? at % 80 : at % bytes.size()] ^= static_cast<std::byte>(in_.Byte());
  }

  // A writer changes the slot's bytes without the daemon's knowledge.
  void ChangeBytes() {
    const Place place = Draw();
    const uint32_t pool =
        in_.Below(static_cast<uint32_t>(pools_->layout().windows()[place.window].pools.size()));
    const absl::Span<std::byte> bytes =
        pools_->pool(place.window, pool, place.slot.tier).slot(place.slot.slot);
    bytes[in_.Byte() % bytes.size()] ^= static_cast<std::byte>(in_.Byte());
    if (!Planted("BytesNotChecked")) return;
    auto stamp = StampsAt(place).Read(place.slot.slot);
    if (!stamp.ok() || !stamp->has_value()) return;
    Publish(place, StampsAt(place).Invalidate(place.slot.slot), **stamp);
  }

  // A stamp of arbitrary bytes that counts as whole.
  void MakeUp() {
    const Place place = Draw();
    const absl::Span<std::byte> stamp = StampBytes(place);
    const absl::Span<const uint8_t> body = in_.Take(in_.Byte());
    const auto size = static_cast<uint32_t>(std::min(body.size(), stamp.size() - kStampHeadBytes));
    uint64_t control = 0;
    std::memcpy(&control, stamp.data(), sizeof(control));
    control |= kValid;
    std::memcpy(stamp.data(), &control, sizeof(control));
    std::memcpy(stamp.data() + sizeof(uint64_t) * 2, &size, sizeof(size));
    std::memcpy(stamp.data() + kStampHeadBytes, body.data(), size);
    StampsAt(place).WriteChecksum(place.slot.slot);
  }

  // Each block has the bytes of its content, a slot of its own and a full parent before it.
  void Check(uint32_t window, const std::vector<RecoveredBlock>& blocks) {
    std::vector<Content> known;
    std::set<std::pair<Tier, SlotIndex>> slots;
    for (const RecoveredBlock& block : blocks) {
      const bool first = block.parent == RecoveredBlock::kRoot;
      PAGODA_CHECK(first || (block.parent < known.size() && known[block.parent].full),
                   "a full parent comes before its children");
      PAGODA_CHECK(!block.tokens.empty() && block.tokens.size() <= kTokensPerBlock &&
                       (block.extras.empty() || block.extras.size() == block.tokens.size()),
                   "a block has the tokens of one block");
      PAGODA_CHECK(block.priority.value() <= kMaxPriority, "a priority is one");
      const ContentDigest parent =
          first ? digester_.OfNamespace(block.name_space) : known[block.parent].digest;
      const ContentDigest digest = digester_.OfBlock(parent, {block.tokens, block.extras});
      known.push_back({.digest = digest, .full = block.tokens.size() == kTokensPerBlock});
      if (block.slot.slot == kNoSlot) continue;
      PAGODA_CHECK(slots.emplace(block.slot.tier, block.slot.slot).second, "a slot is one block's");
      ForEachByte({window, block.slot}, digest, [](std::byte& byte, std::byte right) {
        PAGODA_CHECK(byte == right, "a block's bytes are those of its content");
      });
    }
  }

  // The core takes back all of it, and can release all of it.
  static void Restore(const std::vector<RecoveredWindow>& windows) {
    const auto core = *BlockManager::Create(
        {.layout = Layout(),
         .tiers = HostTiers({kPrimarySlots, kPrimarySlots}, {kLowerBlocks, kLowerBlocks}),
         .max_holes = kMaxHoles,
         .epoch = Epoch{1},
         .journal_slots = true});
    // Only this target makes stamps for more slots than there are blocks.
    const bool fits = absl::c_all_of(windows, [](const RecoveredWindow& window) {
      return absl::c_count_if(window.blocks, [](const RecoveredBlock& block) {
               return block.slot.tier == Tier(1);
             }) <= kLowerBlocks;
    });
    PAGODA_CHECK(core->restart().Restore(windows, absl::UnixEpoch()).ok() == fits,
                 "what was recovered can be restored");
    core->CheckInvariants();
    core->ResetPrefixCache(absl::UnixEpoch());
    core->CheckInvariants();
    for (const WindowStats& window : core->Stats().windows) {
      for (const TierOccupancy& tier : window.tiers) {
        PAGODA_CHECK(tier.free == tier.capacity, "nothing is left of what was restored");
      }
    }
  }

  ByteReader& in_;
  ContentDigester digester_;
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<StampSet> stamps_;
  std::vector<Content> contents_;
};

}  // namespace
}  // namespace pagoda::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int swept_at_exit = std::atexit(pagoda::fuzz::RemoveAll);
  PAGODA_CHECK(swept_at_exit == 0, "the memory is swept at the end");
  pagoda::fuzz::ByteReader in({data, size});
  pagoda::fuzz::State state(in);
  for (int step = 0; step < pagoda::fuzz::kMaxSteps && !in.empty(); ++step) state.Step();
  state.Restart();
  return 0;
}
