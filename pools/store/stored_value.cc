#include "pools/store/stored_value.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/check.h"

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#if defined(__x86_64__)
// Its functions replace XXH3_128bits_update: they use the widest vectors of the processor, as found
// at run time. Large blocks are hashed up to half again as fast as with the vectors that each
// x86-64 has.
#include <xxh_x86dispatch.h>
#endif

namespace pagoda {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are written as they lie");

struct Fields {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  std::array<std::byte, 32> layout;
  std::array<std::byte, 32> digest;
  uint32_t window_size;
  uint32_t flags;
  uint64_t block_bytes;
  std::array<std::byte, 16> checksum;
  std::array<std::byte, 32> authentication;
};
static_assert(sizeof(Fields) == kStoredHeaderBytes);

constexpr std::array<char, 8> kMagic = {'P', 'A', 'G', 'O', 'D', 'A', 'K', 'V'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kHasAuthentication = 1;
constexpr size_t kAuthenticatedBytes = offsetof(Fields, authentication);

std::array<std::byte, 16> Canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return std::bit_cast<std::array<std::byte, 16>>(canonical);
}

// HMAC-SHA-256 of bytes that come in parts.
class Mac {
 public:
  explicit Mac(absl::string_view secret) {
    // Fetched once: it takes longer than the code of a small block.
    static EVP_MAC* const hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    context_.reset(EVP_MAC_CTX_new(hmac));
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end()};
    PAGODA_CHECK(EVP_MAC_init(context_.get(), reinterpret_cast<const uint8_t*>(secret.data()),
                              secret.size(), parameters) == 1,
                 "HMAC-SHA-256 is available");
  }

  void Update(absl::Span<const std::byte> bytes) {
    PAGODA_CHECK(EVP_MAC_update(context_.get(), reinterpret_cast<const uint8_t*>(bytes.data()),
                                bytes.size()) == 1,
                 "HMAC takes bytes");
  }

  std::array<std::byte, 32> Finish() {
    std::array<std::byte, 32> code;
    size_t size = 0;
    PAGODA_CHECK(EVP_MAC_final(context_.get(), reinterpret_cast<uint8_t*>(code.data()), &size,
                               code.size()) == 1 &&
                     size == code.size(),
                 "an HMAC-SHA-256 has 32 bytes");
    return code;
  }

 private:
  struct Free {
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
  };
  std::unique_ptr<EVP_MAC_CTX, Free> context_;
};

std::string Hex(absl::Span<const std::byte> bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// Parses lower-case hex digits, two for each byte. False: this is something else.
bool FromHex(absl::string_view text, absl::Span<std::byte> bytes) {
  if (text.size() != 2 * bytes.size() ||
      text.find_first_not_of("0123456789abcdef") != absl::string_view::npos) {
    return false;
  }
  const std::string parsed = absl::HexStringToBytes(text);
  std::memcpy(bytes.data(), parsed.data(), bytes.size());
  return true;
}

// The header's fields without checksum and authentication code.
Fields FieldsOf(const StoreKey& key, uint64_t block_bytes) {
  Fields fields = {};
  fields.magic = kMagic;
  fields.version = kVersion;
  fields.header_bytes = kStoredHeaderBytes;
  fields.layout = key.layout;
  fields.digest = key.digest;
  fields.window_size = key.window_size;
  fields.block_bytes = block_bytes;
  return fields;
}

absl::Span<const std::byte> Authenticated(const Fields& fields) {
  return {reinterpret_cast<const std::byte*>(&fields), kAuthenticatedBytes};
}

}  // namespace

std::array<std::byte, 32> NameDigest(absl::string_view secret,
                                     const std::array<std::byte, 32>& digest) {
  if (secret.empty()) return digest;
  Mac mac(secret);
  mac.Update(digest);
  return mac.Finish();
}

std::optional<ParsedName> ParseStoredName(absl::string_view prefix, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, prefix)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, ':');
  ParsedName parsed;
  if (parts.size() != 4 || parts[0] != absl::StrCat("v", kVersion) ||
      !FromHex(parts[1], absl::MakeSpan(parsed.layout)) ||
      !absl::SimpleAtoi(parts[2], &parsed.window_size) ||
      parts[2] != absl::StrCat(parsed.window_size) ||
      !FromHex(parts[3], absl::MakeSpan(parsed.digest))) {
    return std::nullopt;
  }
  return parsed;
}

std::string StoredName(absl::string_view prefix, absl::string_view secret, const StoreKey& key) {
  const std::array<std::byte, 32> name = NameDigest(secret, key.digest);
  return absl::StrCat(prefix, "v", kVersion, ":", Hex(absl::MakeSpan(key.layout).first(16)), ":",
                      key.window_size, ":", Hex(name));
}

std::array<std::byte, 16> ChecksumOf(absl::Span<const std::byte> bytes) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, bytes.data(), bytes.size());
  return Canonical(XXH3_128bits_digest(&state));
}

StoredHeader MakeStoredHeader(const StoreKey& key, absl::string_view secret,
                              absl::Span<const absl::Span<const std::byte>> pieces) {
  uint64_t block_bytes = 0;
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const absl::Span<const std::byte> piece : pieces) {
    block_bytes += piece.size();
    XXH3_128bits_update(&state, piece.data(), piece.size());
  }
  Fields fields = FieldsOf(key, block_bytes);
  fields.checksum = Canonical(XXH3_128bits_digest(&state));
  if (!secret.empty()) {
    fields.flags = kHasAuthentication;
    Mac mac(secret);
    mac.Update(Authenticated(fields));
    for (const absl::Span<const std::byte> piece : pieces) mac.Update(piece);
    fields.authentication = mac.Finish();
  }
  return std::bit_cast<StoredHeader>(fields);
}

struct StoredValueReader::Hashes {
  XXH3_state_t checksum;
  std::unique_ptr<Mac> mac;
};

StoredValueReader::StoredValueReader(const StoreKey& key, absl::string_view secret,
                                     absl::Span<const absl::Span<std::byte>> pieces)
    : key_(key), secret_(secret), pieces_(pieces), block_bytes_([pieces] {
        uint64_t bytes = 0;
        for (const absl::Span<std::byte> piece : pieces) bytes += piece.size();
        return bytes;
      }()) {}

StoredValueReader::~StoredValueReader() = default;

void StoredValueReader::Begin(uint64_t value_bytes) {
  header_bytes_ = piece_ = offset_ = 0;
  hashes_.reset();
  fault_ = ValueFault::kTruncated;
  is_done_ = is_dropped_;
  // A value that is too short for a header is not one of ours.
  if (value_bytes < kStoredHeaderBytes) {
    fault_ = ValueFault::kForeign;
    is_done_ = true;
  } else if (value_bytes != kStoredHeaderBytes + block_bytes_) {
    is_done_ = true;  // fault_ is kTruncated.
  }
}

size_t StoredValueReader::Places(absl::Span<iovec> places) {
  if (is_done_ || places.empty()) return 0;
  if (header_bytes_ < kStoredHeaderBytes) {
    places[0] = {header_.data() + header_bytes_, kStoredHeaderBytes - header_bytes_};
    return 1;
  }
  size_t count = 0;
  size_t offset = offset_;
  for (size_t i = piece_; i < pieces_.size() && count < places.size(); ++i) {
    const absl::Span<std::byte> rest = pieces_[i].subspan(offset);
    places[count++] = {rest.data(), rest.size()};
    offset = 0;
  }
  return count;
}

void StoredValueReader::Advance(size_t bytes) {
  if (header_bytes_ < kStoredHeaderBytes) {
    header_bytes_ += bytes;
    if (header_bytes_ == kStoredHeaderBytes) CheckHeader();
    bytes = 0;
  }
  // Ends at the next piece that has bytes.
  while (!is_done_ && header_bytes_ == kStoredHeaderBytes) {
    const absl::Span<const std::byte> rest = pieces_[piece_].subspan(offset_);
    const size_t taken = std::min(bytes, rest.size());
    TakeBytes(rest.first(taken));
    bytes -= taken;
    offset_ += taken;
    if (offset_ < pieces_[piece_].size()) return;
    offset_ = 0;
    if (++piece_ == pieces_.size()) is_done_ = true;
  }
}

void StoredValueReader::TakeBytes(absl::Span<const std::byte> bytes) {
  XXH3_128bits_update(&hashes_->checksum, bytes.data(), bytes.size());
  if (hashes_->mac != nullptr) hashes_->mac->Update(bytes);
}

void StoredValueReader::CheckHeader() {
  const auto fields = std::bit_cast<Fields>(header_);
  Fields expected = FieldsOf(key_, block_bytes_);
  const bool is_ours = fields.magic == expected.magic && fields.version == expected.version &&
                       fields.header_bytes == expected.header_bytes &&
                       fields.layout == expected.layout && fields.flags <= kHasAuthentication;
  if (!is_ours) {
    fault_ = ValueFault::kForeign;
  } else if (fields.digest != expected.digest || fields.window_size != expected.window_size) {
    fault_ = ValueFault::kSwapped;
  } else if (fields.block_bytes != expected.block_bytes) {
    fault_ = ValueFault::kTruncated;
  } else if (!secret_.empty() && fields.flags != kHasAuthentication) {
    fault_ = ValueFault::kForged;
  } else {
    hashes_ = std::make_unique<Hashes>();
    XXH3_128bits_reset(&hashes_->checksum);
    if (!secret_.empty()) {
      hashes_->mac = std::make_unique<Mac>(secret_);
      hashes_->mac->Update(Authenticated(fields));
    }
    is_done_ = pieces_.empty();
    return;
  }
  is_done_ = true;
}

void StoredValueReader::Drop() {
  is_done_ = is_dropped_ = true;
  pieces_ = {};
  hashes_.reset();
}

ValueFault StoredValueReader::Finish() {
  if (hashes_ == nullptr || piece_ < pieces_.size()) return fault_;
  const auto fields = std::bit_cast<Fields>(header_);
  if (fields.checksum != Canonical(XXH3_128bits_digest(&hashes_->checksum))) {
    return ValueFault::kDamaged;
  }
  if (hashes_->mac != nullptr) {
    const std::array<std::byte, 32> code = hashes_->mac->Finish();
    if (CRYPTO_memcmp(code.data(), fields.authentication.data(), code.size()) != 0) {
      return ValueFault::kForged;
    }
  }
  return ValueFault::kNone;
}

}  // namespace pagoda
