#include "server/http/public_view.h"

namespace pagoda::server {
namespace {

void KeepPublic(v1::StoreStatus* store) {
  store->clear_servers();
  store->clear_last_error();
}

}  // namespace

void KeepPublic(v1::GetStatusResponse* status) {
  if (status->has_engine()) {
    status->mutable_engine()->clear_problem();
    status->mutable_engine()->clear_addresses();
  }
  if (status->has_store()) KeepPublic(status->mutable_store());
  if (status->has_peer_server()) status->mutable_peer_server()->clear_address();
  for (v1::PeerSourceStatus& source : *status->mutable_peer_sources()) {
    source.clear_address();
    if (source.has_connection()) KeepPublic(source.mutable_connection());
  }
  if (status->has_disk()) {
    status->mutable_disk()->clear_path();
    for (v1::DiskWindowStatus& window : *status->mutable_disk()->mutable_windows()) {
      window.clear_mode_reason();
    }
  }
  if (status->has_gpu_self_test()) {
    v1::GpuSelfTest& test = *status->mutable_gpu_self_test();
    // It stays set, because it says that the engine runs on the host.
    if (test.has_problem()) test.mutable_problem()->clear_message();
    for (v1::GpuSelfTest::Kernel& kernel : *test.mutable_kernels()) {
      kernel.clear_why();
      kernel.clear_text();
    }
  }
}

void KeepPublic(v1::ListCachesResponse* caches) {
  caches->clear_budgets();
  for (v1::CacheRow& row : *caches->mutable_caches()) {
    row.clear_identity();
    row.clear_layers();
    row.clear_engine_addresses();
  }
}

}  // namespace pagoda::server
