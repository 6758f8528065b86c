#include "clients/pagodactl/events/event_text.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "clients/pagodactl/command/admin_client.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr int kMaxListedBlocks = 8;
constexpr int kMaxListedHashes = 4;

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

// REMOVAL_REASON_TAKEN_OVER: "taken over".
std::string EnumText(const std::string& name, absl::string_view prefix) {
  std::string text = absl::AsciiStrToLower(absl::StripPrefix(name, prefix));
  for (char& c : text) c = c == '_' ? ' ' : c;
  return text;
}

// "dram+nvme", "none".
std::string TiersText(const google::protobuf::RepeatedField<int>& tiers,
                      const v1::CacheInfo& cache) {
  if (tiers.empty()) return "none";
  return absl::StrJoin(tiers, "+", [&cache](std::string* out, int tier) {
    out->append(TierText(static_cast<v1::Tier>(tier), cache));
  });
}

absl::Time TimeOf(const v1::Event& event) {
  return absl::FromUnixSeconds(event.time().seconds()) + absl::Nanoseconds(event.time().nanos());
}

std::string ListBlocks(std::vector<uint32_t> ids) {
  if (ids.empty()) return "";
  const bool cut = ids.size() > kMaxListedBlocks;
  if (cut) ids.resize(kMaxListedBlocks);
  return absl::StrCat(ids.size() == 1 ? "block " : "blocks ", absl::StrJoin(ids, ","),
                      cut ? ",..." : "");
}

// "hash 00ff..."; "hashes 00ff...,12ab...,..."
std::string ListHashes(const std::vector<uint64_t>& hashes) {
  std::vector<std::string> listed;
  for (size_t i = 0; i < hashes.size() && i < kMaxListedHashes; ++i) {
    listed.push_back(Hex(hashes[i]));
  }
  return absl::StrCat(hashes.size() == 1 ? "hash " : "hashes ", absl::StrJoin(listed, ","),
                      hashes.size() > kMaxListedHashes ? ",..." : "");
}

// The part of a summary that depends on the event's type.
struct Content {
  std::string type;
  Style style = Style::kBold;
  std::string blocks;
  std::string tokens = "-";
  std::string detail;
};

Content ContentOf(const v1::Event& event, const v1::CacheInfo& cache);

Content ContentOf(const v1::CreatedEvent& event, const v1::CacheInfo& cache) {
  Content content;
  content.type = "created";
  if (event.capacity_size() == 0) {
    content.blocks = absl::StrCat(event.block_ids_size());
    content.detail = ListBlocks({event.block_ids().begin(), event.block_ids().end()});
    return content;
  }
  uint64_t total = 0;
  std::vector<std::string> tiers;
  for (const v1::TierCapacity& capacity : event.capacity()) {
    total += capacity.blocks();
    tiers.push_back(absl::StrCat(TierText(capacity.tier(), cache), " ", capacity.blocks()));
  }
  content.blocks = absl::StrCat(total);
  content.detail = absl::StrCat("pools: ", absl::StrJoin(tiers, ", "));
  return content;
}

// ', LoRA 7, salt "s", tenant "t"', without the parts that the namespace does not have.
std::string NamespaceText(const v1::Namespace& name) {
  std::string text;
  if (name.has_lora_id()) absl::StrAppend(&text, ", LoRA ", name.lora_id());
  if (!name.cache_salt().empty())
    absl::StrAppend(&text, ", salt \"", absl::Utf8SafeCEscape(name.cache_salt()), "\"");
  if (!name.tenant().empty())
    absl::StrAppend(&text, ", tenant \"", absl::Utf8SafeCEscape(name.tenant()), "\"");
  if (name.keyed()) absl::StrAppend(&text, ", keyed");
  return text;
}

// ", extra ids, 2 item parts", without absent parts. An item has a part in each block it reaches.
std::string ExtrasText(const v1::StoredEvent& event) {
  bool extra_ids = false;
  int items = 0;
  for (const v1::StoredBlock& block : event.blocks()) {
    extra_ids |= block.extra_token_ids_size() != 0;
    items += block.multimodal_items_size();
  }
  std::string text = extra_ids ? ", extra ids" : "";
  if (items != 0) absl::StrAppend(&text, ", ", items, items == 1 ? " item part" : " item parts");
  return text;
}

// ", keys 0a1b 2c3d and 5 more", or empty.
std::string KeysText(const v1::StoredEvent& event) {
  constexpr int kShownKeys = 4;
  std::string text;
  for (int i = 0; i < event.blocks_size(); ++i) {
    if (event.blocks(i).key().empty()) return "";
    if (i == kShownKeys) {
      absl::StrAppend(&text, " and ", event.blocks_size() - i, " more");
      break;
    }
    absl::StrAppend(&text, i == 0 ? ", keys " : " ", absl::BytesToHexString(event.blocks(i).key()));
  }
  return text;
}

// ", 3 copies below", or empty.
std::string CopiesText(const v1::StoredEvent& event) {
  int copies = 0;
  for (const v1::StoredBlock& block : event.blocks()) copies += block.lower_tiers_size();
  if (copies == 0) return "";
  return absl::StrCat(", ", copies, copies == 1 ? " copy below" : " copies below");
}

Content ContentOf(const v1::StoredEvent& event) {
  size_t tokens = 0;
  std::vector<uint32_t> ids;
  for (const v1::StoredBlock& block : event.blocks()) {
    tokens += block.token_count() != 0 ? block.token_count() : block.tokens_size();
    ids.push_back(block.block_id());
  }
  const std::string detail =
      absl::StrCat(ListBlocks(ids),
                   event.has_parent_block_id() ? absl::StrCat(" after ", event.parent_block_id())
                                               : " at the root",
                   NamespaceText(event.namespace_()), KeysText(event), ExtrasText(event),
                   CopiesText(event), event.content_hidden() ? ", content hidden" : "");
  return {"stored", Style::kGreen, absl::StrCat(event.blocks_size()), absl::StrCat(tokens), detail};
}

// A Stored event of hashes. " in primary"; " in primary 3, dram 1".
Content HashContentOf(const v1::StoredEvent& event, const v1::CacheInfo& cache) {
  std::vector<uint64_t> hashes;
  std::map<v1::Tier, int> tiers;
  for (const v1::StoredBlock& block : event.blocks()) {
    hashes.push_back(block.block_hash());
    ++tiers[block.tier()];
  }
  std::vector<std::string> counts;
  for (const auto& [tier, count] : tiers) {
    const std::string name = TierText(tier, cache);
    counts.push_back(tiers.size() == 1 ? name : absl::StrCat(name, " ", count));
  }
  return {"stored", Style::kGreen, absl::StrCat(event.blocks_size()), "-",
          absl::StrCat(ListHashes(hashes), " in ", absl::StrJoin(counts, ", "), CopiesText(event))};
}

// "expired"; "prefix left, cleared".
std::string PinEndText(const v1::EndedPin& pin) {
  std::string text = EnumText(v1::PinEnd_Name(pin.why()), "PIN_END_");
  if (pin.removal() != v1::REMOVAL_REASON_UNSPECIFIED) {
    absl::StrAppend(&text, ", ", RemovalReasonText(pin.removal()));
  }
  return text;
}

// `block`: how the line names it.
Content ContentOf(const v1::UpdatedEvent& event, const std::string& block,
                  const v1::CacheInfo& cache) {
  std::string detail = block;
  if (event.has_tier()) {
    absl::StrAppend(&detail, ", tier ", TierText(event.tier().old_value(), cache), " -> ",
                    TierText(event.tier().new_value(), cache));
  }
  if (event.has_lower_tiers()) {
    absl::StrAppend(&detail, ", copies below ", TiersText(event.lower_tiers().old_value(), cache),
                    " -> ", TiersText(event.lower_tiers().new_value(), cache));
  }
  if (event.has_priority()) {
    absl::StrAppend(&detail, ", priority ", event.priority().old_value(), " -> ",
                    event.priority().new_value());
  }
  if (event.has_ended_pin()) {
    absl::StrAppend(&detail, ", pin ", event.ended_pin().pin_id(),
                    " ended: ", PinEndText(event.ended_pin()));
  }
  return {"updated", Style::kCyan, "1", "-", detail};
}

// `listed`: the text of the listed blocks, of which there are `count`.
Content ContentOf(const v1::RemovedEvent& event, int count, const std::string& listed) {
  const bool is_listed = event.scope() == v1::REMOVAL_SCOPE_UNSPECIFIED;
  const std::string blocks = is_listed                                  ? listed
                             : event.scope() == v1::REMOVAL_SCOPE_POOLS ? "the pools"
                                                                        : "the whole window";
  return {"removed", Style::kYellow, is_listed ? absl::StrCat(count) : "all", "-",
          absl::StrCat(RemovalReasonText(event.reason()), ": ", blocks)};
}

Content HashContentOf(const v1::Event& event, const v1::CacheInfo& cache) {
  switch (event.event_case()) {
    case v1::Event::kStored:
      return HashContentOf(event.stored(), cache);
    case v1::Event::kUpdated:
      return ContentOf(event.updated(), ListHashes({event.updated().block_hash()}), cache);
    case v1::Event::kRemoved: {
      const auto& hashes = event.removed().block_hashes();
      return ContentOf(event.removed(), hashes.size(), ListHashes({hashes.begin(), hashes.end()}));
    }
    default:
      return ContentOf(event, cache);
  }
}

Content ContentOf(const v1::Event& event, const v1::CacheInfo& cache) {
  switch (event.event_case()) {
    case v1::Event::kCreated:
      return ContentOf(event.created(), cache);
    case v1::Event::kStored:
      return ContentOf(event.stored());
    case v1::Event::kUpdated:
      return ContentOf(event.updated(), absl::StrCat("block ", event.updated().block_id()), cache);
    case v1::Event::kRemoved: {
      const auto& ids = event.removed().block_ids();
      return ContentOf(event.removed(), ids.size(), ListBlocks({ids.begin(), ids.end()}));
    }
    case v1::Event::EVENT_NOT_SET:
      break;
  }
  return {"unknown", Style::kRed, "-", "-", "this pagodactl is older than the daemon"};
}

constexpr char kLineFormat[] = "%10s  %-12s  %s  %-6s  %6s  %7s  %s";
// The width of the longest type.
constexpr int kTypeWidth = 7;

std::string PadRight(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

// A line about the stream itself instead of an event.
std::string MarkLine(const std::string& revision, const std::string& type,
                     const std::string& detail, const Terminal& terminal) {
  return absl::StrFormat(kLineFormat, revision, "-",
                         Paint(terminal, Style::kBold, PadRight(type, kTypeWidth)), "all", "-", "-",
                         detail);
}

}  // namespace

std::string RemovalReasonText(v1::RemovalReason reason) {
  return EnumText(v1::RemovalReason_Name(reason), "REMOVAL_REASON_");
}

namespace {

EventSummary SummaryOf(const v1::Event& event, Content content) {
  return {.revision = event.revision(),
          .time = TimeOf(event),
          .window_size = event.window_size(),
          .type = std::move(content.type),
          .style = content.style,
          .blocks = std::move(content.blocks),
          .tokens = std::move(content.tokens),
          .detail = std::move(content.detail)};
}

}  // namespace

EventSummary Summarize(const v1::Event& event, const v1::CacheInfo& cache) {
  return SummaryOf(event, ContentOf(event, cache));
}

std::string EventHeader() {
  return absl::StrFormat(kLineFormat, "REVISION", "TIME", PadRight("TYPE", kTypeWidth), "WINDOW",
                         "BLOCKS", "TOKENS", "DETAILS");
}

std::string EventLine(const v1::Event& event, const Terminal& terminal, v1::EventContent content,
                      const v1::CacheInfo& cache) {
  const bool hashes = content == v1::EVENT_CONTENT_HASHES;
  const EventSummary summary =
      SummaryOf(event, hashes ? HashContentOf(event, cache) : ContentOf(event, cache));
  return absl::StrFormat(kLineFormat, event.revision() == 0 ? "-" : absl::StrCat(event.revision()),
                         absl::FormatTime("%H:%M:%E3S", summary.time, absl::LocalTimeZone()),
                         Paint(terminal, summary.style, PadRight(summary.type, kTypeWidth)),
                         WindowName(WindowFromProto(event.window_size())), summary.blocks,
                         summary.tokens, summary.detail);
}

std::string SnapshotBeginLine(const Terminal& terminal) {
  return MarkLine("-", "begin", "a snapshot; it replaces all earlier lines", terminal);
}

std::string SnapshotEndLine(const v1::WatchResponse& message, const Terminal& terminal) {
  return MarkLine(absl::StrCat(message.revision()), "end", "the snapshot is complete", terminal);
}

}  // namespace pagoda
