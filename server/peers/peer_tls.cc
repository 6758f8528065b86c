#include "server/peers/peer_tls.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/log/log.h"

namespace pagoda::server {

absl::StatusOr<std::unique_ptr<PeerTls>> PeerTls::Load(ServerTls files, Exposure exposure) {
  auto tls = absl::WrapUnique(new PeerTls(std::move(files), exposure));
  tls->stamps_ = tls->StampsNow();
  absl::StatusOr<std::unique_ptr<TlsContext>> context = tls->Read();
  if (!context.ok()) return context.status();
  tls->context_ = *std::move(context);
  return tls;
}

absl::StatusOr<std::unique_ptr<TlsContext>> PeerTls::Read() const {
  // OpenSSL reads the key itself. This checks who else can read it.
  const absl::StatusOr<std::string> key = ReadSecretFile(files_.key_file, exposure_);
  if (!key.ok()) return key.status();
  return TlsContext::LoadServer(files_);
}

TlsContext* PeerTls::Current() {
  // Before the files are read: a change during the reading is found the next time.
  const Stamps now = StampsNow();
  if (now == stamps_) return context_.get();
  stamps_ = now;
  absl::StatusOr<std::unique_ptr<TlsContext>> context = Read();
  if (context.ok()) {
    context_ = *std::move(context);
    Log(LogLevel::kInfo,
        absl::StrCat("peers: now using the new certificate in ", files_.certificate_file));
  } else {
    Log(LogLevel::kError,
        absl::StrCat("peers: the new TLS files are not valid; the earlier ones stay in use: ",
                     std::string(context.status().message())));
  }
  return context_.get();
}

PeerTls::Stamps PeerTls::StampsNow() const {
  return {StampOf(files_.certificate_file), StampOf(files_.key_file),
          StampOf(files_.client_ca_file)};
}

}  // namespace pagoda::server
