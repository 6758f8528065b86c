#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PREPARED_INPUTS_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PREPARED_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/cpu/loops/host_memory.h"
#include "engine/model/cpu/products/instructions.h"
#include "kernels/execution/execution.h"

namespace pagoda {

// The form in which a product takes its activations.
enum class InputForm : uint8_t {
  kAsTheyAre,   // Rows of fp32 in place.
  kFloats,      // [rows][inputs] of fp32, contiguous.
  kBFloat16,    // [rows][inputs] of bf16, contiguous.
  kIntegers,    // QuantisedRow, one behind the other.
  kTiles,       // Groups of rows for tiles, rounded to bf16.
  kSplitTiles,  // The same groups, and behind all of them the low parts.
};

// An input in a form. All arrays are aligned to 64 bytes.
struct PreparedInput {
  const std::byte* data = nullptr;
  uint64_t row_bytes = 0;  // From a row, or from a group of kTileRows rows, to the next one.
  const std::byte* low = nullptr;
};

// The inputs of a call of MultiplyEach, converted once for all of its products. Keeps its memory
// from call to call. Thread-compatible.
class PreparedInputs {
 public:
  PreparedInputs(const kernels::cpu::Execution& execution, const ProductInstructions& instructions)
      : execution_(execution), instructions_(instructions) {}

  // Starts a call. Inputs of the call before become invalid.
  void Clear() { wanted_.clear(); }
  // Asks for an input with memory for at least `rows` rows: the code of oneDNN reads more rows than
  // there are. Returns its number. The same rows in the same form have one number.
  size_t Want(const RowsView& rows, InputForm form, uint64_t least_rows);
  // Converts everything that was asked for. Errors: OUT_OF_MEMORY.
  absl::Status Prepare();
  const PreparedInput& at(size_t number) const { return wanted_[number].prepared; }

 private:
  struct Wanted {
    RowsView rows;
    InputForm form;
    uint64_t least_rows;
    PreparedInput prepared;
  };
  uint64_t BytesOf(Wanted& wanted) const;
  void Convert(const Wanted& wanted, std::byte* target) const;

  const kernels::cpu::Execution execution_;
  const ProductInstructions instructions_;
  std::vector<Wanted> wanted_;
  HostMemory memory_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_PREPARED_INPUTS_H_
