// OpenCache against a small CacheService in this process.
#include "clients/cpp/open_cache.h"

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda {
namespace {

class FakeCacheService final : public v1::CacheService::Service {
 public:
  grpc::Status OpenCache(grpc::ServerContext*, const v1::OpenCacheRequest* request,
                         v1::OpenCacheResponse* response) override {
    request_ = *request;
    if (request->name() == "taken") {
      google::rpc::ErrorInfo info;
      info.set_domain("pagoda");
      info.set_reason("CACHE_MISMATCH");
      google::rpc::Status details;
      details.set_code(static_cast<int>(grpc::StatusCode::ALREADY_EXISTS));
      details.set_message("its layers are others");
      details.add_details()->PackFrom(info);
      return {grpc::StatusCode::ALREADY_EXISTS, "its layers are others",
              details.SerializeAsString()};
    }
    response->mutable_cache()->set_name(request->name());
    response->mutable_cache()->set_tokens_per_block(request->tokens_per_block());
    v1::WindowInfo* window = response->mutable_cache()->add_windows();
    window->add_blocks(24);
    v1::TierInfo* tier = response->mutable_cache()->add_tiers();
    tier->set_tier(v1::TIER_PRIMARY);
    tier->set_name("host");
    tier->set_medium(v1::MEDIUM_HOST);
    response->set_created(!request->identity().revision().empty());
    response->set_epoch(7);
    return grpc::Status::OK;
  }

  const v1::OpenCacheRequest& request() const { return request_; }

 private:
  v1::OpenCacheRequest request_;
};

class OpenCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    server_->Shutdown();
    server_->Wait();
  }

  const std::string endpoint_ =
      absl::StrCat("unix:", testing::TempDir(), "/pagoda-open-cache-test-", getpid(), ".sock");
  FakeCacheService service_;
  std::unique_ptr<grpc::Server> server_;
};

OpenCacheCall Call(const std::string& name) {
  LayerSpec layer{.num_kv_heads = 8, .head_dim = 128, .dtype = DType::kBFloat16};
  OpenCacheCall call{.name = name,
                     .identity = {.model = "org/tiny", .revision = "r1"},
                     .tokens_per_block = 16,
                     .layers = {layer, layer, layer},
                     .tiers = {{.medium = Medium::kHost, .free_permille = 500},
                               {.medium = Medium::kDisk, .bytes = 4096}},
                     .eviction_policy = "lru"};
  call.layers[2].window = WindowSize(1024);
  return call;
}

TEST_F(OpenCacheTest, AsksAsItWasToldAndTellsWhatItGot) {
  const auto opened = OpenCache({.endpoint = endpoint_, .tenant = "team-a"}, Call("tiny"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->info.name, "tiny");
  EXPECT_EQ(opened->info.tokens_per_block, 16u);
  ASSERT_EQ(opened->info.windows.size(), 1u);
  EXPECT_EQ(opened->info.windows[0].blocks, std::vector<uint32_t>{24});
  EXPECT_TRUE(opened->created);
  EXPECT_EQ(opened->epoch, Epoch(7));

  const v1::OpenCacheRequest& request = service_.request();
  EXPECT_EQ(request.tenant(), "team-a");
  EXPECT_EQ(request.identity().model(), "org/tiny");
  EXPECT_EQ(request.eviction_policy(), "lru");
  ASSERT_EQ(request.layers_size(), 2);
  EXPECT_EQ(request.layers(0).count(), 2u);
  EXPECT_EQ(request.layers(0).kind(), v1::LAYER_KIND_KEY_VALUE);
  EXPECT_EQ(request.layers(1).window_size(), 1024u);
  ASSERT_EQ(request.tiers_size(), 2);
  EXPECT_EQ(request.tiers(0).free_permille(), 500u);
  EXPECT_EQ(request.tiers(1).bytes(), 4096u);
}

TEST_F(OpenCacheTest, ACacheThatIsThereIsNotCreated) {
  OpenCacheCall call = Call("tiny");
  call.identity.revision.clear();
  const auto opened = OpenCache({.endpoint = endpoint_}, call);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_FALSE(opened->created);
}

TEST_F(OpenCacheTest, ARequestOfTheWireGoesAsItIs) {
  v1::OpenCacheRequest request;
  request.set_name("pages");
  request.set_tenant("team-b");
  request.add_layers()->set_kind(v1::LAYER_KIND_OPAQUE);
  ASSERT_TRUE(OpenCache({.endpoint = endpoint_}, request).ok());
  EXPECT_EQ(service_.request().SerializeAsString(), request.SerializeAsString());
}

TEST_F(OpenCacheTest, ARefusalHasItsReason) {
  const auto opened = OpenCache({.endpoint = endpoint_}, Call("taken"));
  EXPECT_EQ(opened.status(), MakeError(Reason::kCacheMismatch, "its layers are others"));
}

TEST(OpenCacheWithoutDaemonTest, IsUnavailable) {
  const auto opened = OpenCache({.endpoint = "unix:/nonexistent/pagoda.sock"}, Call("tiny"));
  EXPECT_TRUE(absl::IsUnavailable(opened.status())) << opened.status();
  EXPECT_EQ(ReasonOf(opened.status()), Reason::kNone);
}

}  // namespace
}  // namespace pagoda
