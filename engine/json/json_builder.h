// Builds a JSON value from a text that others wrote.
#ifndef PAGODA_ENGINE_JSON_JSON_BUILDER_H_
#define PAGODA_ENGINE_JSON_JSON_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pagoda {

// `Json` is nlohmann::json or nlohmann::ordered_json. The library's own parser with a callback is
// quadratic: at the end of each object it searches all members of the parent. This class takes the
// parser's events instead. It is linear, and the first event above a limit ends the parsing. A
// derived class can add limits. Thread-compatible.
template <class Json>
class JsonBuilder : private nlohmann::json_sax<Json> {
  using Sax = nlohmann::json_sax<Json>;

 public:
  // `max_depth` is the most objects and arrays around a value.
  explicit JsonBuilder(size_t max_depth) : max_depth_(max_depth) {}

  // Accepts valid UTF-8, and nothing behind the value. Discarded JSON if the text is not valid.
  // Errors: INVALID_ARGUMENT without a reason ("is nested more than N levels deep"), or those of
  // the derived class.
  absl::StatusOr<Json> Read(absl::string_view text) {
    root_ = Json();
    open_.clear();
    status_ = absl::OkStatus();
    const bool is_valid = Json::sax_parse(text.begin(), text.end(), static_cast<Sax*>(this));
    if (!status_.ok()) return status_;
    if (!is_valid) return Json(Json::value_t::discarded);
    return std::move(root_);
  }

 protected:
  // Called before memory is used. `bytes` estimates that of the values since the last call,
  // including a second copy of each text. Not called for each value.
  virtual absl::Status OnGrowth(size_t /*bytes*/) { return absl::OkStatus(); }
  // Called before a member is added to `object`, which is inside depth - 1 others.
  virtual absl::Status OnKey(const Json& /*object*/, const std::string& /*key*/, size_t /*depth*/) {
    return absl::OkStatus();
  }

 private:
  // An array doubles its capacity when it grows. A member of an object is a node or a pair.
  static constexpr size_t kElementBytes = 2 * sizeof(Json);
  static constexpr size_t kMemberBytes = 128;
  static constexpr size_t kContainerBytes = 64;
  static constexpr size_t kGrowthStep = size_t{64} << 10;

  bool null() override { return Put(Json(), 0); }
  bool boolean(bool value) override { return Put(Json(value), 0); }
  bool number_integer(int64_t value) override { return Put(Json(value), 0); }
  bool number_unsigned(uint64_t value) override { return Put(Json(value), 0); }
  bool number_float(double value, const std::string&) override { return Put(Json(value), 0); }
  bool string(std::string& value) override {
    const size_t bytes = 2 * value.size();
    return Put(Json(std::move(value)), bytes);
  }
  bool binary(typename Sax::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  bool key(std::string& key) override {
    if (!CheckDepth() || !Grow(kMemberBytes + 2 * key.size())) return false;
    Json& object = *open_.back();
    if (!Keep(OnKey(object, key, open_.size()))) return false;
    member_ = &object[key];
    return true;
  }

  bool Put(Json value, size_t bytes) {
    if (!CheckDepth() || !Grow(kElementBytes + bytes)) return false;
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back()->is_object()) {
      *member_ = std::move(value);
    } else {
      open_.back()->push_back(std::move(value));
    }
    return true;
  }

  bool Open(Json container) {
    const bool in_array = !open_.empty() && open_.back()->is_array();
    if (!Put(std::move(container), kContainerBytes)) return false;
    open_.push_back(open_.empty() ? &root_ : in_array ? &open_.back()->back() : member_);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  bool CheckDepth() {
    return open_.size() < max_depth_ || Keep(absl::InvalidArgumentError(absl::StrCat(
                                            "is nested more than ", max_depth_, " levels deep")));
  }
  bool Grow(size_t bytes) {
    growth_ += bytes;
    return growth_ < kGrowthStep || Keep(OnGrowth(std::exchange(growth_, 0)));
  }
  bool Keep(absl::Status status) {
    status_.Update(std::move(status));
    return status_.ok();
  }

  const size_t max_depth_;
  Json root_;
  // The containers around the next value, the outermost first. None of them moves while it is open:
  // only the innermost one grows.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // The innermost object's member that gets the next value.
  size_t growth_ = 0;
  absl::Status status_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_JSON_JSON_BUILDER_H_
