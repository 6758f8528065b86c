// The namespace of an event.
#ifndef PAGODA_EVENTS_SHARED_NAMESPACE_H_
#define PAGODA_EVENTS_SHARED_NAMESPACE_H_

#include <cstddef>
#include <memory>

#include "events/block_hash.h"

namespace pagoda {

// A namespace's key as a value. Copies share its memory. The namespace without adapter, salt and
// tenant, which most events have, takes no memory. Thread-compatible; copies can be in several
// threads.
class SharedNamespace {
 public:
  SharedNamespace() = default;
  SharedNamespace(const NamespaceKey& key);  // NOLINT: it is a key, shared.

  const NamespaceKey& operator*() const;
  const NamespaceKey* operator->() const { return &**this; }

  // The memory that it shares with its copies.
  size_t bytes() const;

  friend bool operator==(const SharedNamespace& a, const SharedNamespace& b) {
    return a.key_ == b.key_ || *a == *b;
  }

 private:
  std::shared_ptr<const NamespaceKey> key_;  // Owned by all copies. Null: the default namespace.
};

}  // namespace pagoda

#endif  // PAGODA_EVENTS_SHARED_NAMESPACE_H_
