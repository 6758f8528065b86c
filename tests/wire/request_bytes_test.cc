#include "wire/request_bytes.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "wire/token_varints.h"

namespace pagoda {
namespace {

// What protobuf makes of the bytes; "?" if it refuses them.
std::string ByProtobuf(const std::string& bytes) {
  v1::SessionRequest request;
  return request.ParseFromString(bytes) ? request.SerializeAsString() : "?";
}

std::string ByParser(const std::string& bytes) {
  // From a buffer of exactly these bytes, so that the address sanitizer sees a read behind them.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  v1::SessionRequest request;
  return ParseSessionRequest({exact.data(), exact.size()}, &request) ? request.SerializeAsString()
                                                                     : "?";
}

std::string Tokens(std::mt19937& random, size_t count) {
  const unsigned most_bits = 1 + random() % 32;
  v1::MatchPrefixRequest request;
  for (size_t i = 0; i < count; ++i) {
    request.add_tokens(static_cast<uint32_t>(random()) >> (32 - most_bits));
  }
  return request.SerializeAsString();
}

// A request whose operations have prompts of up to 1,500 tokens.
v1::SessionRequest RandomRequest(std::mt19937& random) {
  v1::SessionRequest request;
  request.mutable_session()->set_session_id(random());
  if (random() % 2 == 0) request.set_batch_id(random());
  request.mutable_batch()->set_retry_id(random() % 3);
  const int operations = 1 + static_cast<int>(random() % 3);
  for (int i = 0; i < operations; ++i) {
    v1::Operation* operation = request.mutable_batch()->add_operations();
    v1::MatchPrefixRequest tokens;
    tokens.ParseFromString(Tokens(random, random() % 1500));
    switch (random() % 5) {
      case 0:
        *operation->mutable_match_prefix() = tokens;
        break;
      case 1:
        *operation->mutable_query_capacity()->mutable_tokens() = tokens.tokens();
        operation->mutable_query_capacity()->set_max_new_tokens(random());
        break;
      case 2:
        *operation->mutable_append_tokens()->mutable_tokens() = tokens.tokens();
        break;
      case 3:
        operation->mutable_allocate_blocks()->set_count(random());
        break;
      default:
        operation->mutable_add_sequence()->set_sequence_id(random());
        *operation->mutable_add_sequence()->mutable_tokens() = tokens.tokens();
        operation->mutable_add_sequence()->mutable_namespace_()->set_cache_salt("salt");
        operation->mutable_add_sequence()->add_keys("key");
    }
  }
  return request;
}

TEST(RequestBytes, AreParsedAsProtobufParsesThem) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = RandomRequest(random).SerializeAsString();
    EXPECT_EQ(ByParser(bytes), ByProtobuf(bytes));
  }
}

TEST(RequestBytes, OfAnyKindAreParsedAsProtobufParsesThem) {
  std::mt19937 random(2);
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = RandomRequest(random).SerializeAsString();
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      // Often near the beginning, where the lengths and tags are.
      const size_t place = random() % (random() % 2 == 0 ? bytes.size() : bytes.size() % 64 + 1);
      switch (random() % 4) {
        case 0:
          bytes.resize(place);
          break;
        case 1:
          bytes.insert(place, 1 + random() % 3, static_cast<char>(random()));
          break;
        default:
          bytes[place % bytes.size()] = static_cast<char>(random() % 3 == 0 ? 0x80 : random());
      }
      if (bytes.empty()) break;
    }
    const std::string expected = ByProtobuf(bytes);
    refused += expected == "?" ? 1 : 0;
    ASSERT_EQ(ByParser(bytes), expected);
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 5500);
}

TEST(RequestBytes, WithSeveralFormsOfOneFieldAreMergedAsProtobufMergesThem) {
  v1::SessionRequest request;
  request.mutable_batch()->add_operations()->mutable_add_sequence()->set_sequence_id(3);
  v1::AddSequenceRequest* add =
      request.mutable_batch()->mutable_operations(0)->mutable_add_sequence();
  for (uint32_t i = 0; i < 1000; ++i) add->add_tokens(i * 77);
  const std::string one = add->SerializeAsString();
  const auto field = [](int number, const std::string& content) {
    std::string bytes(1, static_cast<char>(number << 3 | 2));
    for (size_t size = content.size(); bytes.size() < 6; size >>= 7) {
      bytes.push_back(static_cast<char>(size >= 0x80 ? size | 0x80 : size));
      if (size < 0x80) break;
    }
    return bytes + content;
  };
  const auto batch_of = [&](const std::string& add_bytes) {
    return field(2, field(1, field(3, add_bytes)));
  };
  const std::string whole = batch_of(one);
  ASSERT_EQ(whole, request.SerializeAsString());
  v1::MatchPrefixRequest other;
  other.add_tokens(5);
  const std::string match = other.SerializeAsString();
  const std::string loose_token = "\x10\x05";  // One token that is not packed.
  const std::string unknown = field(15, "unknown");
  int forms = 0;
  for (const std::string& bytes :
       {whole + whole, batch_of(one + one), batch_of(one + loose_token),
        batch_of(loose_token + one), batch_of(one + unknown), batch_of(unknown + one),
        unknown + whole, whole + unknown, field(2, field(1, field(3, one) + field(3, one))),
        field(2, field(1, field(3, one) + field(8, match))),
        field(2, unknown + field(1, field(3, one))), field(2, field(1, field(3, one)) + unknown)}) {
    EXPECT_NE(ByProtobuf(bytes), "?") << forms;
    EXPECT_EQ(ByParser(bytes), ByProtobuf(bytes)) << forms;
    ++forms;
  }
}

TEST(TokenVarints, AreReadAsProtobufReadsThem) {
  std::mt19937 random(4);
  for (int round = 0; round < 5000; ++round) {
    std::string packed = Tokens(random, 1 + random() % 200);
    packed.erase(0, packed.find('\x0a') + 2 + (packed[1] < 0 ? 1 : 0));
    if (random() % 4 == 0) packed[random() % packed.size()] = static_cast<char>(random());
    std::string field = "\x0a";
    if (packed.size() >= 0x80) field.push_back(static_cast<char>(packed.size() | 0x80));
    field.push_back(static_cast<char>(packed.size() >= 0x80 ? packed.size() >> 7 : packed.size()));
    v1::MatchPrefixRequest expected;
    const bool good = expected.ParseFromString(field + packed);
    const std::vector<char> exact(packed.begin(), packed.end());
    const absl::string_view bytes(exact.data(), exact.size());
    for (const auto read : {ReadVarints, ReadVarintsPlain}) {
      std::vector<uint32_t> values(CountVarints(bytes));
      const bool was_read = read(bytes, values.data());
      // Protobuf also takes varints of six to ten bytes.
      if (was_read) {
        EXPECT_TRUE(good);
        EXPECT_EQ(values,
                  std::vector<uint32_t>(expected.tokens().begin(), expected.tokens().end()));
      }
      if (round % 4 != 0 && good && !was_read) {
        size_t longest = 0, size = 0;
        for (const char byte : packed) {
          longest = std::max(longest, ++size);
          if (byte >= 0) size = 0;
        }
        EXPECT_GT(longest, 5u);
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
