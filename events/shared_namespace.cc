#include "events/shared_namespace.h"

namespace pagoda {
namespace {

const NamespaceKey& Default() {
  static const NamespaceKey kKey;
  return kKey;
}

}  // namespace

SharedNamespace::SharedNamespace(const NamespaceKey& key)
    : key_(key == Default() ? nullptr : std::make_shared<const NamespaceKey>(key)) {}

const NamespaceKey& SharedNamespace::operator*() const {
  return key_ == nullptr ? Default() : *key_;
}

size_t SharedNamespace::bytes() const {
  if (key_ == nullptr) return 0;
  return sizeof(*key_) + key_->cache_salt.capacity() + key_->tenant.capacity();
}

}  // namespace pagoda
