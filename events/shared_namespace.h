// A namespace as an event holds it.
#ifndef PAGODA_EVENTS_SHARED_NAMESPACE_H_
#define PAGODA_EVENTS_SHARED_NAMESPACE_H_

#include <cstddef>
#include <memory>

#include "events/block_hash.h"

namespace pagoda {

// A namespace's key as a value, of which copies share the memory; the namespace without adapter,
// salt and tenant, which most events have, takes none. Thread-compatible, also where copies are in
// several threads.
class SharedNamespace {
 public:
  SharedNamespace() = default;
  SharedNamespace(const NamespaceKey& key);  // NOLINT: it is a key, shared.

  const NamespaceKey& operator*() const;
  const NamespaceKey* operator->() const { return &**this; }

  // Memory that it shares with its copies.
  size_t bytes() const;

  friend bool operator==(const SharedNamespace& a, const SharedNamespace& b) {
    return a.key_ == b.key_ || *a == *b;
  }

 private:
  std::shared_ptr<const NamespaceKey> key_;  // Owned by the copies together; null: the default.
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_SHARED_NAMESPACE_H_
