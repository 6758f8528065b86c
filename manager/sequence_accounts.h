// What sequences cost beside their blocks: how many there are, and the bytes that each keeps.
#ifndef PAGODA_MANAGER_SEQUENCE_ACCOUNTS_H_
#define PAGODA_MANAGER_SEQUENCE_ACCOUNTS_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "events/tenant_id.h"
#include "manager/fair_count.h"
#include "manager/sequence_limits.h"
#include "manager/tenants.h"

namespace pagoda {

// Counts the sequences and their bytes, by tenant and in total, and refuses what would be too many.
// Bytes are those that grow with what a client sends or asks for: block tables, tokens without a
// place, extra ids, retention ranges, the salt, and the list of the blocks that were released and
// still drain. What forks share is counted once. Of each limit
// half is set aside for all tenants in equal parts (FairCount), so no tenant can take it all; a
// tenant may have a lower limit of its own (TenantOptions). Thread-compatible.
class SequenceAccounts {
 public:
  using Limits = SequenceLimits;

  // `tenants` outlives the accounts.
  SequenceAccounts(const TenantTable* tenants, const Limits& limits);
  SequenceAccounts(const SequenceAccounts&) = delete;
  SequenceAccounts& operator=(const SequenceAccounts&) = delete;

  // A sequence wants more.
  struct Need {
    uint32_t sequences = 0;  // 1: it is new.
    uint64_t bytes = 0;      // More than it has.
    uint64_t all_bytes = 0;  // All that there would be of it, if every other sequence had ended.
  };
  // Errors: INVALID_COUNT (more bytes than the tenant can ever have), TOO_MANY_SEQUENCES,
  // SEQUENCE_BYTES_EXHAUSTED (others must be freed first).
  absl::Status Check(TenantId tenant, const Need& need) const;

  uint64_t sequences(TenantId tenant) const { return sequences_.of(tenant.value()); }
  uint64_t bytes(TenantId tenant) const { return bytes_.of(tenant.value()); }
  uint64_t total_bytes() const { return bytes_.total(); }
  // The most that the tenant can have while no other has more than its part.
  uint64_t most_sequences(TenantId tenant) const;
  uint64_t most_bytes(TenantId tenant) const;

  // What one sequence, or one thing that forks share, costs; given back when it ends. Movable.
  class Charge {
   public:
    Charge() = default;
    // REQUIRES: Check() allows it; `accounts` outlives the charge.
    Charge(SequenceAccounts* accounts, TenantId tenant, uint32_t sequences, uint64_t bytes);
    Charge(Charge&& other) noexcept { *this = std::move(other); }
    Charge& operator=(Charge&& other) noexcept {
      std::swap(accounts_, other.accounts_);
      std::swap(tenant_, other.tenant_);
      std::swap(sequences_, other.sequences_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Charge();

    TenantId tenant() const { return tenant_; }
    uint64_t bytes() const { return bytes_; }
    // From now on it costs so many bytes. REQUIRES: Check() allows what is more.
    void Resize(uint64_t bytes);
    // As Resize, also above the limit: what releases blocks is never refused. While the tenant is
    // above its limit it gets no new sequences.
    void ResizeAnyway(uint64_t bytes);

   private:
    SequenceAccounts* accounts_ = nullptr;
    TenantId tenant_ = kDefaultTenant;
    uint32_t sequences_ = 0;
    uint64_t bytes_ = 0;
  };

 private:
  const TenantTable* const tenants_;
  FairCount sequences_;
  FairCount bytes_;
};

// A value that a sequence and its forks share, and what it costs their tenant.
template <class T>
struct Charged {
  T value;
  SequenceAccounts::Charge charge;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCE_ACCOUNTS_H_
