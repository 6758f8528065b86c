// Lists of fixed-width rows in one field of bytes: see BlockHandle in types.proto. The core's
// struct is the row, so a list is copied as a whole.
#ifndef PAGODA_WIRE_ROWS_H_
#define PAGODA_WIRE_ROWS_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pagoda {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

// `Row` consists of uint32 fields in the order of the wire, or is a number of the wire.
template <class Row>
std::string_view RowBytes(absl::Span<const Row> rows) {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % 4 == 0);
  return {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row)};
}
template <class Row>
std::string RowsToBytes(absl::Span<const Row> rows) {
  return std::string(RowBytes(rows));
}

// nullopt: the bytes are not whole rows.
template <class Row>
std::optional<std::vector<Row>> RowsFromBytes(absl::string_view bytes) {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % 4 == 0);
  if (bytes.size() % sizeof(Row) != 0) return std::nullopt;
  std::vector<Row> rows(bytes.size() / sizeof(Row));
  if (!rows.empty()) std::memcpy(rows.data(), bytes.data(), bytes.size());
  return rows;
}

// A row of AppendStepResult.grown.
struct GrowthRow {
  uint32_t index;
  uint32_t first_block;
  uint32_t blocks;
};

}  // namespace pagoda

#endif  // PAGODA_WIRE_ROWS_H_
