#include "server/callers/authenticator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr absl::string_view kBearer = "bearer ";
// gRPC's properties for the names in a certificate that it has verified.
constexpr const char* kNameProperties[] = {"x509_common_name", "x509_subject_alternative_name"};

absl::Status Unknown(const std::string& what) { return MakeError(Reason::kUnauthenticated, what); }

void LogThatNothingChanged(const absl::Status& why) {
  Log(LogLevel::kError,
      absl::StrCat("tokens: the earlier ones stay in use: ", std::string(why.message())));
}

absl::string_view ToView(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

absl::string_view BearerToken(absl::string_view authorization) {
  if (!absl::StartsWithIgnoreCase(authorization, kBearer)) return {};
  return authorization.substr(kBearer.size());
}

std::string BearerToken(const grpc::ServerContextBase& context) {
  const auto shown = context.client_metadata().find(kAuthorization);
  if (shown == context.client_metadata().end()) return {};
  return std::string(BearerToken(ToView(shown->second)));
}

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::Create(const Config& config) {
  auto authenticator = absl::WrapUnique(
      new Authenticator(config.server.insecure ? Exposure::kWarned : Exposure::kRefused));
  absl::MutexLock refresh_lock(&authenticator->refresh_mutex_);
  authenticator->asks_ = config.knows_callers();
  authenticator->Know(config.operators, {.role = Role::kOperator});
  TenantId::rep place = 0;
  for (const Config::Tenant& tenant : config.tenants) {
    authenticator->Know(tenant.credentials, {Role::kTenant, TenantId(++place)});
  }
  for (Source& source : authenticator->sources_) {
    source.stamp = StampOf(source.path);
    auto tokens = ReadTokensFile(source.path, authenticator->exposure_);
    if (!tokens.ok()) return tokens.status();
    source.tokens = *std::move(tokens);
  }
  absl::StatusOr<TokenMap> tokens = MapOf(authenticator->sources_);
  if (!tokens.ok()) return tokens.status();
  absl::MutexLock lock(&authenticator->mutex_);
  authenticator->tokens_ = *std::move(tokens);
  return authenticator;
}

void Authenticator::Know(const Config::Credentials& credentials, const Identity& identity) {
  for (const std::string& subject : credentials.subjects) subjects_.emplace(subject, identity);
  if (credentials.tokens_file.empty()) return;
  sources_.push_back({.path = credentials.tokens_file, .identity = identity});
}

absl::StatusOr<Authenticator::TokenMap> Authenticator::MapOf(const std::vector<Source>& sources) {
  TokenMap map;
  for (const Source& source : sources) {
    for (const TokenDigest& token : source.tokens) {
      const auto [known, is_new] = map.emplace(token, source.identity);
      if (is_new || known->second == source.identity) continue;
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("a token in ", source.path, " also belongs to another caller"));
    }
  }
  return map;
}

absl::StatusOr<Identity> Authenticator::Identify(const grpc::ServerContextBase& context) const {
  if (!asks_) return Identity{};
  ShownCredentials shown;
  const auto [first, last] = context.client_metadata().equal_range(kAuthorization);
  if (first != last) {
    if (std::next(first) != last) return Unknown("the call has more than one authorization");
    shown.authorization = ToView(first->second);
  }
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();
  std::vector<grpc::string_ref> names;
  for (const char* property : kNameProperties) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(property)) {
      shown.names.push_back(ToView(name));
    }
  }
  return Identify(shown);
}

absl::StatusOr<Identity> Authenticator::Identify(const ShownCredentials& shown) const {
  if (!asks_) return Identity{};
  if (shown.authorization.has_value()) {
    if (!absl::StartsWithIgnoreCase(*shown.authorization, kBearer)) {
      return Unknown("authorization is not 'Bearer TOKEN'");
    }
    const TokenDigest digest = DigestOf(BearerToken(*shown.authorization));
    absl::ReaderMutexLock lock(&mutex_);
    const auto known = tokens_.find(digest);
    if (known == tokens_.end()) return Unknown("the token is not known");
    Identity caller = known->second;
    caller.token = digest;
    return caller;
  }
  std::optional<Identity> caller;
  for (const absl::string_view name : shown.names) {
    const auto known = subjects_.find(name);
    if (known == subjects_.end()) continue;
    if (caller.has_value() && *caller != known->second) {
      return Unknown("the names in the certificate belong to two callers");
    }
    caller = known->second;
  }
  if (caller.has_value()) return *caller;
  return Unknown(shown.names.empty()
                     ? "the daemon requires credentials: a bearer token or a client certificate"
                     : "the certificate names no known caller, and there is no bearer token");
}

absl::Status RevokedError() {
  return Unknown("the token that opened this call is no longer valid");
}

bool Authenticator::StillKnows(const Identity& caller) const {
  if (!caller.token.has_value()) return true;
  absl::ReaderMutexLock lock(&mutex_);
  const auto known = tokens_.find(*caller.token);
  return known != tokens_.end() && known->second == caller;
}

void Authenticator::KnowEngine(const std::string& token) {
  absl::MutexLock refresh_lock(&refresh_mutex_);
  auto engine = std::find_if(sources_.begin(), sources_.end(),
                             [](const Source& source) { return source.path.empty(); });
  if (engine == sources_.end()) {
    engine = sources_.insert(engine, Source{.path = "", .identity = {.role = Role::kEngine}});
  }
  absl::MutexLock lock(&mutex_);
  for (const TokenDigest& earlier : engine->tokens) tokens_.erase(earlier);
  engine->tokens = {DigestOf(token)};
  tokens_.emplace(engine->tokens.front(), engine->identity);
}

void Authenticator::Refresh() {
  absl::MutexLock refresh_lock(&refresh_mutex_);
  bool changed = false;
  for (Source& source : sources_) {
    if (source.path.empty()) continue;
    const FileStamp stamp = StampOf(source.path);
    // An invalid file is read only once, too, until it changes.
    if (stamp == std::exchange(source.stamp, stamp)) continue;
    auto tokens = ReadTokensFile(source.path, exposure_);
    if (!tokens.ok()) {
      LogThatNothingChanged(tokens.status());
      continue;
    }
    Log(LogLevel::kInfo, absl::StrCat("tokens: ", tokens->size(), " in ", source.path));
    source.tokens = *std::move(tokens);
    changed = true;
  }
  if (!changed) return;
  absl::StatusOr<TokenMap> tokens = MapOf(sources_);
  if (!tokens.ok()) return LogThatNothingChanged(tokens.status());
  absl::MutexLock lock(&mutex_);
  tokens_ = *std::move(tokens);
}

}  // namespace pagoda::server
