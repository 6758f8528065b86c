// An enumeration in the core and on the wire. One table serves both directions, so both know the
// same values.
#ifndef PAGODA_WIRE_ENUM_PAIRS_H_
#define PAGODA_WIRE_ENUM_PAIRS_H_

#include <array>
#include <cstddef>
#include <optional>

namespace pagoda {

template <class Core, class Proto>
struct EnumPair {
  Core core;
  Proto proto;
};

// clang-16 cannot yet deduce the arguments of an aggregate by itself.
template <class Core, class Proto>
EnumPair(Core, Proto) -> EnumPair<Core, Proto>;

template <class Core, class Proto, size_t N>
constexpr Proto ToProto(const std::array<EnumPair<Core, Proto>, N>& pairs, Core core) {
  for (const auto& pair : pairs) {
    if (pair.core == core) return pair.proto;
  }
  return Proto{};  // "Unspecified". The core has no values that are not in the table.
}

// nullopt for a value that this version does not know.
template <class Core, class Proto, size_t N>
constexpr std::optional<Core> FromProto(const std::array<EnumPair<Core, Proto>, N>& pairs,
                                        Proto proto) {
  for (const auto& pair : pairs) {
    if (pair.proto == proto) return pair.core;
  }
  return std::nullopt;
}

}  // namespace pagoda

#endif  // PAGODA_WIRE_ENUM_PAIRS_H_
