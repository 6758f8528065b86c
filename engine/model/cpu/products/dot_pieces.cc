#include "engine/model/cpu/products/dot_pieces.h"

#include "engine/model/cpu/products/tiles.h"

namespace pagoda {
namespace {

using kernels::cpu::Isa;
using Factors = MatMul::Factors;

// How far ahead quantised weights are read from memory.
constexpr uint64_t kPrefetchBytes = 4096;

const FloatDots& FloatDotsFor(Isa isa) {
  if (isa >= Isa::kAvx512) return kFloatDotsAvx512;
  return isa >= Isa::kAvx2 ? kFloatDotsAvx2 : kFloatDotsPortable;
}

IntegerDots IntegerDotsFor(IntegerInstructions integers) {
  switch (integers) {
    case IntegerInstructions::kAvx512Vnni:
      return IntegerDotsAvx512Vnni;
    case IntegerInstructions::kAvxVnni:
      return IntegerDotsAvxVnni;
    case IntegerInstructions::kAvx2:
      return IntegerDotsAvx2;
    case IntegerInstructions::kPortable:
      break;
  }
  return IntegerDotsPortable;
}

DotCall CallFor(const Piece& piece, const PreparedInput& input) {
  return {.weights = piece.row(0),
          .weight_row_bytes = piece.part->stride_bytes,
          .outputs = piece.count,
          .inputs = piece.inputs(),
          .rows = input.data,
          .row_bytes = input.row_bytes,
          .num_rows = piece.num_rows(),
          .output = piece.result(0),
          .output_stride = piece.output->stride};
}

// Both converted rows are written in whole steps.
uint64_t ConvertedBytes(const Piece& piece) {
  return (piece.inputs() + kTileInputs - 1) / kTileInputs * kTileInputs * sizeof(float);
}

}  // namespace

DotPieces::DotPieces(const ProductInstructions& instructions)
    : loops_(VectorLoopsFor(instructions.isa)),
      converter_(instructions),
      float_dots_(FloatDotsFor(instructions.isa)),
      integer_dots_(IntegerDotsFor(instructions.integers)) {}

uint64_t DotPieces::ScratchBytes(const Piece& piece) {
  return UnpackedRow::AlignedBytes(piece.inputs()) + ConvertedBytes(piece);
}

void DotPieces::Run(const Piece& piece, const PreparedInput& input, std::byte* scratch) const {
  const TensorType type = piece.part->type;
  if (piece.factors == Factors::kInteger) {
    MultiplyIntegers(piece, input, scratch);
  } else if (piece.factors == Factors::kBFloat16 && type == TensorType::kBFloat16) {
    BFloat16DotsAvx512(CallFor(piece, input));
  } else if (piece.factors == Factors::kBFloat16 || IsQuantised(type)) {
    MultiplyConverted(piece, input, scratch);
  } else if (type == TensorType::kFloat32) {
    float_dots_.float32(CallFor(piece, input));
  } else if (type == TensorType::kFloat16) {
    float_dots_.float16(CallFor(piece, input));
  } else {
    float_dots_.bfloat16(CallFor(piece, input));
  }
  if (piece.bias() == nullptr) return;
  for (uint64_t r = 0; r < piece.num_rows(); ++r) {
    loops_.add_bias(piece.result(r), piece.bias(), piece.count, piece.result(r));
  }
}

void DotPieces::MultiplyConverted(const Piece& piece, const PreparedInput& input,
                                  std::byte* scratch) const {
  const uint64_t inputs = piece.inputs();
  const UnpackedRow row = UnpackedRow::In(scratch, inputs);
  std::byte* const converted = scratch + UnpackedRow::AlignedBytes(inputs);
  DotCall call = CallFor(piece, input);
  call.weights = converted;
  call.outputs = 1;
  for (uint64_t o = 0; o < piece.count; ++o, ++call.output) {
    if (piece.factors == Factors::kBFloat16) {
      converter_.ToBFloat16(piece.part->type, piece.row(o), inputs, row, converted, nullptr, 64);
      BFloat16DotsAvx512(call);
    } else {
      converter_.ToFloats(piece.part->type, piece.row(o), inputs, row,
                          reinterpret_cast<float*>(converted));
      float_dots_.float32(call);
    }
  }
}

void DotPieces::MultiplyIntegers(const Piece& piece, const PreparedInput& input,
                                 std::byte* scratch) const {
  const uint64_t inputs = piece.inputs();
  const UnpackedRow row = UnpackedRow::In(scratch, inputs);
  IntegerDotCall call = {
      .weights = row,
      .padded_inputs = PaddedInputs(inputs),
      .group_elements = GroupElements(piece.part->type),
      .first = QuantisedRow::In(const_cast<std::byte*>(input.data), inputs),  // Only read.
      .row_bytes = input.row_bytes,
      .num_rows = piece.num_rows(),
      .output = piece.result(0),
      .output_stride = piece.output->stride};
  for (uint64_t o = 0; o < piece.count; ++o, ++call.output) {
    const std::byte* const source = piece.row(o);
    for (uint64_t line = 0; line < piece.part->row_bytes; line += 64) {
      __builtin_prefetch(source + line + kPrefetchBytes);
    }
    converter_.Unpack(piece.part->type, source, inputs, row);
    integer_dots_(call);
  }
}

}  // namespace pagoda
