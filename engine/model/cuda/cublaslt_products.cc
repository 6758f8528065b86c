#include "engine/model/cuda/cublaslt_products.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/cuda/cublaslt_library.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

// NVIDIA's documentation recommends this for Hopper. It is enough for all older devices.
constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;
// The number of choices that are kept before all are dropped. A step has few, one for each of the
// model's matrices, but the number of rows differs from step to step.
constexpr size_t kMostChoices = 4096;

cudaDataType_t DataTypeOf(ElementType type) {
  if (type == ElementType::kFloat16) return CUDA_R_16F;
  return type == ElementType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The library's descriptions, each with its destructor. They copy their attributes and hold none of
// our memory.
template <class Handle, cublasStatus_t (*CublasLt::*kDestroy)(Handle)>
class Description {
 public:
  explicit Description(const CublasLt& library) : library_(library) {}
  ~Description() {
    if (handle_ != nullptr) (library_.*kDestroy)(handle_);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  Handle* out() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  const CublasLt& library_;
  Handle handle_ = nullptr;
};
using Operation = Description<cublasLtMatmulDesc_t, &CublasLt::cublasLtMatmulDescDestroy>;
using Layout = Description<cublasLtMatrixLayout_t, &CublasLt::cublasLtMatrixLayoutDestroy>;
using Preference =
    Description<cublasLtMatmulPreference_t, &CublasLt::cublasLtMatmulPreferenceDestroy>;

// The alignment of an address as the library wants it: at most 256 bytes.
uint32_t AlignmentOf(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256u;
  return static_cast<uint32_t>(bits & -bits);
}

class CublasLtProducts final : public DeviceProducts {
 public:
  CublasLtProducts(const CublasLt& library, cublasLtHandle_t handle, DeviceBuffer workspace)
      : library_(library), handle_(handle), workspace_(std::move(workspace)) {}
  ~CublasLtProducts() override { library_.cublasLtDestroy(handle_); }

  std::string name() const override { return library_.name(); }

  // The library's matrices are by columns, so this computes output^T = weights^T^T * input^T:
  // weights^T is [inputs][outputs], input^T [inputs][rows] and output^T [outputs][rows].
  absl::Status Multiply(const DeviceProduct& product, kernels::cuda::Stream stream) override {
    Operation operation(library_);
    Layout weights(library_), input(library_), output(library_);
    absl::Status status = Describe(product, operation, weights, input, output);
    if (!status.ok()) return status;
    const absl::StatusOr<cublasLtMatmulAlgo_t> choice =
        Choose(product, operation, weights, input, output);
    if (!choice.ok()) return choice.status();
    const float one = 1.0f;
    const float zero = 0.0f;
    return library_.Check(
        "cublasLtMatmul",
        library_.cublasLtMatmul(handle_, operation.get(), &one, product.weights, weights.get(),
                                product.input, input.get(), &zero, product.output, output.get(),
                                product.output, output.get(), &*choice, workspace_.data(),
                                workspace_.bytes(), stream));
  }

 private:
  // The inputs of a choice: the type, sizes and strides, and the alignments.
  using Key = std::array<uint64_t, 9>;

  absl::Status Describe(const DeviceProduct& product, Operation& operation, Layout& weights,
                        Layout& input, Layout& output) const {
    const cudaDataType_t type = DataTypeOf(product.type);
    // Pedantic: multiplies fp32 as fp32, whatever the library's environment variables say.
    const cublasComputeType_t compute =
        product.type == ElementType::kFloat32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const std::pair<const char*, cublasStatus_t> steps[] = {
        {"cublasLtMatmulDescCreate",
         library_.cublasLtMatmulDescCreate(operation.out(), compute, CUDA_R_32F)},
        {"cublasLtMatmulDescSetAttribute",
         library_.cublasLtMatmulDescSetAttribute(operation.get(), CUBLASLT_MATMUL_DESC_TRANSA,
                                                 &transposed, sizeof(transposed))},
        {"cublasLtMatrixLayoutCreate",
         library_.cublasLtMatrixLayoutCreate(weights.out(), type, product.inputs, product.outputs,
                                             static_cast<int64_t>(product.inputs))},
        {"cublasLtMatrixLayoutCreate",
         library_.cublasLtMatrixLayoutCreate(input.out(), type, product.inputs, product.rows,
                                             static_cast<int64_t>(product.input_stride))},
        {"cublasLtMatrixLayoutCreate", library_.cublasLtMatrixLayoutCreate(
                                           output.out(), CUDA_R_32F, product.outputs, product.rows,
                                           static_cast<int64_t>(product.output_stride))}};
    for (const auto& [what, result] : steps) {
      if (absl::Status status = library_.Check(what, result); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<cublasLtMatmulAlgo_t> Choose(const DeviceProduct& product,
                                              const Operation& operation, const Layout& weights,
                                              const Layout& input, const Layout& output) {
    const uint32_t alignments[] = {AlignmentOf(product.weights), AlignmentOf(product.input),
                                   AlignmentOf(product.output)};
    const Key key = {static_cast<uint64_t>(product.type),
                     product.rows,
                     product.inputs,
                     product.outputs,
                     product.input_stride,
                     product.output_stride,
                     alignments[0],
                     alignments[1],
                     alignments[2]};
    const auto kept = choices_.find(key);
    if (kept != choices_.end()) return kept->second;

    Preference preference(library_);
    absl::Status status = library_.Check("cublasLtMatmulPreferenceCreate",
                                         library_.cublasLtMatmulPreferenceCreate(preference.out()));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (!status.ok()) return;
      status = library_.Check("cublasLtMatmulPreferenceSetAttribute",
                              library_.cublasLtMatmulPreferenceSetAttribute(
                                  preference.get(), attribute, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_.bytes());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
    if (!status.ok()) return status;

    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    status = library_.Check("cublasLtMatmulAlgoGetHeuristic",
                            library_.cublasLtMatmulAlgoGetHeuristic(
                                handle_, operation.get(), weights.get(), input.get(), output.get(),
                                output.get(), preference.get(), 1, &result, &found));
    if (status.ok() && found > 0) status = library_.Check("the algorithm", result.state);
    if (status.ok() && found == 0) {
      status = absl::InternalError(absl::StrCat("cuBLASLt has no algorithm for a product of ",
                                                product.rows, " x ", product.inputs, " x ",
                                                product.outputs));
    }
    if (!status.ok()) return status;
    if (choices_.size() >= kMostChoices) choices_.clear();
    return choices_.emplace(key, result.algo).first->second;
  }

  const CublasLt& library_;
  const cublasLtHandle_t handle_;
  const DeviceBuffer workspace_;
  std::map<Key, cublasLtMatmulAlgo_t> choices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceProducts>> MakeCublasLtProducts(ComputeDevice* device) {
  const absl::StatusOr<const CublasLt*> library = GetCublasLt();
  if (!library.ok()) return library.status();
  absl::Status status = device->MakeCurrent();
  DeviceBuffer workspace(device, MemorySide::kDevice);
  if (status.ok()) status = workspace.Reserve(kWorkspaceBytes);
  if (!status.ok()) return status;
  cublasLtHandle_t handle = nullptr;
  status = (*library)->Check("cublasLtCreate", (*library)->cublasLtCreate(&handle));
  if (!status.ok()) return status;
  return std::make_unique<CublasLtProducts>(**library, handle, std::move(workspace));
}

}  // namespace pagoda::cuda
