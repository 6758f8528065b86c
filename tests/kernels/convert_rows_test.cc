// Every implementation of a conversion against the plain one, bit by bit.
#include "kernels/cpu/vectors/convert_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/numeric.h"

namespace pagoda::kernels::cpu {
namespace {

constexpr ElementType kAll[] = {ElementType::kFloat32, ElementType::kFloat16,
                                ElementType::kBFloat16, ElementType::kFloat8E4M3,
                                ElementType::kFloat8E5M2};
constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512};

// Elements of any bits: every pattern of 8 and 16 bits, and random patterns of 32 bits. Half of the
// latter have exponents that the other types support.
std::vector<std::byte> AnyBits(ElementType type, uint64_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(count * ElementBytes(type));
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t exponent = i % 2 == 0 ? random() % 256 : 127 - 26 + random() % 45;
    const uint32_t of32 = (random() & 0x807fffffu) | exponent << 23;
    const auto bits = type == ElementType::kFloat32 ? of32 : static_cast<uint32_t>(i);
    std::memcpy(bytes.data() + i * ElementBytes(type), &bits, ElementBytes(type));
  }
  return bytes;
}

// The result of numeric.h for an element.
float Expected(ElementType from, ElementType to, const std::byte* source, float scale) {
  float value = VisitElementType(from, [&]<class From>() {
    From element;
    std::memcpy(&element, source, sizeof(element));
    return ToFloat(element);
  });
  if (IsFloat8(from)) value *= scale;
  if (IsFloat8(to)) value /= scale;
  return VisitElementType(to, [&]<class To>() { return ToFloat(FromFloat<To>(value)); });
}

float Read(ElementType type, const std::byte* source) {
  return VisitElementType(type, [&]<class T>() {
    T element;
    std::memcpy(&element, source, sizeof(element));
    return ToFloat(element);
  });
}

std::string Name(Isa isa, ElementType from, ElementType to) {
  return std::string(IsaName(isa)) + ", type " + std::to_string(static_cast<int>(from)) + " to " +
         std::to_string(static_cast<int>(to));
}

TEST(ConvertRowsTest, EveryValueOfEveryTypeAsNumericSays) {
  constexpr uint64_t kCount = 1 << 16;
  for (const ElementType from : kAll) {
    const std::vector<std::byte> source = AnyBits(from, kCount);
    for (const ElementType to : kAll) {
      if (from == to || (IsFloat8(from) && IsFloat8(to))) continue;
      const uint64_t to_bytes = ElementBytes(to);
      std::vector<std::byte> memory(kCount * to_bytes + kStreamAlignment);
      std::byte* target =
          memory.data() + (-reinterpret_cast<uintptr_t>(memory.data()) & (kStreamAlignment - 1));
      for (const float scale : {1.0f, 0.25f, 0.37f}) {
        for (const Isa isa : kIsas) {
          if (isa > BestIsa()) continue;
          for (const Stores stores : {Stores::kThroughCaches, Stores::kPastCaches}) {
            FindConversion(from, to, isa, stores)(
                {.source = source.data(), .target = target, .num_rows = 1, .row_elements = kCount},
                scale);
            FenceStores();
            for (uint64_t i = 0; i < kCount; ++i) {
              const float expected =
                  Expected(from, to, source.data() + i * ElementBytes(from), scale);
              const float actual = Read(to, target + i * to_bytes);
              if (std::isnan(expected)) {
                ASSERT_TRUE(std::isnan(actual)) << Name(isa, from, to) << ", element " << i;
                continue;
              }
              ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected))
                  << Name(isa, from, to) << ", element " << i << ", scale " << scale;
            }
          }
        }
      }
    }
  }
}

// Rows of every length up to a few vectors, with gaps between them, at unaligned addresses.
TEST(ConvertRowsTest, TouchesTheElementsOfItsRowsAlone) {
  constexpr uint64_t kRows = 3, kRoom = 150;
  for (const ElementType from : kAll) {
    for (const ElementType to : kAll) {
      if (from != to && IsFloat8(from) && IsFloat8(to)) continue;
      const uint64_t from_bytes = ElementBytes(from), to_bytes = ElementBytes(to);
      const std::vector<std::byte> source = AnyBits(from, kRows * kRoom);
      for (const Isa isa : kIsas) {
        if (isa > BestIsa()) continue;
        const ConvertRows convert = FindConversion(from, to, isa, Stores::kThroughCaches);
        const ConvertRows plain = FindPortableConversion(from, to);
        for (uint64_t count = 0; count <= 130; count += count < 70 ? 1 : 7) {
          std::vector<std::byte> actual(kRows * kRoom * to_bytes, std::byte{0xa5});
          std::vector<std::byte> expected = actual;
          Rows rows{.source = source.data() + from_bytes,
                    .source_stride_bytes = (kRoom - 3) * from_bytes,
                    .num_rows = kRows,
                    .row_elements = count};
          rows.target_stride_bytes = (kRoom - 5) * to_bytes;
          rows.target = actual.data() + to_bytes;
          convert(rows, 1.0f);
          rows.target = expected.data() + to_bytes;
          plain(rows, 1.0f);
          for (uint64_t i = 0; i < kRows * kRoom; ++i) {
            const std::byte* a = actual.data() + i * to_bytes;
            const std::byte* e = expected.data() + i * to_bytes;
            if (std::memcmp(a, e, to_bytes) == 0) continue;
            ASSERT_TRUE(std::isnan(Read(to, a)) && std::isnan(Read(to, e)) && from != to)
                << Name(isa, from, to) << ", rows of " << count << ", element " << i;
          }
        }
      }
    }
  }
}

TEST(ExactReciprocalTest, IsOfPowersOfTwoAlone) {
  EXPECT_EQ(ExactReciprocal(1.0f), 1.0f);
  EXPECT_EQ(ExactReciprocal(0.125f), 8.0f);
  EXPECT_EQ(ExactReciprocal(-4.0f), -0.25f);
  EXPECT_EQ(ExactReciprocal(0x1p-126f), 0x1p126f);
  EXPECT_EQ(ExactReciprocal(0x1p126f), 0x1p-126f);
  for (const float scale :
       {0.0f, 3.0f, 0x1p127f, 0x1p-127f, 0x1.000002p0f, std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(ExactReciprocal(scale), 0.0f) << scale;
  }
}

}  // namespace
}  // namespace pagoda::kernels::cpu
