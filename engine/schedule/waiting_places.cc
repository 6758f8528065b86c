#include "engine/schedule/waiting_places.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {
namespace {

// "3 requests of the tenant 'red'", "3 requests".
std::string Whose(const std::string& what, const std::string& tenant) {
  return tenant.empty() ? what : absl::StrCat(what, " of the tenant '", tenant, "'");
}

}  // namespace

WaitingPlaces::WaitingPlaces(Limits limits, std::vector<std::string> tenants)
    : limits_(limits),
      requests_(limits.requests, tenants.size()),
      bytes_(limits.bytes, tenants.size()) {
  PAGODA_CHECK(!tenants.empty(), "at least one tenant waits");
  for (std::string& tenant : tenants) tenants_.emplace(std::move(tenant), tenants_.size());
}

uint64_t WaitingPlaces::BytesOf(const GenerateRequest& request) {
  // The request keeps its prompt, and its sample copies it.
  return sizeof(GenerateRequest) + 2 * sizeof(TokenId) * request.prompt.size() +
         sizeof(TokenId) * request.stop_tokens.size() + request.name_space.cache_salt.size() +
         request.name_space.tenant.size() + request.tenant.size();
}

size_t WaitingPlaces::IndexOf(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second;
}

WaitingPlaces::Place WaitingPlaces::TakeAgain(const GenerateRequest& request) {
  const size_t tenant = IndexOf(request.tenant);
  const uint64_t bytes = BytesOf(request);
  absl::MutexLock lock(&mutex_);
  requests_.Overdraw(tenant, 1);
  bytes_.Overdraw(tenant, bytes);
  return Place(this, tenant, bytes);
}

absl::StatusOr<WaitingPlaces::Place> WaitingPlaces::Take(const GenerateRequest& request) {
  const size_t tenant = IndexOf(request.tenant);
  const uint64_t bytes = BytesOf(request);
  absl::MutexLock lock(&mutex_);
  if (bytes > bytes_.most_of_one()) {
    return MakeError(
        Reason::kInvalidCount,
        absl::StrCat("the request needs ", bytes, " bytes of memory while it waits; the limit is ",
                     bytes_.most_of_one(), " (engine.max_waiting_bytes)"));
  }
  if (requests_.left(tenant) == 0) {
    return MakeError(
        Reason::kQueueFull,
        absl::StrCat(Whose(Counted(requests_.of(tenant), "request"), request.tenant),
                     requests_.of(tenant) == 1 ? " waits" : " wait",
                     " already: its part of the limit ", limits_.requests,
                     " (engine.max_waiting_requests) is full, and so is the part that all "
                     "tenants share"));
  }
  if (bytes > bytes_.left(tenant)) {
    return MakeError(
        Reason::kQueueFull,
        absl::StrCat(Whose(Counted(requests_.of(tenant), "request"), request.tenant), " with ",
                     bytes_.of(tenant), " bytes already waiting; ", bytes,
                     " more bytes do not fit: its part of the limit ", limits_.bytes,
                     " (engine.max_waiting_bytes) is full, and so is the part that all tenants "
                     "share"));
  }
  PAGODA_CHECK(requests_.Add(tenant) && bytes_.Add(tenant, bytes),
               "both limits leave space for it");
  return Place(this, tenant, bytes);
}

void WaitingPlaces::GiveBack(size_t tenant, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  requests_.Remove(tenant);
  bytes_.Remove(tenant, bytes);
}

}  // namespace pagoda
