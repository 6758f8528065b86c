// FromJson.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/python/json_text.h"

namespace pagoda::jinja {
namespace {

// Makes values from a parser's events. Each event returns false to end the parsing.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(Run& run) : run_(run) {}

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Of(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::OfInteger(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Value::OfInteger(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(Value::Of(value));
  }
  bool string(string_t& value) override { return Add(run_.NewText(std::move(value))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return Open(std::make_shared<Dict>()); }
  bool key(string_t& value) override {
    open_.back().key = run_.NewText(std::move(value));
    return !run_.failed();
  }
  bool end_object() override {
    std::shared_ptr<Dict> dict = std::move(open_.back().dict);
    open_.pop_back();
    return Add(run_.NewDict(std::move(dict)));
  }
  bool start_array(std::size_t) override { return Open(nullptr); }
  bool end_array() override {
    std::vector<Value> items = std::move(open_.back().items);
    open_.pop_back();
    return Add(run_.NewList(std::move(items)));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  Value Take() { return std::move(root_); }

 private:
  struct Container {
    std::shared_ptr<Dict> dict;  // Null: a list.
    std::vector<Value> items;
    Value key;
  };

  bool Open(std::shared_ptr<Dict> dict) {
    if (open_.size() >= kMaxValueDepth) run_.Refuse("JSON nests too deeply");
    open_.push_back({.dict = std::move(dict), .items = {}, .key = {}});
    return run_.Work();
  }

  bool Add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Container& top = open_.back(); top.dict != nullptr) {
      top.dict->Set(run_, std::move(top.key), std::move(value));
    } else {
      top.items.push_back(std::move(value));
    }
    return run_.Work();
  }

  Run& run_;
  std::vector<Container> open_;
  Value root_;
};

}  // namespace

Value FromJson(Run& run, absl::string_view text, absl::string_view what) {
  Reader reader(run);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) {
    run.Refuse(absl::StrCat(what, " is not valid JSON"));
    return {};
  }
  return reader.Take();
}

}  // namespace pagoda::jinja
