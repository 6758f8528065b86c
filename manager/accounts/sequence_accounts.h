// The cost of sequences beside their blocks: their number, and the bytes that each keeps.
#ifndef PAGODA_MANAGER_ACCOUNTS_SEQUENCE_ACCOUNTS_H_
#define PAGODA_MANAGER_ACCOUNTS_SEQUENCE_ACCOUNTS_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "base/fair_count.h"
#include "events/tenant_id.h"
#include "manager/accounts/tenants.h"
#include "manager/words/sequence_limits.h"

namespace pagoda {

// Counts the sequences and their bytes, by tenant and in total, and refuses sequences above the
// limits. Bytes are those that grow with a client's requests: block tables, tokens without a place,
// extra ids, retention ranges, the salt, and the lists of deferred releases. Bytes that forks share
// count once. Half of each limit is set aside for all tenants in equal parts (FairCount), so no
// tenant can take it all. A tenant can have a lower limit (TenantOptions). Thread-compatible.
class SequenceAccounts {
 public:
  using Limits = SequenceLimits;

  // `tenants` outlives the accounts.
  SequenceAccounts(const TenantTable* tenants, const Limits& limits);
  SequenceAccounts(const SequenceAccounts&) = delete;
  SequenceAccounts& operator=(const SequenceAccounts&) = delete;

  // The additional cost of a sequence.
  struct Need {
    uint32_t sequences = 0;  // 1: it is a new one.
    uint64_t bytes = 0;      // In addition to its present bytes.
    uint64_t all_bytes = 0;  // All of its bytes if every other sequence had ended.
  };
  // Errors: INVALID_COUNT (more bytes than the tenant can ever have), TOO_MANY_SEQUENCES,
  // SEQUENCE_BYTES_EXHAUSTED (other sequences must be freed first).
  absl::Status Check(TenantId tenant, const Need& need) const;

  uint64_t sequences(TenantId tenant) const { return sequences_.of(tenant.value()); }
  uint64_t bytes(TenantId tenant) const { return bytes_.of(tenant.value()); }
  // The most that the tenant can have while no other tenant exceeds its part.
  uint64_t most_sequences(TenantId tenant) const;
  uint64_t most_bytes(TenantId tenant) const;

  // The cost of one sequence, or of a value that forks share. Given back at its end. Movable.
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
    // Sets the cost to `bytes`. REQUIRES: Check() allows the increase.
    void Resize(uint64_t bytes);
    // Sets the cost to `bytes`, even above the limit, because a release of blocks is never refused.
    // A tenant above its limit gets no new sequences.
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

// A value that a sequence and its forks share, and its cost to their tenant.
template <class T>
struct Charged {
  T value;
  SequenceAccounts::Charge charge;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ACCOUNTS_SEQUENCE_ACCOUNTS_H_
