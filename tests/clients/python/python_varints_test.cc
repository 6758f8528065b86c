#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "clients/python/native/varints.h"
#include "gtest/gtest.h"

namespace pagoda::python {
namespace {

std::string Naive(const std::vector<uint32_t>& values) {
  std::string bytes;
  for (uint32_t value : values) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

template <class Put>
std::string With(const Put& put, const std::vector<uint32_t>& values) {
  // No byte more than the contract asks for.
  std::vector<char> out(values.size() * kMaxVarintBytes + kVarintSlack);
  return std::string(out.data(), put(values, out.data()));
}

void Check(const std::vector<uint32_t>& values) {
  const std::string expected = Naive(values);
  EXPECT_EQ(With(PutVarints, values), expected);
  EXPECT_EQ(With(PutVarintsPlain, values), expected);
}

TEST(Varints, AreThoseOfTheNaiveLoop) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const unsigned most_bits = 1 + random() % 32;
    std::vector<uint32_t> values(random() % 70);
    for (uint32_t& value : values) value = static_cast<uint32_t>(random()) >> (32 - most_bits);
    Check(values);
  }
}

TEST(Varints, ChangeTheirLengthAtEachPowerOf128) {
  std::vector<uint32_t> edges = {0, 1, UINT32_MAX};
  for (int bits = 7; bits < 32; bits += 7) {
    edges.insert(edges.end(), {(1u << bits) - 1, 1u << bits, (1u << bits) + 1});
  }
  for (const uint32_t edge : edges) Check(std::vector<uint32_t>(33, edge));
  while (edges.size() < 64) edges.push_back(edges[edges.size() % 15]);
  for (size_t first = 0; first < 17; ++first) {
    Check(std::vector<uint32_t>(edges.begin() + static_cast<ptrdiff_t>(first), edges.end()));
  }
}

}  // namespace
}  // namespace pagoda::python
