// The identity of a caller, and the role that each method requires.
#ifndef PAGODA_SERVER_CALLERS_IDENTITY_H_
#define PAGODA_SERVER_CALLERS_IDENTITY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "manager/words/ids.h"

namespace pagoda::server {

// kEngine: the engine that the daemon has started. It may name any tenant when it opens a session,
// and may use the sessions that it has opened. It may not use operators' methods.
enum class Role : uint8_t { kTenant, kOperator, kEngine };

// A token's SHA-256. Tokens are stored and compared only as digests. The time of a comparison
// reveals nothing about a token, because a caller cannot choose the bytes of a digest.
using TokenDigest = std::array<uint8_t, 32>;

// A caller whose credentials are known. An operator and the engine have no tenant: they use the
// default tenant.
struct Identity {
  Role role = Role::kOperator;
  TenantId tenant = kDefaultTenant;
  // The token that the caller showed, if it showed one. It can be revoked while a stream is open
  // (Authenticator::StillKnows).
  std::optional<TokenDigest> token = std::nullopt;

  bool is_operator() const { return role == Role::kOperator; }
  bool may_name_tenants() const { return role != Role::kTenant; }
  // Compares the callers, not the credentials that they showed.
  friend bool operator==(const Identity& a, const Identity& b) {
    return a.role == b.role && a.tenant == b.tenant;
  }
};

// The callers that a method admits: every caller with credentials, or operators only.
enum class Access : uint8_t { kTenants, kOperators };

// Whether a generation's answer says how much of the prompt was cached. A tenant that shares the
// default tenant's namespace does not learn it: the number would reveal whether other tenants have
// used the same prompt (ReuseNumbersFor in admission.h).
enum class ReuseNumbers : uint8_t { kLeaveOut, kShow };

// A request that names things. Longer ones name more than one thing, or carry a prompt or a batch.
inline constexpr uint32_t kSmallRequest = 4 << 10;
// One that lists the layers of a cache.
inline constexpr uint32_t kLayersRequest = 256 << 10;
// The configuration's max_message_bytes.
inline constexpr uint32_t kAnyRequest = 0;

struct Method {
  std::string_view name;  // The method's path in a request. A literal.
  Access access;
  uint32_t max_request_bytes = kSmallRequest;
};

// Every method that is served, except gRPC's own service of health checks, which requires no
// credentials. A test compares the list with the descriptors.
inline constexpr Method kMethods[] = {
    {"/pagoda.v1.CacheService/OpenCache", Access::kTenants, kLayersRequest},
    {"/pagoda.v1.CacheService/OpenSession", Access::kTenants},
    {"/pagoda.v1.CacheService/CloseSession", Access::kTenants},
    {"/pagoda.v1.CacheService/KeepAlive", Access::kTenants},
    {"/pagoda.v1.CacheService/Execute", Access::kTenants, kAnyRequest},
    {"/pagoda.v1.CacheService/Session", Access::kTenants, kAnyRequest},
    {"/pagoda.v1.CacheService/FetchPrefix", Access::kTenants, kAnyRequest},
    {"/pagoda.v1.CacheService/ExportPrefix", Access::kTenants, kAnyRequest},
    {"/pagoda.v1.CacheService/Materialize", Access::kTenants},
    {"/pagoda.v1.EventService/Watch", Access::kTenants},
    {"/pagoda.v1.EngineService/Generate", Access::kTenants, kAnyRequest},
    {"/pagoda.v1.AdminService/GetStatus", Access::kOperators},
    {"/pagoda.v1.AdminService/ResetPrefixCache", Access::kOperators},
    {"/pagoda.v1.AdminService/ListSessions", Access::kOperators},
    {"/pagoda.v1.AdminService/ListSequences", Access::kOperators},
    {"/pagoda.v1.AdminService/ListTenants", Access::kTenants},
    {"/pagoda.v1.AdminService/ListQuarantines", Access::kOperators},
    {"/pagoda.v1.AdminService/ReleaseQuarantine", Access::kOperators},
    {"/pagoda.v1.AdminService/EndSession", Access::kOperators},
    {"/pagoda.v1.AdminService/InspectPrefix", Access::kOperators, kAnyRequest},
    {"/pagoda.v1.AdminService/GetHitRateCurve", Access::kOperators},
    {"/pagoda.v1.AdminService/ListCaches", Access::kTenants},
    {"/pagoda.v1.AdminService/DropCache", Access::kOperators},
    {"/pagoda.v1.AdminService/Drain", Access::kOperators},
    {"/vllm.grpc.engine.VllmEngine/SubscribeKvEvents", Access::kTenants},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Access::kTenants},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Access::kTenants},
};

// The row of a method. A name without a row does not compile.
consteval Method MethodNamed(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return method;
  }
  throw "kMethods has no such method";
}

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLERS_IDENTITY_H_
