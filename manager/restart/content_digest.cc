#include "manager/restart/content_digest.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"

namespace pagoda {

// The function is fetched once: a look-up by name costs more than hashing a block's tokens.
struct ContentDigester::Sha256 {
  EVP_MD* const function = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();

  Sha256() = default;
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256() {
    EVP_MD_CTX_free(context);
    EVP_MD_free(function);
  }
};

void PutExtra(const TokenExtra& extra, ByteWriter& out) {
  out.Put(extra.extra_id);
  for (const uint64_t word : extra.digest) out.Put(word);
  out.Put(extra.item_offset);
  out.Put(static_cast<uint8_t>(extra.in_item));
}

TokenExtra GetExtra(ByteReader& in) {
  TokenExtra extra;
  extra.extra_id = in.Get<uint64_t>();
  for (uint64_t& word : extra.digest) word = in.Get<uint64_t>();
  extra.item_offset = in.Get<uint32_t>();
  extra.in_item = in.Get<uint8_t>() != 0;
  return extra;
}

bool HasExtras(absl::Span<const TokenExtra> extras) {
  return std::any_of(extras.begin(), extras.end(),
                     [](const TokenExtra& extra) { return extra != TokenExtra{}; });
}

ContentDigester::ContentDigester() : sha256_(std::make_unique<Sha256>()) {
  PAGODA_CHECK(sha256_->function != nullptr && sha256_->context != nullptr, "there is SHA-256");
}

ContentDigester::~ContentDigester() = default;

ContentDigest ContentDigester::OfNamespace(const NamespaceKey& key) {
  buffer_.clear();
  ByteWriter out(&buffer_);
  out.Put(uint8_t{'N'});
  out.Put(static_cast<uint8_t>((key.lora_id.has_value() ? 1 : 0) | (key.keyed ? 2 : 0)));
  out.Put(key.lora_id.value_or(0));
  out.PutText(key.cache_salt);
  out.PutText(key.tenant);
  return OfBytes(buffer_);
}

ContentDigest ContentDigester::OfBlock(const ContentDigest& parent, const BlockKey& key) {
  buffer_.clear();
  ByteWriter out(&buffer_);
  out.Put(uint8_t{'B'});
  out.PutBytes(parent.bytes.data(), parent.bytes.size());
  out.Put(static_cast<uint32_t>(key.tokens.size()));
  out.PutBytes(key.tokens.data(), key.tokens.size() * sizeof(TokenId));
  const bool has_extras = HasExtras(key.extras);
  out.Put(static_cast<uint8_t>((has_extras ? 1 : 0) | (key.keyed ? 2 : 0)));
  if (has_extras) {
    for (const TokenExtra& extra : key.extras) PutExtra(extra, out);
  }
  return OfBytes(buffer_);
}

ContentDigest ContentDigester::OfBytes(absl::Span<const std::byte> bytes) {
  ContentDigest digest;
  const bool hashed =
      EVP_DigestInit_ex2(sha256_->context, sha256_->function, nullptr) == 1 &&
      EVP_DigestUpdate(sha256_->context, bytes.data(), bytes.size()) == 1 &&
      EVP_DigestFinal_ex(sha256_->context, reinterpret_cast<unsigned char*>(digest.bytes.data()),
                         nullptr) == 1;
  PAGODA_CHECK(hashed, "SHA-256 does not fail");
  return digest;
}

}  // namespace pagoda
