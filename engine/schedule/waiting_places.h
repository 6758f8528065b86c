// The places of requests that wait for the scheduler, divided among tenants.
#ifndef PAGODA_ENGINE_SCHEDULE_WAITING_PLACES_H_
#define PAGODA_ENGINE_SCHEDULE_WAITING_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/fair_count.h"
#include "engine/request/generate.h"

namespace pagoda {

// A FairCount divides the number of requests, and another their bytes, so a tenant always gets its
// part, whatever the others have. Thread-safe; outlives the places.
class WaitingPlaces {
 public:
  struct Limits {
    uint64_t requests = 1024;
    // Memory of the waiting requests; see BytesOf.
    uint64_t bytes = uint64_t{64} << 20;
  };

  // A request's place. It is given back when this is destroyed or assigned to.
  class Place {
   public:
    Place() = default;  // None.
    Place(Place&& other) noexcept { *this = std::move(other); }
    Place& operator=(Place&& other) noexcept {
      GiveBack();
      places_ = std::exchange(other.places_, nullptr);
      tenant_ = other.tenant_;
      bytes_ = other.bytes_;
      return *this;
    }
    ~Place() { GiveBack(); }

   private:
    friend class WaitingPlaces;
    Place(WaitingPlaces* places, size_t tenant, uint64_t bytes)
        : places_(places), tenant_(tenant), bytes_(bytes) {}
    void GiveBack() {
      if (places_ != nullptr) std::exchange(places_, nullptr)->GiveBack(tenant_, bytes_);
    }

    WaitingPlaces* places_ = nullptr;
    size_t tenant_ = 0;
    uint64_t bytes_ = 0;
  };

  // `tenants`: the names of the tenants, at least one, each once. Any other name uses the part of
  // the first one.
  WaitingPlaces(Limits limits, std::vector<std::string> tenants);

  // Errors: QUEUE_FULL if the tenant's part and the common part are full; INVALID_COUNT if no
  // tenant can ever have so many bytes waiting.
  absl::StatusOr<Place> Take(const GenerateRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes a place even if the limits leave none: for a request that has had one before.
  Place TakeAgain(const GenerateRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);

  // The bytes of the request's numbers and texts, once for each copy that the scheduler has.
  static uint64_t BytesOf(const GenerateRequest& request);

 private:
  size_t IndexOf(const std::string& tenant) const;
  void GiveBack(size_t tenant, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  const Limits limits_;
  std::map<std::string, size_t> tenants_;  // Does not change.
  absl::Mutex mutex_;                      // Nothing is called under it.
  FairCount requests_ ABSL_GUARDED_BY(mutex_);
  FairCount bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_WAITING_PLACES_H_
