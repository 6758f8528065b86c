// How cuBLASLt is found and used, with the fake library of fake_cublaslt/.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/model/cuda/products/cublaslt_library.h"
#include "engine/model/cuda/products/cublaslt_products.h"
#include "kernels/numeric.h"
#include "tests/engine/cuda/emulated_device.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::cuda {
namespace {

using kernels::BFloat16;
using kernels::ElementType;
using kernels::Half;
using kernels::cuda::DeviceArray;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CublasLtTest, WhereItIsNotThatIsSaid) {
  const absl::Status none = LoadCublasLt({"libpagoda-none.so.13", "libpagoda-none.so.12"}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("cuBLASLt"), HasSubstr("libpagoda-none.so.13, libpagoda-none.so.12"),
                    HasSubstr("LD_LIBRARY_PATH")));
  const absl::Status other = LoadCublasLt({"libc.so.6"}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("lacks a call"));
}

TEST(CublasLtTest, TheFirstOfTheNamesIsTaken) {
  const absl::StatusOr<CublasLt> library =
      LoadCublasLt({"libpagoda-none.so.13", "libcublasLt.so.13"});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->name(), "cuBLASLt 13.0.2");
  EXPECT_TRUE(library->Check("a call", CUBLAS_STATUS_SUCCESS).ok());
  EXPECT_EQ(library->Check("a call", CUBLAS_STATUS_INVALID_VALUE),
            absl::InternalError("a call: CUBLAS_STATUS_INVALID_VALUE"));
}

class CublasLtProductsTest : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<DeviceProducts>> made = MakeCublasLtProducts(&device_);
    ASSERT_TRUE(made.ok()) << made.status();
    products_ = *std::move(made);
  }

  template <class T>
  void ExpectTheSame(ElementType type, DeviceProduct product) {
    std::uniform_real_distribution<float> numbers(-1.0f, 1.0f);
    const auto random = [&](uint64_t count) {
      std::vector<T> values;
      for (uint64_t i = 0; i < count; ++i) {
        values.push_back(kernels::FromFloat<T>(numbers(random_)));
      }
      return values;
    };
    const DeviceArray<T> input(random(product.rows * product.input_stride));
    const DeviceArray<T> weights(random(product.outputs * product.inputs));
    std::vector<float> numbers_of_bias(product.outputs);
    for (float& number : numbers_of_bias) number = numbers(random_);
    const DeviceArray<float> bias(numbers_of_bias);
    const std::vector<float> before(product.rows * product.output_stride, 7.0f);
    const DeviceArray<float> actual(before), expected(before);
    product.type = type;
    product.input = input.data();
    product.weights = weights.data();
    for (float* added : {static_cast<float*>(nullptr), bias.data()}) {
      product.bias = added;
      product.output = actual.data();
      const absl::Status status = products_->Multiply(product, nullptr);
      ASSERT_TRUE(status.ok()) << status;
      product.output = expected.data();
      ASSERT_TRUE(HostProducts().Multiply(product, nullptr).ok());
      for (uint64_t i = 0; i < before.size(); ++i) {
        ASSERT_NEAR(actual.Get()[i], expected.Get()[i], 1e-5) << i;
      }
    }
  }

  // A function of the fake library.
  template <class Function>
  static Function* Of(const char* name) {
    void* const library = dlopen("libcublasLt.so.13", RTLD_NOW);
    auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
    PAGODA_CHECK(function != nullptr, "the library is that of fake_cublaslt/");
    return function;
  }

  std::mt19937 random_{1};
  EmulatedDevice::State state_;
  EmulatedDevice device_{&state_};
  std::unique_ptr<DeviceProducts> products_;
};

TEST_F(CublasLtProductsTest, AreThoseOfPlainLoops) {
  for (const DeviceProduct& product :
       {DeviceProduct{.rows = 1, .inputs = 1, .outputs = 1, .input_stride = 1, .output_stride = 1},
        DeviceProduct{.rows = 3, .inputs = 5, .outputs = 7, .input_stride = 5, .output_stride = 7},
        DeviceProduct{
            .rows = 4, .inputs = 16, .outputs = 8, .input_stride = 24, .output_stride = 11},
        DeviceProduct{
            .rows = 9, .inputs = 33, .outputs = 2, .input_stride = 33, .output_stride = 64}}) {
    SCOPED_TRACE(product.rows);
    ExpectTheSame<float>(ElementType::kFloat32, product);
    ExpectTheSame<Half>(ElementType::kFloat16, product);
    ExpectTheSame<BFloat16>(ElementType::kBFloat16, product);
  }
}

// The library is asked once for each kind of product.
TEST_F(CublasLtProductsTest, KeepWhatTheyHaveChosen) {
  const auto heuristics = Of<uint64_t()>("fakeCublasLtHeuristics");
  const auto descriptions = Of<uint64_t()>("fakeCublasLtDescriptions");
  const DeviceArray<float> numbers(std::vector<float>(64, 1.0f)), output(64);
  DeviceProduct product = {.rows = 2,
                           .inputs = 4,
                           .outputs = 4,
                           .input = numbers.data(),
                           .input_stride = 4,
                           .weights = numbers.data(),
                           .output = output.data(),
                           .output_stride = 4};
  const uint64_t before = heuristics();
  ASSERT_TRUE(products_->Multiply(product, nullptr).ok());
  const uint64_t described = descriptions();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(products_->Multiply(product, nullptr).ok());
  EXPECT_EQ(heuristics(), before + 1);
  EXPECT_EQ(descriptions(), described) << "a known kind of product needs no new description";
  product.rows = 3;
  ASSERT_TRUE(products_->Multiply(product, nullptr).ok());
  // Another address, with a smaller alignment.
  product.output += 1;
  ASSERT_TRUE(products_->Multiply(product, nullptr).ok());
  EXPECT_EQ(heuristics(), before + 3);
}

// Two products of one kind can have different biases.
TEST_F(CublasLtProductsTest, AddTheBiasOfTheCall) {
  const DeviceArray<float> ones(std::vector<float>(16, 1.0f)), output(8);
  const DeviceArray<float> biases(std::vector<float>(64, 0.0f));
  const DeviceArray<float> others(std::vector<float>(64, 5.0f));
  DeviceProduct product = {.rows = 2,
                           .inputs = 4,
                           .outputs = 4,
                           .input = ones.data(),
                           .input_stride = 4,
                           .weights = ones.data(),
                           .bias = biases.data(),
                           .output = output.data(),
                           .output_stride = 4};
  ASSERT_TRUE(products_->Multiply(product, nullptr).ok());
  EXPECT_EQ(output.Get(), std::vector<float>(8, 4.0f));
  product.bias = others.data();
  ASSERT_TRUE(products_->Multiply(product, nullptr).ok());
  EXPECT_EQ(output.Get(), std::vector<float>(8, 9.0f));
}

// Where the library has no algorithm for it, a kernel adds the bias.
TEST_F(CublasLtProductsTest, AddABiasThatTheLibraryDoesNotAdd) {
  const auto refuse = Of<void(bool)>("fakeCublasLtRefuseBiases");
  refuse(true);
  ExpectTheSame<BFloat16>(
      ElementType::kBFloat16,
      {.rows = 3, .inputs = 5, .outputs = 7, .input_stride = 5, .output_stride = 9});
  refuse(false);
}

TEST(CublasLtErrorsTest, NoMemoryForTheWorkspaceIsOutOfMemory) {
  EmulatedDevice::State state;
  state.device_bytes = 1 << 20;
  EmulatedDevice device(&state);
  EXPECT_EQ(MakeCublasLtProducts(&device).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pagoda::cuda
