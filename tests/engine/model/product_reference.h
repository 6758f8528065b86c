// What products should be, in fp64.
#ifndef PAGODA_TESTS_ENGINE_MODEL_PRODUCT_REFERENCE_H_
#define PAGODA_TESTS_ENGINE_MODEL_PRODUCT_REFERENCE_H_

#include <vector>

#include "engine/model/cpu/products/matmul.h"
#include "tests/engine/model/stored_matrix.h"

namespace pagoda {

// A row of activations as the factors of a product: itself, or rounded to bf16, or quantised in
// blocks of 32 by plain loops.
std::vector<float> AsFactors(const GuardedRows& rows, uint64_t row, uint64_t cols,
                             MatMul::Factors factors);

// Multiplies parts one above the other by random rows, and expects of every result:
//  * It differs from the sum in fp64 of the factors, as they are rounded, by at most 1e-5 * (1 +
//    the root of the sum of the squared terms). For kSplit, 3 * 2^-17 of each term is added.
//  * It differs from the product with the activations and weights before they were rounded by what
//    the rounding can change: half a step of each quantised activation; about 2^-7 of each term of
//    bf16.
// And that nothing is written outside of the results. `bias` is empty or has a number per output.
struct ProductCase {
  const std::vector<StoredMatrix>& parts;
  std::vector<float> bias = {};
  ComputeType compute = ComputeType::kAuto;
  uint64_t num_rows = 1;
  uint32_t num_threads = 1;
  ProductInstructions instructions = BestInstructions();
};
void ExpectProduct(const ProductCase& product, std::mt19937& random);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_MODEL_PRODUCT_REFERENCE_H_
