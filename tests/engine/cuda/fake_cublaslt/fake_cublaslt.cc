// A libcublasLt.so for tests on machines without a GPU. It has the calls of cublaslt_calls.def,
// over host memory, as NVIDIA's documentation describes them. It refuses everything that a real
// library would refuse or misread: unknown attributes, leading dimensions below a column's length,
// products whose shapes do not fit together, and an algorithm that its heuristic did not give for
// exactly these sizes.
#include <cublasLt.h>

#include <cstdint>
#include <cstring>
#include <map>

#include "kernels/numeric.h"

namespace {

using pagoda::kernels::BFloat16;
using pagoda::kernels::Half;
using pagoda::kernels::ToFloat;

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const float* bias = nullptr;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows;
  uint64_t cols;
  int64_t leading_dimension;
};
struct Preference {
  uint64_t workspace_bytes = 0;
  std::map<int, uint32_t> alignments;  // By attribute.
};

template <class T, class Handle>
T* As(Handle handle) {
  return reinterpret_cast<T*>(handle);
}

// Column-major: element (row, col) is at row + col * leading_dimension.
float ElementOf(const Layout& layout, const void* data, uint64_t row, uint64_t col) {
  const uint64_t index = row + col * static_cast<uint64_t>(layout.leading_dimension);
  switch (layout.type) {
    case CUDA_R_16F:
      return ToFloat(static_cast<const Half*>(data)[index]);
    case CUDA_R_16BF:
      return ToFloat(static_cast<const BFloat16*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

struct Sizes {
  uint64_t m, n, k;
};

// False if the shapes, types and leading dimensions are not a product's.
bool SizesOf(const Description& operation, const Layout& a, const Layout& b, const Layout& d,
             Sizes& sizes) {
  for (const Layout* layout : {&a, &b, &d}) {
    if (layout->leading_dimension < static_cast<int64_t>(layout->rows)) return false;
  }
  const bool a_turned = operation.transpose_a == CUBLAS_OP_T;
  const bool b_turned = operation.transpose_b == CUBLAS_OP_T;
  sizes = {.m = a_turned ? a.cols : a.rows,
           .n = b_turned ? b.rows : b.cols,
           .k = a_turned ? a.rows : a.cols};
  const bool pedantic = operation.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
  return operation.scale == CUDA_R_32F && (pedantic || operation.compute == CUBLAS_COMPUTE_32F) &&
         a.type == b.type && d.type == CUDA_R_32F && sizes.k == (b_turned ? b.cols : b.rows) &&
         sizes.m == d.rows && sizes.n == d.cols && sizes.m > 0 && sizes.n > 0 && sizes.k > 0;
}

bool IsAligned(const void* address, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// What an algorithm holds here: the sizes that it is for, and the alignments that it asks for.
struct Algorithm {
  uint64_t m, n, k;
  uint32_t alignment_a, alignment_b, alignment_d;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

uint64_t heuristics = 0;
uint64_t descriptions = 0;
bool refuses_biases = false;

}  // namespace

extern "C" {

// How often an algorithm was asked for.
uint64_t fakeCublasLtHeuristics() { return heuristics; }
// How many descriptions of operations and layouts were made.
uint64_t fakeCublasLtDescriptions() { return descriptions; }
// From now on, whether there is an algorithm that adds a bias.
void fakeCublasLtRefuseBiases(bool refuse) { refuses_biases = refuse; }

size_t cublasLtGetVersion() { return 130002; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "another status";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  ++descriptions;
  *made = As<cublasLtMatmulDescOpaque_t>(new Description{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete As<Description>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Description& held = *As<Description>(description);
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(held.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(held.transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(held.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(held.bias);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t leading_dimension) {
  ++descriptions;
  *made = As<cublasLtMatrixLayoutOpaque_t>(new Layout{type, rows, cols, leading_dimension});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete As<Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = As<cublasLtMatmulPreferenceOpaque_t>(new Preference());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete As<Preference>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  Preference& held = *As<Preference>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof(uint64_t)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&held.workspace_bytes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&held.alignments[attribute], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  Sizes sizes;
  if (wanted < 1 || As<Layout>(c)->type != CUDA_R_32F ||
      !SizesOf(*As<Description>(operation), *As<Layout>(a), *As<Layout>(b), *As<Layout>(d),
               sizes)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const int32_t epilogue = As<Description>(operation)->epilogue;
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_BIAS) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (epilogue == CUBLASLT_EPILOGUE_BIAS && refuses_biases) return CUBLAS_STATUS_NOT_SUPPORTED;
  // What is not said is 256 bytes, which not every product has.
  const auto alignment = [&](int attribute) {
    const std::map<int, uint32_t>& said = As<Preference>(preference)->alignments;
    const auto it = said.find(attribute);
    return it == said.end() ? 256 : it->second;
  };
  const Algorithm algorithm = {sizes.m,
                               sizes.n,
                               sizes.k,
                               alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                               alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
                               alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  ++heuristics;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data,
                              cublasLtMatrixLayout_t, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t) {
  const Description& held = *As<Description>(operation);
  const Layout& a_layout = *As<Layout>(a);
  const Layout& b_layout = *As<Layout>(b);
  const Layout& d_layout = *As<Layout>(d);
  Sizes sizes;
  Algorithm chosen;
  std::memcpy(&chosen, algo, sizeof(chosen));
  if (!SizesOf(held, a_layout, b_layout, d_layout, sizes) || chosen.m != sizes.m ||
      chosen.n != sizes.n || chosen.k != sizes.k || !IsAligned(a_data, chosen.alignment_a) ||
      !IsAligned(b_data, chosen.alignment_b) || !IsAligned(d_data, chosen.alignment_d) ||
      (held.epilogue == CUBLASLT_EPILOGUE_BIAS && held.bias == nullptr) || c_data != d_data ||
      workspace == nullptr || workspace_bytes == 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const float factor = *static_cast<const float*>(alpha);
  const float before = *static_cast<const float*>(beta);
  auto* const output = static_cast<float*>(d_data);
  for (uint64_t col = 0; col < sizes.n; ++col) {
    for (uint64_t row = 0; row < sizes.m; ++row) {
      float sum = 0;
      for (uint64_t i = 0; i < sizes.k; ++i) {
        const bool a_turned = held.transpose_a == CUBLAS_OP_T;
        const bool b_turned = held.transpose_b == CUBLAS_OP_T;
        sum += ElementOf(a_layout, a_data, a_turned ? i : row, a_turned ? row : i) *
               ElementOf(b_layout, b_data, b_turned ? col : i, b_turned ? i : col);
      }
      float& target = output[row + col * static_cast<uint64_t>(d_layout.leading_dimension)];
      const float bias = held.epilogue == CUBLASLT_EPILOGUE_BIAS ? held.bias[row] : 0;
      target = factor * sum + (before == 0 ? 0 : before * target) + bias;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
