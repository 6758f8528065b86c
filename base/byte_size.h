// Numbers of bytes as people write them: "64MiB", "1.5TB", "4096".
#ifndef PAGODA_BASE_BYTE_SIZE_H_
#define PAGODA_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pagoda {

// What ParseByteSize reads, for error messages.
inline constexpr char kByteSizeForms[] =
    "bytes such as 8GiB, 1.5TB or 44MB (B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB)";

// Parses `NUMBER`, `NUMBER UNIT` or `NUMBERUNIT`, with at most one blank between them.
//
// * NUMBER is decimal digits, at most one point among them, and neither a sign nor an exponent. A
//   number with a point needs a unit above B. The result is rounded up to a whole byte, so it is 0
//   only for 0.
// * UNIT is B; the decimal KB, MB, GB, TB, PB of drives, and kB for KB; or the binary KiB, MiB,
//   GiB, TiB, PiB. A number without a unit is bytes.
//
// Returns nothing for any other text, for 2^64 bytes or more, and for a number whose digits are
// 2^64 or more without their point.
std::optional<uint64_t> ParseByteSize(absl::string_view text);

// The same, but a number without a unit is refused. For an option in which it would be something
// else, such as blocks, or could be taken for it.
std::optional<uint64_t> ParseByteSizeWithUnit(absl::string_view text);

// The shortest text that ParseByteSize reads back to the same number, without a point or a blank.
// Among equally short texts it prefers the number without a unit, then the largest unit.
std::string ByteSizeText(uint64_t bytes);
// The same for ParseByteSizeWithUnit: "0B", "100B", "8GiB", "1KiB".
std::string ByteSizeTextWithUnit(uint64_t bytes);

}  // namespace pagoda

#endif  // PAGODA_BASE_BYTE_SIZE_H_
