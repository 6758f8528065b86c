// A copy of a golden checkpoint that a test damages.
#ifndef PAGODA_TESTS_ENGINE_SCRATCH_MODEL_H_
#define PAGODA_TESTS_ENGINE_SCRATCH_MODEL_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace pagoda {

// A model in a new folder, which is deleted with the object.
class ScratchModel {
 public:
  using Edit = std::function<void(nlohmann::json&)>;

  explicit ScratchModel(const std::string& golden_name);
  ~ScratchModel();
  ScratchModel(const ScratchModel&) = delete;
  ScratchModel& operator=(const ScratchModel&) = delete;

  const std::string& dir() const { return dir_; }
  std::string Read(const std::string& file) const;
  void Write(const std::string& file, const std::string& content) const;
  void EditJson(const std::string& file, const Edit& edit) const;
  // Changes the header of model.safetensors and leaves the data as it is.
  void EditHeader(const Edit& edit) const;

 private:
  std::string dir_;
};

// A safetensors file of this header and data.
std::string SafetensorsContent(const std::string& header, const std::string& data);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_SCRATCH_MODEL_H_
