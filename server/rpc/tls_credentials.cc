#include "server/rpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio OpenPem(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
}

// The first certificate of a PEM text; nullptr if there is none.
Certificate FirstCertificate(const std::string& pem) {
  const Bio bio = OpenPem(pem);
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free);
}

Key PrivateKey(const std::string& pem) {
  const Bio bio = OpenPem(pem);
  // Otherwise OpenSSL would ask for the password of an encrypted key at the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return Key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr), &EVP_PKEY_free);
}

absl::Status CheckMaterial(const Config::Server::Tls& files, const TlsMaterial& material) {
  const Certificate certificate = FirstCertificate(material.certificate);
  if (certificate == nullptr)
    return InvalidArgument(absl::StrCat(files.certificate, " has no certificate"));
  const Key key = PrivateKey(material.key);
  if (key == nullptr)
    return InvalidArgument(absl::StrCat(files.key, " has no private key that is not encrypted"));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return InvalidArgument(
        absl::StrCat(files.key, " is not the key of the certificate in ", files.certificate));
  }
  if (!files.client_ca.empty() && FirstCertificate(material.client_ca) == nullptr) {
    return InvalidArgument(absl::StrCat(files.client_ca, " has no certificate"));
  }
  return absl::OkStatus();
}

grpc_ssl_client_certificate_request_type RequestType(ClientCertificates certificates) {
  switch (certificates) {
    case ClientCertificates::kNone:
      return GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    case ClientCertificates::kOptional:
      return GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    case ClientCertificates::kRequired:
      return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
}

}  // namespace

absl::StatusOr<TlsMaterial> LoadTlsMaterial(const Config::Server::Tls& files, Exposure exposure) {
  absl::StatusOr<std::string> certificate = ReadFile(files.certificate);
  if (!certificate.ok()) return certificate.status();
  absl::StatusOr<std::string> key = ReadSecretFile(files.key, exposure);
  if (!key.ok()) return key.status();
  TlsMaterial material = {.certificate = *std::move(certificate), .key = *std::move(key)};
  if (!files.client_ca.empty()) {
    absl::StatusOr<std::string> client_ca = ReadFile(files.client_ca);
    if (!client_ca.ok()) return client_ca.status();
    material.client_ca = *std::move(client_ca);
  }
  const absl::Status status = CheckMaterial(files, material);
  ERR_clear_error();  // OpenSSL keeps errors per thread, and the thread can be gRPC's.
  if (!status.ok()) return status;
  return material;
}

absl::StatusOr<std::shared_ptr<TlsCredentials>> TlsCredentials::Create(
    const Config::Server::Tls& files, Exposure exposure) {
  const std::shared_ptr<TlsCredentials> credentials(new TlsCredentials(files, exposure));
  absl::MutexLock lock(&credentials->mutex_);
  credentials->stamps_ = credentials->StampsNow();
  absl::StatusOr<TlsMaterial> material = LoadTlsMaterial(files, exposure);
  if (!material.ok()) return material.status();
  credentials->material_ = *std::move(material);
  return credentials;
}

TlsCredentials::TlsCredentials(const Config::Server::Tls& files, Exposure exposure)
    : files_(files), exposure_(exposure) {
  credentials_ = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          RequestType(files.client_certificates), &TlsCredentials::Fetch, this));
}

TlsCredentials::~TlsCredentials() { grpc_server_credentials_release(credentials_); }

int TlsCredentials::AddPortToServer(const std::string& address, grpc_server* server) {
  return grpc_server_add_http2_port(server, address.c_str(), credentials_);
}

grpc_ssl_certificate_config_reload_status TlsCredentials::Fetch(
    void* self, grpc_ssl_server_certificate_config** out) {
  const std::optional<TlsMaterial> next = static_cast<TlsCredentials*>(self)->Next();
  if (!next.has_value()) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {next->key.c_str(), next->certificate.c_str()};
  // gRPC requires an authority even if clients are not asked for a certificate.
  const std::string& client_ca = next->client_ca.empty() ? next->certificate : next->client_ca;
  *out = grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::optional<TlsMaterial> TlsCredentials::Next() {
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(served_, true)) return material_;
  // Before the files are read: a change during the reading is then found at the next handshake.
  const Stamps now = StampsNow();
  if (now == stamps_) return std::nullopt;
  stamps_ = now;
  absl::StatusOr<TlsMaterial> material = LoadTlsMaterial(files_, exposure_);
  if (!material.ok()) {
    Log(LogLevel::kError, absl::StrCat("TLS: the new files are not valid; the earlier "
                                       "ones stay in use: ",
                                       std::string(material.status().message())));
    return std::nullopt;
  }
  if (*material == material_) return std::nullopt;
  material_ = *std::move(material);
  Log(LogLevel::kInfo, absl::StrCat("TLS: now using the new certificate in ", files_.certificate));
  return material_;
}

TlsCredentials::Stamps TlsCredentials::StampsNow() const {
  return {StampOf(files_.certificate), StampOf(files_.key), StampOf(files_.client_ca)};
}

}  // namespace pagoda::server
