// pagodactl caches, and --cache with the commands about a cache, against a small daemon with caches
// that each test chooses.
#include <atomic>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "pagoda/v1/engine.grpc.pb.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

grpc::Status Refusal(grpc::StatusCode code, const std::string& reason, const std::string& why) {
  google::rpc::Status details;
  details.set_code(code);
  details.set_message(why);
  google::rpc::ErrorInfo info;
  info.set_domain("pagoda");
  info.set_reason(reason);
  details.add_details()->PackFrom(info);
  return {code, why, details.SerializeAsString()};
}

// The daemon's caches, and the names of caches in the calls.
class Caches {
 public:
  void Serve(const std::vector<std::string>& names) {
    absl::MutexLock lock(&mutex_);
    names_ = names;
  }
  // Finds the cache that a request means, as the daemon does.
  grpc::Status Find(const std::string& call, const std::string& name, std::string* found) {
    absl::MutexLock lock(&mutex_);
    named_[call] = name;
    for (const std::string& one : names_) {
      if (one != name && !(name.empty() && names_.size() == 1)) continue;
      *found = one;
      return grpc::Status::OK;
    }
    if (name.empty() && names_.size() > 1) {
      return Refusal(grpc::StatusCode::FAILED_PRECONDITION, "CACHE_NOT_NAMED",
                     absl::StrCat("it names none of ", absl::StrJoin(names_, ", ")));
    }
    return Refusal(grpc::StatusCode::NOT_FOUND, "UNKNOWN_CACHE", "there is no such cache");
  }
  std::vector<std::string> names() {
    absl::MutexLock lock(&mutex_);
    return names_;
  }
  // For each call, the cache that its last request named.
  std::map<std::string, std::string> TakeNamed() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(named_, {});
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> named_ ABSL_GUARDED_BY(mutex_);
};

class FakeAdmin final : public v1::AdminService::Service {
 public:
  // An engine over the cache gemma serves at `endpoint`.
  FakeAdmin(Caches* caches, std::string endpoint)
      : caches_(caches), endpoint_(std::move(endpoint)) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest* request,
                         v1::GetStatusResponse* response) override {
    response->set_version("9.9");
    response->mutable_start_time()->set_seconds(17);
    response->set_draining(draining_);
    std::string name;
    const grpc::Status status = caches_->Find("GetStatus", request->cache(), &name);
    if (!status.ok() && (!request->cache().empty() || !caches_->names().empty())) return status;
    if (name.empty()) return grpc::Status::OK;
    response->mutable_cache()->set_name(name);
    response->mutable_cache()->set_tokens_per_block(16);
    response->set_sessions(name.size());
    response->mutable_engine()->set_vocab_size(100);
    v1::TierStatus* tier = response->add_windows()->add_tiers();
    tier->set_tier(v1::TIER_PRIMARY);
    tier->set_free_blocks(0);
    return grpc::Status::OK;
  }
  grpc::Status ListCaches(grpc::ServerContext*, const v1::ListCachesRequest* request,
                          v1::ListCachesResponse* response) override {
    if (!request->name().empty()) {
      std::string name;
      const grpc::Status status = caches_->Find("ListCaches", request->name(), &name);
      if (!status.ok()) return status;
    }
    for (const std::string& name : caches_->names()) {
      if (!request->name().empty() && request->name() != name) continue;
      FillRow(name, response->add_caches());
    }
    if (caches_->names().empty()) return grpc::Status::OK;
    v1::BudgetRow* budget = response->add_budgets();
    budget->set_medium(v1::MEDIUM_HOST);
    budget->set_bytes(uint64_t{8} << 30);
    budget->set_free_bytes(uint64_t{3} << 30);
    return grpc::Status::OK;
  }
  grpc::Status DropCache(grpc::ServerContext*, const v1::DropCacheRequest* request,
                         v1::DropCacheResponse* response) override {
    std::string name;
    const grpc::Status status = caches_->Find("DropCache", request->name(), &name);
    if (!status.ok()) return status;
    if (!request->force() && name == "llama") {
      return Refusal(grpc::StatusCode::FAILED_PRECONDITION, "CACHE_IN_USE", "it has sessions");
    }
    response->set_ended_sessions(request->force() ? 2 : 0);
    return grpc::Status::OK;
  }
  grpc::Status ListSessions(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse*) override {
    std::string name;
    return caches_->Find("ListSessions", request->cache(), &name);
  }
  grpc::Status ListSequences(grpc::ServerContext*, const v1::ListSequencesRequest* request,
                             v1::ListSequencesResponse*) override {
    std::string name;
    return caches_->Find("ListSequences", request->cache(), &name);
  }
  grpc::Status ListTenants(grpc::ServerContext*, const v1::ListTenantsRequest* request,
                           v1::ListTenantsResponse*) override {
    std::string name;
    return caches_->Find("ListTenants", request->cache(), &name);
  }
  grpc::Status ListQuarantines(grpc::ServerContext*, const v1::ListQuarantinesRequest* request,
                               v1::ListQuarantinesResponse*) override {
    std::string name;
    return caches_->Find("ListQuarantines", request->cache(), &name);
  }
  grpc::Status ReleaseQuarantine(grpc::ServerContext*, const v1::ReleaseQuarantineRequest* request,
                                 v1::ReleaseQuarantineResponse*) override {
    std::string name;
    return caches_->Find("ReleaseQuarantine", request->cache(), &name);
  }
  grpc::Status InspectPrefix(grpc::ServerContext*, const v1::InspectPrefixRequest* request,
                             v1::InspectPrefixResponse*) override {
    std::string name;
    return caches_->Find("InspectPrefix", request->cache(), &name);
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainResponse*) override {
    draining_ = true;
    return grpc::Status::OK;
  }

 private:
  void FillRow(const std::string& name, v1::CacheRow* row) const {
    row->mutable_cache()->set_name(name);
    row->mutable_cache()->set_tokens_per_block(16);
    row->mutable_cache()->add_windows();
    row->mutable_cache()->add_windows()->set_window_size(1024);
    row->set_epoch(255);
    row->mutable_opened()->set_seconds(absl::ToUnixSeconds(absl::Now()) - 100);
    if (name == "own" || name == "down") {
      row->mutable_cache()->set_model_fingerprint("org/own@r2");
      row->set_has_engine(true);
      if (name == "down") return;
      row->mutable_engine_addresses()->add_grpc("unix:/run/engine.sock");
      row->mutable_engine_addresses()->add_grpc("127.0.0.1:7074");
      row->mutable_engine_addresses()->set_http("127.0.0.1:7076");
      return;
    }
    if (name == "gemma") {
      row->set_has_engine(true);
      row->mutable_engine_addresses()->add_grpc(endpoint_);
    }
    row->mutable_identity()->set_model(absl::StrCat("org/", name));
    row->mutable_identity()->set_kernel_packing("flash-1");
    v1::LayerGroup* group = row->add_layers();
    group->set_count(30);
    group->set_kind(v1::LAYER_KIND_KEY_VALUE);
    group->set_num_kv_heads(8);
    group->set_head_dim(128);
    group->set_dtype(v1::DTYPE_BFLOAT16);
    group = row->add_layers();
    group->set_count(2);
    group->set_kind(v1::LAYER_KIND_OPAQUE);
    group->set_bytes_per_block(512);
    group->set_window_size(1024);
    row->set_tenant("team-a");
    if (name == "llama") {
      row->set_sessions(2000);
    } else {
      row->mutable_unused()->set_seconds(12);
      row->mutable_ends_in()->set_seconds(3588);
    }
    for (const v1::Medium medium : {v1::MEDIUM_HOST, v1::MEDIUM_DISK}) {
      v1::CacheTierRow* tier = row->add_tiers();
      tier->set_name(medium == v1::MEDIUM_HOST ? "host" : "disk");
      tier->set_medium(medium);
      tier->set_bytes(uint64_t{1} << 30);
      tier->set_capacity_blocks(1200);
      tier->set_used_blocks(medium == v1::MEDIUM_HOST ? 300 : 0);
    }
  }

  Caches* const caches_;
  const std::string endpoint_;
  std::atomic<bool> draining_ = false;
};

class FakeCache final : public v1::CacheService::Service {
 public:
  explicit FakeCache(Caches* caches) : caches_(caches) {}

  grpc::Status OpenCache(grpc::ServerContext*, const v1::OpenCacheRequest* request,
                         v1::OpenCacheResponse* response) override {
    absl::MutexLock lock(&mutex_);
    opened_ = *request;
    if (request->name() == "taken") {
      return Refusal(grpc::StatusCode::ALREADY_EXISTS, "CACHE_MISMATCH", "its layers are others");
    }
    v1::CacheInfo* cache = response->mutable_cache();
    cache->set_name(request->name());
    v1::WindowInfo* window = cache->add_windows();
    window->set_window_size(1024);
    for (const v1::TierSize& size : request->tiers()) {
      v1::TierInfo* tier = cache->add_tiers();
      tier->set_tier(static_cast<v1::Tier>(cache->tiers_size()));
      tier->set_name(size.medium() == v1::MEDIUM_HOST ? "host" : "disk");
      tier->set_medium(size.medium());
      window->add_blocks(1234);
    }
    response->set_created(request->name() != "there");
    response->set_epoch(255);
    return grpc::Status::OK;
  }
  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionResponse*) override {
    std::string name;
    const grpc::Status status = caches_->Find("OpenSession", request->cache(), &name);
    return status.ok() ? Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", "as asked") : status;
  }
  v1::OpenCacheRequest opened() {
    absl::MutexLock lock(&mutex_);
    return opened_;
  }

 private:
  Caches* const caches_;
  absl::Mutex mutex_;
  v1::OpenCacheRequest opened_ ABSL_GUARDED_BY(mutex_);
};

class FakeEvents final : public v1::EventService::Service {
 public:
  explicit FakeEvents(Caches* caches) : caches_(caches) {}
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::WatchResponse>*) override {
    std::string name;
    const grpc::Status status = caches_->Find("Watch", request->cache(), &name);
    return status.ok() ? Refusal(grpc::StatusCode::UNAVAILABLE, "DRAINING", "as asked") : status;
  }

 private:
  Caches* const caches_;
};

class FakeEngine final : public v1::EngineService::Service {
 public:
  explicit FakeEngine(Caches* caches) : caches_(caches) {}
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>*) override {
    std::string name;
    const grpc::Status status = caches_->Find("Generate", request->cache(), &name);
    return status.ok() ? Refusal(grpc::StatusCode::FAILED_PRECONDITION, "NO_ENGINE", "as asked")
                       : status;
  }

 private:
  Caches* const caches_;
};

class CachesCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    for (grpc::Service* service :
         std::initializer_list<grpc::Service*>{&admin_, &cache_, &events_, &engine_}) {
      builder.RegisterService(service);
    }
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    caches_.Serve({"llama", "gemma"});
  }
  void TearDown() override { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

  Outcome Ctl(const std::string& arguments) {
    return RunProgram(absl::StrCat("--endpoint ", endpoint_, " ", arguments));
  }
  std::string Print(const std::string& arguments) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    return outcome.out;
  }
  Json PrintJson(const std::string& arguments) {
    return Json::parse(Print(absl::StrCat(arguments, " -o json")));
  }
  // The JSON of each line.
  std::vector<Json> PrintLines(const std::string& arguments) {
    std::vector<Json> lines;
    for (const std::string& line : Lines(Print(absl::StrCat(arguments, " -o json")))) {
      lines.push_back(Json::parse(line));
    }
    return lines;
  }

  const TempDirectory directory_;
  const std::string endpoint_ = absl::StrCat("unix:", directory_.File("pagodad.sock"));
  Caches caches_;
  FakeAdmin admin_{&caches_, endpoint_};
  FakeCache cache_{&caches_};
  FakeEvents events_{&caches_};
  FakeEngine engine_{&caches_};
  std::unique_ptr<grpc::Server> server_;
};

// --- caches ---

TEST_F(CachesCommandTest, TheListHasALineATierAndTheBudgets) {
  caches_.Serve({"own", "llama", "gemma"});
  const std::vector<std::string> lines = Lines(Print("caches"));
  ASSERT_THAT(lines, SizeIs(9));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("CACHE"), HasSubstr("TOKENS/BLOCK"), HasSubstr("ENDS IN")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("own"), HasSubstr("org/own@r2"), HasSubstr("full,1024")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("llama"), HasSubstr("org/llama"), HasSubstr("    32  "),
                              HasSubstr("2,000"), HasSubstr("team-a"), HasSubstr("host"),
                              HasSubstr("1.0 GiB"), HasSubstr("25.00 %")));
  EXPECT_THAT(lines[3], AllOf(Not(HasSubstr("llama")), HasSubstr("disk"), HasSubstr("0.00 %")));
  EXPECT_THAT(lines[4], AllOf(HasSubstr("gemma"), HasSubstr("12.00 s"), HasSubstr("59 min 48 s")));
  EXPECT_EQ(lines[6], "3 caches");
  EXPECT_EQ(lines[8], "  host   8.0 GiB, 3.0 GiB free");
  EXPECT_EQ(Print("caches list"), Print("caches"));
}

TEST_F(CachesCommandTest, TheListIsJsonForPrograms) {
  caches_.Serve({"own", "gemma"});
  const Json list = PrintJson("caches");
  ASSERT_THAT(list["caches"], SizeIs(2));
  const Json& own = list["caches"][0];
  EXPECT_FALSE(own.contains("identity"));
  EXPECT_FALSE(own.contains("ends_in"));
  EXPECT_EQ(own["has_engine"], true);
  EXPECT_EQ(own["engine_addresses"], Json({{"grpc", {"unix:/run/engine.sock", "127.0.0.1:7074"}},
                                           {"http", "127.0.0.1:7076"}}));
  const Json& gemma = list["caches"][1];
  EXPECT_EQ(gemma["identity"]["kernel_packing"], "flash-1");
  ASSERT_THAT(gemma["layers"], SizeIs(2));
  EXPECT_EQ(gemma["layers"][0]["count"], 30);
  EXPECT_EQ(gemma["layers"][0]["dtype"], "DTYPE_BFLOAT16");
  EXPECT_EQ(gemma["layers"][1]["kind"], "LAYER_KIND_OPAQUE");
  EXPECT_EQ(gemma["layers"][1]["bytes_per_block"], "512");
  EXPECT_EQ(gemma["layers"][1]["window_size"], 1024);
  ASSERT_THAT(gemma["cache"]["windows"], SizeIs(2));
  EXPECT_EQ(gemma["cache"]["windows"][1]["window_size"], 1024);
  EXPECT_EQ(gemma["cache"]["tokens_per_block"], 16);
  EXPECT_EQ(gemma["epoch"], "255");
  EXPECT_EQ(gemma["unused"], "12s");
  EXPECT_EQ(gemma["ends_in"], "3588s");
  EXPECT_EQ(gemma["tiers"][0]["used_blocks"], "300");
  EXPECT_EQ(gemma["tiers"][1]["medium"], "MEDIUM_DISK");
  EXPECT_EQ(list["budgets"][0]["free_bytes"], absl::StrCat(uint64_t{3} << 30));
  EXPECT_THAT(PrintJson("caches --cache gemma")["caches"], SizeIs(1));
}

TEST_F(CachesCommandTest, ADaemonWithoutCachesSaysSo) {
  caches_.Serve({});
  EXPECT_THAT(Print("caches"), AllOf(HasSubstr("0 caches"), HasSubstr("no memory for them")));
  EXPECT_THAT(PrintJson("caches")["caches"], SizeIs(0));
}

TEST_F(CachesCommandTest, OneIsShown) {
  EXPECT_THAT(Print("caches show gemma"),
              AllOf(HasSubstr("gemma, opened by a client"), HasSubstr("packing flash-1"),
                    HasSubstr("30x8x128:bfloat16 2xopaque:512@1024"),
                    HasSubstr("dropped in 59 min 48 s"), HasSubstr("300 of 1,200 blocks")));
  EXPECT_EQ(PrintJson("caches show gemma")["cache"]["name"], "gemma");
  caches_.Serve({"own"});
  EXPECT_THAT(Print("caches show own"),
              AllOf(HasSubstr("from the daemon's configuration"), HasSubstr("org/own@r2")));
  const Outcome unknown = Ctl("caches show qwen");
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("UNKNOWN_CACHE"));
}

TEST_F(CachesCommandTest, OneIsShownWithItsEngine) {
  caches_.Serve({"own", "down", "llama"});
  EXPECT_THAT(Print("caches show own"),
              HasSubstr("engine       the daemon's, gRPC at unix:/run/engine.sock and "
                        "127.0.0.1:7074, OpenAI's API at 127.0.0.1:7076\n"));
  EXPECT_THAT(Print("caches show down"), HasSubstr("engine       the daemon's, not up\n"));
  EXPECT_EQ(PrintJson("caches show down")["has_engine"], true);
  EXPECT_FALSE(PrintJson("caches show down").contains("engine_addresses"));
  EXPECT_THAT(Print("caches show llama"), HasSubstr("engine       none in the daemon\n"));
  EXPECT_EQ(PrintJson("caches show llama")["has_engine"], false);
}

TEST_F(CachesCommandTest, OneIsDroppedOrForced) {
  EXPECT_EQ(Print("caches drop gemma"), "the cache gemma is dropped\n");
  const Outcome used = Ctl("caches drop llama");
  EXPECT_EQ(used.exit_code, 1);
  EXPECT_EQ(used.out, "");
  EXPECT_THAT(used.err, AllOf(HasSubstr("CACHE_IN_USE"), HasSubstr("--force")));
  EXPECT_EQ(Print("caches drop llama --force"), "the cache llama is dropped; 2 sessions ended\n");
  EXPECT_EQ(PrintJson("caches drop --force llama"), Json({{"ended_sessions", "2"}}));
}

TEST_F(CachesCommandTest, OneIsOpenedAsItIsAskedFor) {
  EXPECT_EQ(Print("caches open tiny --model org/tiny --revision r1 --dtype fp8 --layout NHD "
                  "--packing flash-1 --tokens-per-block 32 --layers 30x8x128:float16 "
                  "2xopaque:512@1024 --host 50% --disk 1GiB --policy lru --tenant team-a"),
            "the cache tiny is open\n  window 1024: host 1,234 blocks, disk 1,234 blocks\n");
  const v1::OpenCacheRequest request = cache_.opened();
  EXPECT_EQ(request.name(), "tiny");
  EXPECT_EQ(request.identity().model(), "org/tiny");
  EXPECT_EQ(request.identity().revision(), "r1");
  EXPECT_EQ(request.identity().dtype(), "fp8");
  EXPECT_EQ(request.identity().layout(), "NHD");
  EXPECT_EQ(request.identity().kernel_packing(), "flash-1");
  EXPECT_EQ(request.tokens_per_block(), 32u);
  ASSERT_EQ(request.layers_size(), 2);
  EXPECT_EQ(request.layers(0).dtype(), v1::DTYPE_FLOAT16);
  EXPECT_EQ(request.layers(1).kind(), v1::LAYER_KIND_OPAQUE);
  ASSERT_EQ(request.tiers_size(), 2) << "nearest first, and none that was not asked for";
  EXPECT_EQ(request.tiers(0).medium(), v1::MEDIUM_HOST);
  EXPECT_EQ(request.tiers(0).free_permille(), 500u);
  EXPECT_EQ(request.tiers(1).medium(), v1::MEDIUM_DISK);
  EXPECT_EQ(request.tiers(1).bytes(), uint64_t{1} << 30);
  EXPECT_EQ(request.eviction_policy(), "lru");
  EXPECT_EQ(request.tenant(), "team-a");

  EXPECT_THAT(Print("caches open there --model m --layers 1x1x8,1xK8"),
              HasSubstr("the cache there exists already"));
  EXPECT_EQ(cache_.opened().layers_size(), 2);
  EXPECT_EQ(cache_.opened().tiers_size(), 0) << "the daemon's own default";
  const Json json = PrintJson("caches open tiny --model m --layers 1x1x8 --host 4KiB");
  EXPECT_EQ(json["created"], true);
  EXPECT_EQ(json["cache"]["windows"][0]["blocks"][0], 1234);
}

TEST_F(CachesCommandTest, AMismatchIsSaid) {
  const Outcome outcome = Ctl("caches open taken --model m --layers 1x1x8");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("CACHE_MISMATCH: its layers are others"));
}

TEST_F(CachesCommandTest, BadUsageExitsWithTwo) {
  for (const char* arguments :
       {"caches frob", "caches show", "caches drop", "caches drop a b", "caches open",
        "caches open a --layers 1x1x8", "caches open a --model m", "caches --force",
        "caches open a --model m --layers 1x1", "caches open a --model m --layers 1x1x8:int3",
        "caches open a --model m --layers 1x1x8 --host 8",
        "caches open a --model m --layers 1x1x8 --disk 101%",
        "caches open a --model m --layers 1x1x8 --tokens-per-block 0", "status --cache"}) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.err, "") << arguments;
  }
}

// --- --cache ---

TEST_F(CachesCommandTest, EveryCommandAboutACacheNamesIt) {
  const std::pair<const char*, std::vector<const char*>> commands[] = {
      {"status", {"GetStatus"}},
      {"sessions", {"ListSessions"}},
      {"sequences", {"ListSequences"}},
      {"tenants", {"ListTenants"}},
      {"quarantine", {"ListQuarantines"}},
      {"quarantine release 3", {"ReleaseQuarantine"}},
      {"inspect --tokens 1", {"InspectPrefix", "GetStatus"}},
      {"watch", {"Watch"}},
      {"top --once --interval 1", {"GetStatus", "ListTenants", "Watch"}},
      {"pins", {"OpenSession"}},
      {"pin --tokens 1", {"OpenSession"}},
      {"unpin 1", {"OpenSession"}},
      {"offload --tokens 1", {"OpenSession"}},
      {"prefetch --tokens 1", {"OpenSession"}},
      {"fetch --tokens 1", {"OpenSession"}},
      {"invalidate --all", {"OpenSession"}},
      {"retain --tokens 1 --priority 3", {"OpenSession"}},
      {"bench --seconds 1", {"GetStatus"}},
      {"generate --prompt-tokens 1", {"ListCaches", "Generate"}},
      {"generate --random-prompt 2", {"ListCaches", "GetStatus", "Generate"}},
      {"chat", {"ListCaches", "Generate"}},
      {"caches", {"ListCaches"}}};
  for (const auto& [command, calls] : commands) {
    caches_.TakeNamed();
    std::ofstream(directory_.File("said")) << "hello\n";
    RunProgram(absl::StrCat("--endpoint ", endpoint_, " --cache gemma ", command, " < ",
                            directory_.File("said")));
    const std::map<std::string, std::string> named = caches_.TakeNamed();
    for (const char* call : calls) {
      ASSERT_EQ(named.count(call), 1u) << command << " did not call " << call;
    }
    for (const auto& [call, name] : named) EXPECT_EQ(name, "gemma") << command << ": " << call;
  }
}

TEST_F(CachesCommandTest, WhereThereAreSeveralOneMustBeNamed) {
  for (const char* command : {"sessions", "watch", "pins", "tenants"}) {
    const Outcome outcome = Ctl(command);
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("CACHE_NOT_NAMED"), HasSubstr("llama, gemma"),
                                   HasSubstr("--cache NAME")))
        << command;
  }
  caches_.Serve({"llama"});
  EXPECT_EQ(Ctl("sessions").exit_code, 0);
  EXPECT_EQ(caches_.TakeNamed()["ListSessions"], "");
}

// --- status ---

TEST_F(CachesCommandTest, StatusShowsTheDaemonOnceAndEachCache) {
  const std::string table = Print("status");
  EXPECT_EQ(table.find("pagodad 9.9"), table.rfind("pagodad 9.9"));
  EXPECT_THAT(table, AllOf(HasSubstr("caches       2"), HasSubstr("cache        llama"),
                           HasSubstr("cache        gemma")));
  const std::vector<Json> statuses = PrintLines("status");
  ASSERT_THAT(statuses, SizeIs(2));
  EXPECT_EQ(statuses[0]["cache"]["name"], "llama");
  EXPECT_EQ(statuses[1]["cache"]["name"], "gemma");
  EXPECT_EQ(statuses[1]["sessions"], "5");
  for (const Json& status : statuses) EXPECT_EQ(status["version"], "9.9");
}

TEST_F(CachesCommandTest, StatusOfANamedCacheIsOfThatAlone) {
  EXPECT_THAT(Print("status --cache gemma"),
              AllOf(HasSubstr("cache        gemma"), Not(HasSubstr("llama")), HasSubstr("9.9")));
  const Json status = PrintJson("status --cache gemma");
  EXPECT_EQ(status["cache"]["name"], "gemma");
  EXPECT_THAT(status["windows"], SizeIs(1));
  EXPECT_EQ(Ctl("status --cache qwen").exit_code, 1);
}

TEST_F(CachesCommandTest, StatusOfADaemonThatWaitsForClientsSaysSo) {
  caches_.Serve({});
  EXPECT_THAT(Print("status"), AllOf(HasSubstr("pagodad 9.9"), HasSubstr("waits for clients"),
                                     Not(HasSubstr("tokens per block"))));
  const Json status = PrintJson("status");
  EXPECT_EQ(status["version"], "9.9");
  EXPECT_FALSE(status.contains("cache"));
  EXPECT_THAT(status["windows"], SizeIs(0));
}

TEST_F(CachesCommandTest, ADaemonWithSeveralIsDrained) {
  EXPECT_EQ(PrintJson("drain"), Json::object());
}

}  // namespace
}  // namespace pagoda
