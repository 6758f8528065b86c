#include "events/event_batch.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

// Bounds of a piece of an arena. The least is enough for an event with short vectors. The most
// keeps a batch that turns out small from holding the memory of a large one.
constexpr size_t kLeastBytes = 256, kMostBytes = size_t{1} << 20;

}  // namespace

EventBatch::Arena::~Arena() {
  while (last_ != nullptr) ::operator delete(std::exchange(last_, last_->before));
}

// Adds a piece of at least `bytes` bytes, and allocates its first `bytes` bytes.
void* EventBatch::Arena::Grow(size_t bytes) {
  const size_t size = std::max(bytes, next_bytes_);
  last_ = new (::operator new(sizeof(Piece) + size)) Piece{.before = last_};
  held_bytes_ += sizeof(Piece) + size;
  // Grows by a quarter, so that a batch never holds much more than it uses.
  next_bytes_ = std::clamp(held_bytes_ / 4, kLeastBytes, kMostBytes);
  char* const memory = reinterpret_cast<char*>(last_ + 1);
  if (size - bytes >= left_) {
    at_ = memory + bytes;
    left_ = size - bytes;
  }
  return memory;
}

EventBatch::Body::~Body() {
  if (name_space_bytes == 0) return;  // The events hold memory of the arena only.
  for (Event* event : events) std::destroy_at(event);
}

EventBatch::EventBatch(size_t expected_bytes) : expected_bytes_(expected_bytes) {}

EventBatch::EventBatch(std::initializer_list<Event> events) {
  for (const Event& event : events) Add(event);
}

EventBatch::EventBatch(EventBatch&&) noexcept = default;
EventBatch& EventBatch::operator=(EventBatch&&) noexcept = default;
EventBatch::~EventBatch() = default;

void EventBatch::MakeBody() {
  body_ = std::make_unique<Body>(std::clamp(expected_bytes_, kLeastBytes, kMostBytes));
}

void EventBatch::Add(const Event& event) {
  std::visit(
      [&]<class T>(const T& what) {
        T& copy = Add<T>(event.revision, event.time, event.window, event.tenant);
        copy = what;  // The vectors keep the arena.
        if constexpr (std::is_same_v<T, StoredEvent>) SetNamespace(*what.name_space, copy);
      },
      event.what);
}

void EventBatch::SetNamespace(const NamespaceKey& key, StoredEvent& stored) {
  Body& to = body();
  if (*to.name_space != key) {
    to.name_space = SharedNamespace(key);
    to.name_space_bytes += to.name_space.bytes();
  }
  stored.name_space = to.name_space;
}

const Event& EventBatch::at(size_t i) const {
  PAGODA_CHECK(i < size(), "the batch has as many events");
  return (*this)[i];
}

const EventBatch::TypeCounts& EventBatch::type_counts() const {
  static constexpr TypeCounts kNone = {};
  return body_ == nullptr ? kNone : body_->type_counts;
}

size_t EventBatch::bytes() const {
  if (body_ == nullptr) return 0;
  return sizeof(Body) + body_->arena.held_bytes() + body_->name_space_bytes;
}

}  // namespace pagoda
