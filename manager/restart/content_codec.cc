#include "manager/restart/content_codec.h"

#include "events/client_key.h"
#include "manager/restart/content_digest.h"
#include "manager/words/retention.h"

namespace pagoda {
namespace {

constexpr uint8_t kIsFirst = 1;
constexpr uint8_t kHasLora = 2;
constexpr uint8_t kHasTokenExtras = 4;
constexpr uint8_t kKeyed = 8;

}  // namespace

void PutContent(const NamespaceKey* name_space, Priority priority, const BlockKey& key,
                ByteWriter& out) {
  const bool has_extras = HasExtras(key.extras);
  const bool has_lora = name_space != nullptr && name_space->lora_id.has_value();
  out.Put(static_cast<uint8_t>((name_space != nullptr ? kIsFirst : 0) | (has_lora ? kHasLora : 0) |
                               (has_extras ? kHasTokenExtras : 0) | (key.keyed ? kKeyed : 0)));
  out.Put(priority.value());
  out.Put(static_cast<uint32_t>(key.tokens.size()));
  if (name_space != nullptr) {
    out.Put(name_space->lora_id.value_or(0));
    out.PutText(name_space->cache_salt);
    out.PutText(name_space->tenant);
  }
  out.PutBytes(key.tokens.data(), key.tokens.size() * sizeof(TokenId));
  if (has_extras) {
    for (const TokenExtra& extra : key.extras) PutExtra(extra, out);
  }
}

std::optional<CodedContent> GetContent(ByteReader& in, uint32_t tokens_per_block) {
  CodedContent content;
  const auto flags = in.Get<uint8_t>();
  content.priority = Priority{in.Get<uint8_t>()};
  const auto count = in.Get<uint32_t>();
  content.keyed = (flags & kKeyed) != 0;
  if (!in.ok() || count == 0) return std::nullopt;
  if (content.keyed ? count != ClientKey::kWords : count > tokens_per_block) return std::nullopt;
  if (content.priority.value() > kMaxPriority) return std::nullopt;
  if ((flags & kIsFirst) != 0) {
    NamespaceKey& name = content.name_space.emplace();
    const auto lora_id = in.Get<uint64_t>();
    if ((flags & kHasLora) != 0) name.lora_id = lora_id;
    name.cache_salt = in.GetText(kMaxCacheSaltBytes);
    name.tenant = in.GetText(kMaxTenantBytes);
    name.keyed = content.keyed;
  }
  content.tokens.resize(count);
  in.GetBytes(content.tokens.data(), count * sizeof(TokenId));
  if (content.keyed) {
    if (!ClientKey::FromWords(content.tokens).has_value()) return std::nullopt;
  } else if ((flags & kHasTokenExtras) != 0) {
    content.extras.reserve(count);
    for (uint32_t i = 0; i < count; ++i) content.extras.push_back(GetExtra(in));
  }
  if (!in.ok()) return std::nullopt;
  return content;
}

}  // namespace pagoda
