// A daemon whose clients open caches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "manager/shared_manager.h"
#include "server/cache/served_cache.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "tests/server/test_daemon.h"
#include "tests/wait_until.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;

Config WaitingForCaches() {
  Config config = TestConfig();
  config.own_cache = false;
  config.memory.host = 8 * kMiB;
  config.memory.max_caches = 3;
  return config;
}

// A cache of `host_bytes` for a model.
v1::OpenCacheRequest Request(const std::string& name, const std::string& model,
                             uint64_t host_bytes = kMiB) {
  v1::OpenCacheRequest request;
  request.set_name(name);
  request.mutable_identity()->set_model(model);
  request.mutable_identity()->set_dtype("float32");
  request.set_tokens_per_block(kTestTokensPerBlock);
  v1::LayerGroup* const layers = request.add_layers();
  layers->set_count(2);
  layers->set_kind(v1::LAYER_KIND_KEY_VALUE);
  layers->set_num_kv_heads(1);
  layers->set_head_dim(8);
  layers->set_dtype(v1::DTYPE_FLOAT32);
  v1::TierSize* const tier = request.add_tiers();
  tier->set_medium(v1::MEDIUM_HOST);
  tier->set_bytes(host_bytes);
  return request;
}

// The files in shared memory of caches that clients opened at this daemon. Other tests have theirs
// next to them.
std::vector<std::string> FilesOf(const Config& config) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    std::string name = entry.path().filename().string();
    if (absl::StrContains(name, absl::StrCat("-", AddressHash(config), "-"))) {
      files.push_back(std::move(name));
    }
  }
  return files;
}

class CachesTest : public DaemonTest {
 protected:
  CachesTest() : CachesTest(WaitingForCaches()) {}
  explicit CachesTest(const Config& config) : DaemonTest(config), config_(config) {}

  grpc::Status OpenCache(const v1::OpenCacheRequest& request, v1::OpenCacheResponse* response) {
    return cache().OpenCache(NewContext().get(), request, response);
  }
  // A failed call fails the test.
  v1::OpenCacheResponse MustOpen(const v1::OpenCacheRequest& request) {
    v1::OpenCacheResponse response;
    const grpc::Status status = OpenCache(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  std::string ReasonOfOpening(const v1::OpenCacheRequest& request) {
    v1::OpenCacheResponse response;
    return InfoOf(OpenCache(request, &response)).reason();
  }
  grpc::Status OpenSession(const std::string& cache_name, v1::OpenSessionResponse* response) {
    v1::OpenSessionRequest request;
    request.set_client_name("test");
    request.set_cache(cache_name);
    return cache().OpenSession(NewContext().get(), request, response);
  }
  v1::SessionRef SessionIn(const std::string& cache_name) {
    v1::OpenSessionResponse response;
    const grpc::Status status = OpenSession(cache_name, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.cache().name(), cache_name);
    return response.session();
  }
  uint32_t Matched(const v1::SessionRef& session, const std::vector<uint32_t>& tokens) {
    return Run(session, MatchOp(tokens)).match_prefix().matched_tokens();
  }
  v1::ListCachesResponse List(const std::string& name = "") {
    v1::ListCachesRequest request;
    request.set_name(name);
    v1::ListCachesResponse response;
    const grpc::Status status = admin().ListCaches(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  uint64_t FreeBytes() { return List().budgets(0).free_bytes(); }
  grpc::Status Drop(const std::string& name, bool force, uint64_t* ended = nullptr) {
    v1::DropCacheRequest request;
    request.set_name(name);
    request.set_force(force);
    v1::DropCacheResponse response;
    const grpc::Status status = admin().DropCache(NewContext().get(), request, &response);
    if (ended != nullptr) *ended = response.ended_sessions();
    return status;
  }
  // The memory is freed when the last call has released the cache.
  bool FreeBytesComeTo(uint64_t bytes) {
    return WaitUntil([&] { return FreeBytes() == bytes; });
  }

  const Config config_;
};

TEST_F(CachesTest, ADaemonWaitsForItsFirstCache) {
  v1::OpenSessionResponse response;
  EXPECT_EQ(InfoOf(OpenSession("", &response)).reason(), "UNKNOWN_CACHE");
  v1::GetStatusResponse status;
  ASSERT_TRUE(admin().GetStatus(NewContext().get(), {}, &status).ok());
  EXPECT_FALSE(status.has_cache());
  EXPECT_NE(status.version(), "");
  const v1::ListCachesResponse list = List();
  EXPECT_THAT(list.caches(), IsEmpty());
  ASSERT_EQ(list.budgets_size(), 1);
  EXPECT_EQ(list.budgets(0).bytes(), 8 * kMiB);
  EXPECT_EQ(list.budgets(0).free_bytes(), 8 * kMiB);
}

TEST_F(CachesTest, TwoModelsLiveSideBySide) {
  const v1::OpenCacheResponse first = MustOpen(Request("first", "one"));
  const v1::OpenCacheResponse second = MustOpen(Request("second", "two"));
  EXPECT_TRUE(first.created());
  EXPECT_TRUE(second.created());
  EXPECT_NE(first.epoch(), second.epoch());
  EXPECT_THAT(first.cache().model_fingerprint(), HasSubstr("model=one"));
  const v1::SessionRef one = SessionIn("first");
  const v1::SessionRef two = SessionIn("second");
  CacheTokens(one, TokensTo(12));
  EXPECT_EQ(Matched(one, TokensTo(13)), 12u);
  EXPECT_EQ(Matched(two, TokensTo(13)), 0u) << "another model's KV";
  CacheTokens(two, TokensTo(8));
  EXPECT_EQ(Matched(two, TokensTo(13)), 8u);
  EXPECT_EQ(Matched(one, TokensTo(13)), 12u);

  const v1::ListCachesResponse list = List();
  ASSERT_EQ(list.caches_size(), 2);
  EXPECT_EQ(list.caches(0).cache().name(), "first");
  EXPECT_EQ(list.caches(0).sessions(), 1u);
  EXPECT_EQ(list.caches(0).identity().model(), "one");
  ASSERT_EQ(list.caches(0).layers_size(), 1);
  EXPECT_EQ(list.caches(0).layers(0).count(), 2u);
  ASSERT_EQ(list.caches(0).tiers_size(), 1);
  EXPECT_EQ(list.caches(0).tiers(0).used_blocks(), 3u);
  EXPECT_LE(list.caches(0).tiers(0).bytes(), kMiB);
  EXPECT_EQ(list.caches(1).tiers(0).used_blocks(), 2u);
  EXPECT_EQ(list.budgets(0).free_bytes(),
            8 * kMiB - list.caches(0).tiers(0).bytes() - list.caches(1).tiers(0).bytes());
}

TEST_F(CachesTest, OfSeveralARequestNamesOne) {
  MustOpen(Request("first", "one"));
  EXPECT_EQ(SessionIn("first").session_id() >> 32, 1u);
  v1::OpenSessionResponse alone;
  EXPECT_TRUE(OpenSession("", &alone).ok()) << "there is one";
  MustOpen(Request("second", "two"));
  v1::OpenSessionResponse response;
  EXPECT_EQ(InfoOf(OpenSession("", &response)).reason(), "CACHE_NOT_NAMED");
  EXPECT_EQ(InfoOf(OpenSession("third", &response)).reason(), "UNKNOWN_CACHE");
  v1::GetStatusRequest request;
  v1::GetStatusResponse status;
  EXPECT_EQ(InfoOf(admin().GetStatus(NewContext().get(), request, &status)).reason(),
            "CACHE_NOT_NAMED");
  request.set_cache("second");
  ASSERT_TRUE(admin().GetStatus(NewContext().get(), request, &status).ok());
  EXPECT_EQ(status.cache().name(), "second");
  v1::WatchRequest watch;
  v1::WatchResponse event;
  EXPECT_FALSE(events().Watch(NewContext().get(), watch)->Read(&event));
  watch.set_cache("first");
  const auto context = NewContext();
  const auto reader = events().Watch(context.get(), watch);
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.cache(), "first");
  context->TryCancel();
}

TEST_F(CachesTest, TheSameCacheIsFoundAgain) {
  const v1::OpenCacheResponse made = MustOpen(Request("first", "one"));
  v1::OpenCacheRequest again = Request("first", "one", 2 * kMiB);
  const v1::OpenCacheResponse found = MustOpen(again);
  EXPECT_FALSE(found.created());
  EXPECT_EQ(found.epoch(), made.epoch());
  EXPECT_EQ(found.cache().windows(0).blocks(0), made.cache().windows(0).blocks(0));
}

TEST_F(CachesTest, AnotherIdentityUnderTheNameIsRefused) {
  MustOpen(Request("first", "one"));
  EXPECT_EQ(ReasonOfOpening(Request("first", "two")), "CACHE_MISMATCH");
  for (const auto& change : std::vector<std::function<void(v1::OpenCacheRequest&)>>{
           [](auto& request) { request.mutable_identity()->set_revision("r2"); },
           [](auto& request) { request.mutable_identity()->set_dtype("float16"); },
           [](auto& request) { request.mutable_identity()->set_layout("NHD"); },
           [](auto& request) { request.mutable_identity()->set_kernel_packing("x"); },
           [](auto& request) { request.set_tokens_per_block(8); },
           [](auto& request) { request.mutable_layers(0)->set_count(3); },
           [](auto& request) { request.mutable_layers(0)->set_head_dim(16); }}) {
    v1::OpenCacheRequest request = Request("first", "one");
    change(request);
    EXPECT_EQ(ReasonOfOpening(request), "CACHE_MISMATCH") << request.DebugString();
  }
  EXPECT_EQ(List().caches_size(), 1);
}

TEST_F(CachesTest, WhatIsRefusedLeavesNothingBehind) {
  const uint64_t free = FreeBytes();
  EXPECT_EQ(ReasonOfOpening(Request("big", "one", 9 * kMiB)), "OUT_OF_MEMORY");
  EXPECT_EQ(ReasonOfOpening(Request("small", "one", 16)), "INVALID_ARGUMENT")
      << "not one block of it";
  for (const std::string& name :
       std::vector<std::string>{"", ".", "..", "a/b", "a b", std::string(65, 'a'), "\u00e9"}) {
    EXPECT_EQ(ReasonOfOpening(Request(name, "one")), "INVALID_ARGUMENT") << name;
  }
  EXPECT_EQ(ReasonOfOpening(Request("a", "")), "INVALID_ARGUMENT");
  EXPECT_EQ(ReasonOfOpening(Request("a", "a model")), "INVALID_ARGUMENT");
  for (const auto& change : std::vector<std::function<void(v1::OpenCacheRequest&)>>{
           [](auto& request) { request.set_tokens_per_block(3); },
           [](auto& request) { request.set_tokens_per_block(0); },
           [](auto& request) { request.clear_layers(); },
           [](auto& request) { request.mutable_layers(0)->set_count(0); },
           [](auto& request) { request.mutable_layers(0)->set_count(1 << 30); },
           [](auto& request) { request.mutable_layers(0)->set_head_dim(1u << 31); },
           [](auto& request) { request.mutable_layers(0)->set_kind(v1::LAYER_KIND_UNSPECIFIED); },
           // A block of one byte: the core itself would need more than the budget.
           [](auto& request) {
             v1::LayerGroup opaque;
             opaque.set_count(1);
             opaque.set_kind(v1::LAYER_KIND_OPAQUE);
             opaque.set_bytes_per_block(1);
             *request.mutable_layers(0) = opaque;
           },
           [](auto& request) { request.mutable_tiers(0)->set_free_permille(1001); },
           [](auto& request) { request.mutable_tiers(0)->set_bytes(0); },
           [](auto& request) { *request.add_tiers() = request.tiers(0); },
           [](auto& request) { request.mutable_tiers(0)->set_medium(v1::MEDIUM_DISK); }}) {
    v1::OpenCacheRequest request = Request("a", "one");
    change(request);
    EXPECT_EQ(ReasonOfOpening(request), "INVALID_ARGUMENT") << request.DebugString();
  }
  v1::OpenCacheRequest luck = Request("a", "one");
  luck.set_eviction_policy("luck");
  EXPECT_EQ(ReasonOfOpening(luck), "INVALID_ARGUMENT");
  v1::OpenCacheResponse response;
  EXPECT_THAT(OpenCache(luck, &response).error_message(), HasSubstr("there are learned, lru"));
  v1::OpenCacheRequest gpu = Request("a", "one");
  gpu.mutable_tiers(0)->set_medium(v1::MEDIUM_GPU);
  EXPECT_EQ(ReasonOfOpening(gpu), "OUT_OF_MEMORY") << "there is no budget of it";
  EXPECT_THAT(List().caches(), IsEmpty());
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_THAT(FilesOf(config_), IsEmpty());
}

TEST_F(CachesTest, ThereAreSoManyAtMost) {
  for (const char* name : {"a", "b", "c"}) MustOpen(Request(name, "one"));
  EXPECT_EQ(ReasonOfOpening(Request("d", "one")), "TOO_MANY_CACHES");
  EXPECT_FALSE(MustOpen(Request("a", "one")).created());
  ASSERT_TRUE(Drop("b", false).ok());
  EXPECT_TRUE(MustOpen(Request("d", "one")).created());
}

TEST_F(CachesTest, AShareIsOneOfWhatIsFree) {
  v1::OpenCacheRequest request = Request("half", "one");
  request.clear_tiers();
  MustOpen(request);  // Half of the free memory.
  const uint64_t half = List("half").caches(0).tiers(0).bytes();
  EXPECT_GT(half, 4 * kMiB - 65'536);
  EXPECT_LE(half, 4 * kMiB);
  request = Request("rest", "two");
  request.mutable_tiers(0)->set_free_permille(1000);
  MustOpen(request);
  EXPECT_LT(FreeBytes(), 65'536u);
  EXPECT_EQ(ReasonOfOpening(Request("more", "three")), "OUT_OF_MEMORY");
}

TEST_F(CachesTest, ACacheInUseIsDroppedByForceAlone) {
  MustOpen(Request("first", "one"));
  const v1::SessionRef session = SessionIn("first");
  v1::WatchRequest watch;
  watch.set_cache("first");
  const auto context = NewContext();
  const auto reader = events().Watch(context.get(), watch);
  v1::WatchResponse message;
  ASSERT_TRUE(reader->Read(&message));

  EXPECT_EQ(InfoOf(Drop("first", false)).reason(), "CACHE_IN_USE");
  EXPECT_EQ(InfoOf(Drop("nothing", false)).reason(), "UNKNOWN_CACHE");
  uint64_t ended = 0;
  ASSERT_TRUE(Drop("first", true, &ended).ok());
  EXPECT_EQ(ended, 1u);
  v1::BatchResult result;
  EXPECT_EQ(InfoOf(Execute(session, {AllocateOp(1)}, &result)).reason(), "STALE_SESSION");
  EXPECT_EQ(InfoOf(Close(session)).reason(), "STALE_SESSION");
  while (reader->Read(&message)) {
  }
  EXPECT_EQ(InfoOf(reader->Finish()).reason(), "UNKNOWN_CACHE");
  EXPECT_TRUE(FreeBytesComeTo(8 * kMiB));
  EXPECT_TRUE(MustOpen(Request("first", "two")).created()) << "the name is free";
}

TEST_F(CachesTest, AStreamOfADroppedCacheKeepsNothing) {
  MustOpen(Request("first", "one"));
  const v1::SessionRef session = SessionIn("first");
  const auto context = NewContext();
  const auto stream = cache().Session(context.get());
  v1::SessionRequest request;
  *request.mutable_session() = session;
  ASSERT_TRUE(stream->Write(request));
  v1::SessionResponse response;
  ASSERT_TRUE(stream->Read(&response));
  ASSERT_TRUE(Drop("first", true).ok());
  EXPECT_TRUE(FreeBytesComeTo(8 * kMiB)) << "the stream is open still";
  stream->Write(request);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(InfoOf(stream->Finish()).reason(), "STALE_SESSION");
}

class LingeringCachesTest : public CachesTest {
 protected:
  static constexpr absl::Duration kLinger = absl::Seconds(1);

  static Config Lingering() {
    Config config = WaitingForCaches();
    config.memory.linger = kLinger;
    return config;
  }
  LingeringCachesTest() : CachesTest(Lingering()) {}
};

TEST_F(LingeringCachesTest, ACacheWithoutSessionsEndsAfterAWhile) {
  MustOpen(Request("used", "one"));
  const v1::SessionRef session = SessionIn("used");
  MustOpen(Request("unused", "two"));
  const uint64_t used = List("used").caches(0).tiers(0).bytes();
  EXPECT_TRUE(FreeBytesComeTo(8 * kMiB - used));
  EXPECT_EQ(List().caches_size(), 1);
  EXPECT_FALSE(List("used").caches(0).has_unused());
  ASSERT_TRUE(Close(session).ok());
  EXPECT_TRUE(FreeBytesComeTo(8 * kMiB));
  EXPECT_EQ(InfoOf(Close(session)).reason(), "STALE_SESSION");
}

TEST_F(CachesTest, AShortSessionIsAUse) {
  MustOpen(Request("a", "one"));
  const auto unused = [&] { return absl::Seconds(List("a").caches(0).unused().seconds()); };
  ASSERT_TRUE(WaitUntil([&] { return unused() >= absl::Seconds(2); }));
  const absl::Time opened = absl::Now();
  ASSERT_TRUE(Close(SessionIn("a")).ok());
  const absl::Duration since = unused();
  EXPECT_LE(since, absl::Now() - opened);
}

TEST_F(LingeringCachesTest, OneThatIsFoundLingersAnew) {
  absl::Time last = absl::Now();
  MustOpen(Request("a", "one"));
  int found = 0;
  for (int i = 0; i < 100 && found < 12; ++i) {
    absl::SleepFor(absl::Milliseconds(300));
    const absl::Time before = absl::Now();
    const bool created = MustOpen(Request("a", "one")).created();
    // A busy machine may have slept longer than a cache lingers.
    if (absl::Now() - last < kLinger) {
      EXPECT_FALSE(created) << i;
      ++found;
    }
    last = before;
  }
  EXPECT_EQ(found, 12);
}

class OwnAndBroughtCachesTest : public CachesTest {
 protected:
  static Config Both() {
    Config config = WaitingForCaches();
    config.own_cache = true;
    return config;
  }
  OwnAndBroughtCachesTest() : CachesTest(Both()) {}
};

TEST_F(OwnAndBroughtCachesTest, TheConfigurationsCacheIsOneOfThem) {
  const std::string own = daemon().manager().info().name;
  MustOpen(Request("brought", "one"));
  const v1::SessionRef mine = SessionIn(own);
  const v1::SessionRef brought = SessionIn("brought");
  CacheTokens(mine, TokensTo(8));
  EXPECT_EQ(Matched(brought, TokensTo(9)), 0u);
  EXPECT_EQ(InfoOf(Drop(own, true)).reason(), "INVALID_ARGUMENT");
  EXPECT_EQ(ReasonOfOpening(Request(own, "one")), "CACHE_MISMATCH");
  ASSERT_TRUE(Drop("brought", true).ok());
  EXPECT_EQ(Matched(mine, TokensTo(9)), 8u);
}

// --- What outlives a daemon ---

class WarmCachesTest : public ::testing::Test {
 protected:
  static Config Warm() {
    Config config = WaitingForCaches();
    config.memory.warm_restart = true;
    return config;
  }
  void Start() {
    auto started = Daemon::Start(config_);
    ASSERT_TRUE(started.ok()) << started.status();
    daemon_ = *std::move(started);
    channel_ = grpc::CreateChannel(absl::StrCat("unix:", config_.server.unix_socket),
                                   grpc::InsecureChannelCredentials());
    cache_ = v1::CacheService::NewStub(channel_);
    admin_ = v1::AdminService::NewStub(channel_);
  }
  v1::SessionRef SessionIn(const std::string& name) {
    v1::OpenSessionRequest request;
    request.set_cache(name);
    v1::OpenSessionResponse response;
    const grpc::Status status = cache_->OpenSession(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.session();
  }
  v1::BatchResult Execute(const v1::SessionRef& session,
                          const std::vector<v1::Operation>& operations) {
    v1::ExecuteRequest request;
    *request.mutable_session() = session;
    request.mutable_batch()->mutable_operations()->Add(operations.begin(), operations.end());
    v1::ExecuteResponse response;
    const grpc::Status status = cache_->Execute(NewContext().get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.result();
  }
  uint32_t Matched(const std::string& name, uint32_t tokens) {
    const v1::BatchResult result = Execute(SessionIn(name), {MatchOp(TokensTo(tokens))});
    return result.results(0).match_prefix().matched_tokens();
  }
  void Cache(const std::string& name, uint32_t tokens) {
    Execute(SessionIn(name), {AddOp(1, TokensTo(tokens)), CommitOp(1, tokens), FreeSequenceOp(1)});
  }
  grpc::Status OpenCache(const v1::OpenCacheRequest& request, v1::OpenCacheResponse* response) {
    return cache_->OpenCache(NewContext().get(), request, response);
  }
  grpc::Status Drop(const std::string& name) {
    v1::DropCacheRequest request;
    request.set_name(name);
    request.set_force(true);
    v1::DropCacheResponse response;
    return admin_->DropCache(NewContext().get(), request, &response);
  }
  std::vector<std::string> Names() {
    v1::ListCachesResponse list;
    EXPECT_TRUE(admin_->ListCaches(NewContext().get(), {}, &list).ok());
    std::vector<std::string> names;
    for (const v1::CacheRow& row : list.caches()) names.push_back(row.cache().name());
    return names;
  }

  const Config config_ = Warm();
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CacheService::Stub> cache_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

TEST_F(WarmCachesTest, ClientsCachesReturnWithWhatTheyHeld) {
  Start();
  v1::OpenCacheResponse response;
  ASSERT_TRUE(OpenCache(Request("first", "one"), &response).ok());
  ASSERT_TRUE(OpenCache(Request("second", "two"), &response).ok());
  ASSERT_TRUE(OpenCache(Request("third", "three"), &response).ok());
  Cache("first", 12);
  Cache("second", 8);
  ASSERT_TRUE(Drop("third").ok());
  daemon_.reset();

  Start();
  EXPECT_THAT(Names(), ElementsAre("first", "second"));
  EXPECT_EQ(Matched("first", 13), 12u);
  EXPECT_EQ(Matched("second", 13), 8u);
  ASSERT_TRUE(OpenCache(Request("first", "one"), &response).ok());
  EXPECT_FALSE(response.created());
  ASSERT_FALSE(OpenCache(Request("second", "one"), &response).ok());
  // Under another model's name no block is found.
  ASSERT_TRUE(Drop("second").ok());
  ASSERT_TRUE(OpenCache(Request("second", "four"), &response).ok());
  EXPECT_EQ(Matched("second", 13), 0u);
  ASSERT_TRUE(Drop("first").ok());
  ASSERT_TRUE(Drop("second").ok());
  daemon_.reset();

  Start();
  EXPECT_THAT(Names(), IsEmpty());
  daemon_.reset();
  EXPECT_THAT(FilesOf(config_), ElementsAre(EndsWith("-caches"))) << "only the list of caches";
}

}  // namespace
}  // namespace pagoda::server
