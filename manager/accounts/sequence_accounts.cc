#include "manager/accounts/sequence_accounts.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

SequenceAccounts::SequenceAccounts(const TenantTable* tenants, const Limits& limits)
    : tenants_(tenants),
      sequences_(limits.max_sequences, tenants->size()),
      bytes_(limits.max_bytes, tenants->size()) {}

uint64_t SequenceAccounts::most_sequences(TenantId tenant) const {
  return std::min<uint64_t>(sequences_.most_of_one(), (*tenants_)[tenant].max_sequences);
}

uint64_t SequenceAccounts::most_bytes(TenantId tenant) const {
  return std::min<uint64_t>(bytes_.most_of_one(), (*tenants_)[tenant].max_sequence_bytes);
}

absl::Status SequenceAccounts::Check(TenantId tenant, const Need& need) const {
  if (need.all_bytes > most_bytes(tenant)) {
    return MakeError(Reason::kInvalidCount, absl::StrCat("the sequence would keep ", need.all_bytes,
                                                         " bytes beside its blocks; ",
                                                         most_bytes(tenant), " are allowed"));
  }
  if (need.sequences > sequences_.left(tenant.value()) ||
      sequences(tenant) + need.sequences > most_sequences(tenant)) {
    return MakeError(
        Reason::kTooManySequences,
        absl::StrCat("running: ", Counted(sequences(tenant), "sequence"),
                     tenants_->any() ? " of this tenant" : "", "; no more are possible now"));
  }
  if (need.bytes > bytes_.left(tenant.value()) || bytes(tenant) + need.bytes > most_bytes(tenant)) {
    return MakeError(
        Reason::kSequenceBytesExhausted,
        absl::StrCat(
            need.bytes, " more bytes beside the blocks are needed; the sequences",
            tenants_->any() ? " of this tenant" : "", " keep ", bytes(tenant), ", and may keep ",
            std::min<uint64_t>(bytes_.left(tenant.value()),
                               most_bytes(tenant) - std::min(most_bytes(tenant), bytes(tenant))),
            " more now"));
  }
  return absl::OkStatus();
}

SequenceAccounts::Charge::Charge(SequenceAccounts* accounts, TenantId tenant, uint32_t sequences,
                                 uint64_t bytes)
    : accounts_(accounts), tenant_(tenant), sequences_(sequences), bytes_(bytes) {
  const bool fits = accounts_->sequences_.Add(tenant_.value(), sequences_) &&
                    accounts_->bytes_.Add(tenant_.value(), bytes_);
  PAGODA_CHECK(fits, "a sequence's cost is checked before it is charged");
}

SequenceAccounts::Charge::~Charge() {
  if (accounts_ == nullptr) return;
  accounts_->sequences_.Remove(tenant_.value(), sequences_);
  accounts_->bytes_.Remove(tenant_.value(), bytes_);
}

void SequenceAccounts::Charge::Resize(uint64_t bytes) {
  if (bytes < bytes_) {
    accounts_->bytes_.Remove(tenant_.value(), bytes_ - bytes);
  } else {
    const bool fits = accounts_->bytes_.Add(tenant_.value(), bytes - bytes_);
    PAGODA_CHECK(fits, "a sequence's cost is checked before it is charged");
  }
  bytes_ = bytes;
}

void SequenceAccounts::Charge::ResizeAnyway(uint64_t bytes) {
  if (bytes < bytes_) return Resize(bytes);
  accounts_->bytes_.Overdraw(tenant_.value(), bytes - bytes_);
  bytes_ = bytes;
}

}  // namespace pagoda
