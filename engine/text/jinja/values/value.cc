#include "engine/text/jinja/values/value.h"

#include <algorithm>

#include "engine/text/jinja/values/compare.h"
#include "engine/text/jinja/values/run.h"

namespace pagoda::jinja {

namespace {

// What a value of another kind gives instead of its content.
template <typename T>
const T& Empty() {
  static const T* const kEmpty = new T;  // Never freed: values can outlive static objects.
  return *kEmpty;
}

}  // namespace

size_t CountCharacters(absl::string_view bytes) {
  return static_cast<size_t>(std::count_if(
      bytes.begin(), bytes.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

Value Value::OfConstant(std::string bytes) {
  auto text = std::make_shared<Text>();
  text->length = CountCharacters(bytes);
  text->bytes = std::move(bytes);
  return Value(std::shared_ptr<const Text>(std::move(text)));
}

bool Value::IsTuple() const { return IsList() && list().form != List::Form::kList; }

Integer Value::whole() const {
  return Is(Kind::kBoolean) ? Integer(boolean() ? 1 : 0) : std::get<Integer>(data_);
}

double Value::number() const { return Is(Kind::kFloat) ? real() : static_cast<double>(whole()); }

const Text& Value::text() const {
  const auto* text = std::get_if<std::shared_ptr<const Text>>(&data_);
  return text == nullptr ? Empty<Text>() : **text;
}

const List& Value::list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list == nullptr ? Empty<List>() : **list;
}

const Dict& Value::dict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return dict == nullptr ? Empty<Dict>() : **dict;
}

const std::string& Value::bytes() const { return text().bytes; }

std::string Value::reason() const {
  const auto& missing = std::get<std::shared_ptr<const Missing>>(data_);
  return missing == nullptr ? "the value is undefined" : missing->reason;
}

int Value::depth() const {
  if (IsList()) return list().depth;
  if (IsDict()) return dict().depth;
  return 0;
}

size_t Dict::Place(Run& run, const Value& key) const {
  if (key.IsText()) {
    const auto found = by_text_.find(key.bytes());
    return found == by_text_.end() ? entries.size() : found->second;
  }
  if (by_text_.size() == entries.size()) return entries.size();
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const auto& entry) { return Equal(run, entry.first, key); });
  return static_cast<size_t>(found - entries.begin());
}

const Value* Dict::Find(Run& run, const Value& key) const {
  const size_t place = Place(run, key);
  return place == entries.size() ? nullptr : &entries[place].second;
}

const Value* Dict::Find(absl::string_view key) const {
  const auto found = by_text_.find(key);
  return found == by_text_.end() ? nullptr : &entries[found->second].second;
}

void Dict::Set(Run& run, Value key, Value value) {
  const size_t place = Place(run, key);
  if (place < entries.size()) {
    entries[place].second = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  const Value& kept = entries.back().first;
  if (kept.IsText()) by_text_.emplace(kept.bytes(), place);
}

}  // namespace pagoda::jinja
