// The events that one batch of operations caused, and their memory.
#ifndef PAGODA_EVENTS_EVENT_BATCH_H_
#define PAGODA_EVENTS_EVENT_BATCH_H_

#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "events/event.h"

namespace pagoda {

// Events in order. The events and their vectors lie in an arena of the batch, so a batch costs a
// few allocations and frees, however many events it has. Nothing can be moved out of a batch. A
// copy of an event has separate memory and can outlive the batch. Moving a batch moves no event.
// Thread-compatible; the log and its readers share it as const.
//
// Invariants
// 1. An event's vectors take their memory from the arena. Only an event's namespace needs a
//    destructor.
// 2. Consecutive events of one namespace share its key. Batches share no key.
class EventBatch {
 public:
  class const_iterator;
  using value_type = Event;
  using TypeCounts = std::array<uint64_t, std::variant_size_v<decltype(Event::what)>>;

  EventBatch() = default;  // Empty, without an arena.
  // The first piece of its arena has this many bytes. It is allocated with the first event.
  explicit EventBatch(size_t expected_bytes);
  EventBatch(std::initializer_list<Event> events);  // NOLINT: as a container.
  EventBatch(EventBatch&&) noexcept;
  EventBatch& operator=(EventBatch&&) noexcept;
  ~EventBatch();

  // Appends an event of type T without contents. The event never moves.
  template <class T>
  T& Add(Revision revision, absl::Time time, WindowSize window, TenantId tenant);
  // Appends a copy.
  void Add(const Event& event);
  // Names the namespace of an event of this batch.
  void SetNamespace(const NamespaceKey& key, StoredEvent& stored);

  bool empty() const { return size() == 0; }
  size_t size() const { return body_ == nullptr ? 0 : body_->events.size(); }
  const_iterator begin() const;
  const_iterator end() const;
  // REQUIRES: i < size().
  const Event& operator[](size_t i) const { return *body_->events[i]; }
  Event& operator[](size_t i) { return *body_->events[i]; }
  const Event& front() const { return *body_->events.front(); }
  const Event& back() const { return *body_->events.back(); }
  // Stops the process unless i < size().
  const Event& at(size_t i) const;

  // The number of events of each type, indexed as Event::what is.
  const TypeCounts& type_counts() const;
  // The used part of the arena.
  size_t used_bytes() const { return body_ == nullptr ? 0 : body_->arena.used_bytes(); }
  // The memory that it holds, used or not.
  size_t bytes() const;

 private:
  // Allocates from pieces, and frees all of them in its destructor. The library's monotonic buffer
  // grows by half of its size or more, and does not report how much it holds.
  class Arena final : public std::pmr::memory_resource {
   public:
    explicit Arena(size_t first_bytes) : next_bytes_(first_bytes) {}
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    ~Arena() override;

    size_t held_bytes() const { return held_bytes_; }
    size_t used_bytes() const { return held_bytes_ - left_; }

   private:
    struct alignas(std::max_align_t) Piece {
      Piece* before;
    };

    void* do_allocate(size_t bytes, size_t alignment) override {
      if (std::align(alignment, bytes, at_, left_) == nullptr) return Grow(bytes);
      void* const memory = at_;
      at_ = static_cast<char*>(at_) + bytes;
      left_ -= bytes;
      return memory;
    }
    void do_deallocate(void*, size_t, size_t) override {}
    bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
    void* Grow(size_t bytes);

    void* at_ = nullptr;
    size_t left_ = 0;  // Free bytes of the current piece.
    size_t held_bytes_ = 0;
    size_t next_bytes_;
    Piece* last_ = nullptr;
  };
  // The contents of a batch that has an event. Never moves.
  struct Body {
    explicit Body(size_t arena_bytes) : arena(arena_bytes) {}
    ~Body();

    Arena arena;
    std::pmr::vector<Event*> events{&arena};
    TypeCounts type_counts = {};
    SharedNamespace name_space;  // The namespace of the last stored event.
    size_t name_space_bytes = 0;
  };

  Body& body() {
    if (body_ == nullptr) MakeBody();
    return *body_;
  }
  void MakeBody();

  size_t expected_bytes_ = 0;
  std::unique_ptr<Body> body_;
};

class EventBatch::const_iterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Event;
  using difference_type = std::ptrdiff_t;
  using pointer = const Event*;
  using reference = const Event&;

  const_iterator() = default;
  explicit const_iterator(const Event* const* at) : at_(at) {}
  const Event& operator*() const { return **at_; }
  const Event* operator->() const { return *at_; }
  const_iterator& operator++() { return ++at_, *this; }
  const_iterator operator++(int) { return const_iterator(at_++); }
  friend bool operator==(const const_iterator&, const const_iterator&) = default;

 private:
  const Event* const* at_ = nullptr;
};

inline EventBatch::const_iterator EventBatch::begin() const {
  return const_iterator(body_ == nullptr ? nullptr : body_->events.data());
}
inline EventBatch::const_iterator EventBatch::end() const {
  return const_iterator(body_ == nullptr ? nullptr : body_->events.data() + size());
}

template <class T>
T& EventBatch::Add(Revision revision, absl::Time time, WindowSize window, TenantId tenant) {
  using What = decltype(Event::what);
  Body& to = body();
  void* const memory = to.arena.allocate(sizeof(Event), alignof(Event));
  auto* const event = new (memory)
      Event{revision, time, window, tenant, What(std::in_place_type<T>, EmptyEvent<T>(&to.arena))};
  to.events.push_back(event);
  ++to.type_counts[event->what.index()];
  return *std::get_if<T>(&event->what);
}

}  // namespace pagoda

#endif  // PAGODA_EVENTS_EVENT_BATCH_H_
