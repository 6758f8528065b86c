#include "engine/model/cuda/products/cublaslt_products.h"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/cuda/kernels/row_kernels.h"
#include "engine/model/cuda/products/cublaslt_library.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

// NVIDIA's documentation recommends this for Hopper. It is enough for all older devices.
constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;
// The number of kinds of products that are kept before all are dropped. A step has few, one for
// each shape of the model's matrices. Numbers of rows differ from step to step, but the backend
// rounds them up to few (Backend::RoomFor).
constexpr size_t kMostPrepared = 4096;

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

// Everything about a kind of product that does not change from call to call.
struct Prepared {
  explicit Prepared(const CublasLt& library)
      : operation(library), weights(library), input(library), output(library) {}

  Operation operation;
  Layout weights;
  Layout input;
  Layout output;
  cublasLtMatmulAlgo_t algorithm = {};
  bool adds_bias = false;  // By its epilogue. Otherwise a launch of ours adds it.
};

class CublasLtProducts final : public DeviceProducts {
 public:
  CublasLtProducts(const CublasLt& library, cublasLtHandle_t handle, DeviceBuffer workspace)
      : library_(library), handle_(handle), workspace_(std::move(workspace)) {}
  ~CublasLtProducts() override {
    prepared_.clear();
    library_.cublasLtDestroy(handle_);
  }

  std::string name() const override { return library_.name(); }

  // The library's matrices are by columns, so this computes output^T = weights^T^T * input^T:
  // weights^T is [inputs][outputs], input^T [inputs][rows] and output^T [outputs][rows].
  absl::Status Multiply(const DeviceProduct& product, kernels::cuda::Stream stream) override {
    const absl::StatusOr<const Prepared*> found = Find(product);
    if (!found.ok()) return found.status();
    const Prepared& prepared = **found;
    absl::Status status;
    if (prepared.adds_bias) {
      status = Set(prepared.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
      if (!status.ok()) return status;
    }
    const float one = 1.0f;
    const float zero = 0.0f;
    status = library_.Check(
        "cublasLtMatmul",
        library_.cublasLtMatmul(handle_, prepared.operation.get(), &one, product.weights,
                                prepared.weights.get(), product.input, prepared.input.get(), &zero,
                                product.output, prepared.output.get(), product.output,
                                prepared.output.get(), &prepared.algorithm, workspace_.data(),
                                workspace_.bytes(), stream));
    if (!status.ok() || product.bias == nullptr || prepared.adds_bias) return status;
    const RowsView rows = {.data = product.output,
                           .stride = product.output_stride,
                           .rows = product.rows,
                           .cols = product.outputs};
    return kernels::cuda::StatusOf("bias", LaunchAddBias(product.bias, rows, stream));
  }

 private:
  // The type, sizes and strides, whether there is a bias, and the alignments.
  using Key = std::array<uint64_t, 10>;

  absl::StatusOr<const Prepared*> Find(const DeviceProduct& product) {
    const Key key = {static_cast<uint64_t>(product.type),
                     product.rows,
                     product.inputs,
                     product.outputs,
                     product.input_stride,
                     product.output_stride,
                     product.bias == nullptr ? 0 : AlignmentOf(product.bias),
                     AlignmentOf(product.weights),
                     AlignmentOf(product.input),
                     AlignmentOf(product.output)};
    const auto kept = prepared_.find(key);
    if (kept != prepared_.end()) return kept->second.get();
    auto made = std::make_unique<Prepared>(library_);
    // Not every device has algorithms that add a bias to every type.
    absl::Status status = Prepare(product, product.bias != nullptr, *made);
    if (!status.ok() && product.bias != nullptr) {
      made = std::make_unique<Prepared>(library_);
      status = Prepare(product, /*adds_bias=*/false, *made);
    }
    if (!status.ok()) return status;
    if (prepared_.size() >= kMostPrepared) prepared_.clear();
    return prepared_.emplace(key, std::move(made)).first->second.get();
  }

  template <class T>
  absl::Status Set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute,
                   const T& value) const {
    return library_.Check(
        "cublasLtMatmulDescSetAttribute",
        library_.cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)));
  }

  absl::Status Prepare(const DeviceProduct& product, bool adds_bias, Prepared& made) {
    absl::Status status = Describe(product, made);
    if (status.ok() && adds_bias) {
      made.adds_bias = true;
      status = Set(made.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      // The heuristic can read its alignment.
      if (status.ok()) {
        status = Set(made.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
      }
    }
    return status.ok() ? Choose(product, made) : status;
  }

  absl::Status Describe(const DeviceProduct& product, Prepared& made) const {
    const cudaDataType_t type = DataTypeOf(product.type);
    // Pedantic: multiplies fp32 as fp32, whatever the library's environment variables say.
    const cublasComputeType_t compute =
        product.type == ElementType::kFloat32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const std::pair<const char*, cublasStatus_t> steps[] = {
        {"cublasLtMatmulDescCreate",
         library_.cublasLtMatmulDescCreate(made.operation.out(), compute, CUDA_R_32F)},
        {"cublasLtMatmulDescSetAttribute",
         library_.cublasLtMatmulDescSetAttribute(made.operation.get(), CUBLASLT_MATMUL_DESC_TRANSA,
                                                 &transposed, sizeof(transposed))},
        {"cublasLtMatrixLayoutCreate", library_.cublasLtMatrixLayoutCreate(
                                           made.weights.out(), type, product.inputs,
                                           product.outputs, static_cast<int64_t>(product.inputs))},
        {"cublasLtMatrixLayoutCreate",
         library_.cublasLtMatrixLayoutCreate(made.input.out(), type, product.inputs, product.rows,
                                             static_cast<int64_t>(product.input_stride))},
        {"cublasLtMatrixLayoutCreate",
         library_.cublasLtMatrixLayoutCreate(made.output.out(), CUDA_R_32F, product.outputs,
                                             product.rows,
                                             static_cast<int64_t>(product.output_stride))}};
    for (const auto& [what, result] : steps) {
      if (absl::Status status = library_.Check(what, result); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Choose(const DeviceProduct& product, Prepared& made) {
    Preference preference(library_);
    absl::Status status = library_.Check("cublasLtMatmulPreferenceCreate",
                                         library_.cublasLtMatmulPreferenceCreate(preference.out()));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (!status.ok()) return;
      status = library_.Check("cublasLtMatmulPreferenceSetAttribute",
                              library_.cublasLtMatmulPreferenceSetAttribute(
                                  preference.get(), attribute, &value, sizeof(value)));
    };
    const uint32_t output_alignment = AlignmentOf(product.output);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_.bytes());
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(product.weights));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(product.input));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, output_alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, output_alignment);
    if (!status.ok()) return status;

    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    status = library_.Check(
        "cublasLtMatmulAlgoGetHeuristic",
        library_.cublasLtMatmulAlgoGetHeuristic(
            handle_, made.operation.get(), made.weights.get(), made.input.get(), made.output.get(),
            made.output.get(), preference.get(), 1, &result, &found));
    if (status.ok() && found > 0) status = library_.Check("the algorithm", result.state);
    if (status.ok() && found == 0) {
      status = absl::InternalError(absl::StrCat("cuBLASLt has no algorithm for a product of ",
                                                product.rows, " x ", product.inputs, " x ",
                                                product.outputs));
    }
    if (status.ok()) made.algorithm = result.algo;
    return status;
  }

  const CublasLt& library_;
  const cublasLtHandle_t handle_;
  const DeviceBuffer workspace_;
  std::map<Key, std::unique_ptr<Prepared>> prepared_;
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
