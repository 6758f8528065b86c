#ifndef PAGODA_BASE_STRONG_ID_H_
#define PAGODA_BASE_STRONG_ID_H_

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace pagoda {

// An integer with a meaning. Ids with different tags do not mix, and an id does not convert to an
// integer by itself. It has the size and the cost of a `Rep`.
template <class Tag, class Rep>
class StrongId {
 public:
  using rep = Rep;

  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}

  constexpr Rep value() const { return value_; }

  friend constexpr auto operator<=>(StrongId, StrongId) = default;

  template <class H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }

  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << +id.value_; }

 private:
  Rep value_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_STRONG_ID_H_
