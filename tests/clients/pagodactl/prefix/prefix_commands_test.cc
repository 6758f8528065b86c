// pagodactl pin, unpin, pins, offload, prefetch, invalidate and retain, with a small CacheService
// that records its requests.
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "pagoda/v1/cache.grpc.pb.h"
#include "tests/clients/fixtures/program.h"
#include "tests/clients/fixtures/temp_directory.h"

namespace pagoda {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint64_t kTicket = 6;
constexpr uint64_t kFetchTicket = 11;
constexpr uint64_t kDurableTicket = 13;
constexpr uint64_t kUnknownPin = 404;
constexpr int kSlowWaits = 2;  // Waits that are over before the copies are done.

void SetError(int code, const std::string& reason, v1::OperationResult* result) {
  google::rpc::ErrorInfo info;
  info.set_domain("pagoda");
  info.set_reason(reason);
  result->mutable_error()->set_code(code);
  result->mutable_error()->set_message("as asked");
  result->mutable_error()->add_details()->PackFrom(info);
}

class FakeCache final : public v1::CacheService::Service {
 public:
  // Before the first session.
  void SetLowerBlocks(uint32_t blocks) { lower_blocks_ = blocks; }
  // Three tiers, the last on disk. A prefix of 96 tokens is there after every second prefetch.
  void SetDisk() { has_disk_ = true; }

  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest*,
                           v1::OpenSessionResponse* response) override {
    response->mutable_session()->set_session_id(1);
    // Only one of the windows has a tier below.
    response->mutable_cache()->add_windows()->set_window_size(128);
    v1::WindowInfo* full = response->mutable_cache()->add_windows();
    for (const uint32_t blocks : {0u, lower_blocks_}) full->add_blocks(blocks);
    if (has_disk_) SetTiers(response->mutable_cache());
    return grpc::Status::OK;
  }
  grpc::Status CloseSession(grpc::ServerContext*, const v1::CloseSessionRequest*,
                            v1::CloseSessionResponse*) override {
    return grpc::Status::OK;
  }
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream) override {
    v1::SessionRequest request;
    while (stream->Read(&request)) {
      v1::SessionResponse response;
      response.set_batch_id(request.batch_id());
      for (const v1::Operation& operation : request.batch().operations()) {
        Answer(operation, response.mutable_result()->add_results());
      }
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

  std::vector<v1::Operation> TakeOperations() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(operations_, {});
  }

 private:
  void Answer(const v1::Operation& operation, v1::OperationResult* result) {
    absl::MutexLock lock(&mutex_);
    operations_.push_back(operation);
    switch (operation.operation_case()) {
      case v1::Operation::kPinPrefix:
        result->mutable_pin_prefix()->set_pin_id(3);
        result->mutable_pin_prefix()->set_pinned_tokens(2000);
        result->mutable_pin_prefix()->set_blocks(1);
        break;
      case v1::Operation::kUnpinPrefix:
        if (operation.unpin_prefix().pin_id() == kUnknownPin) {
          SetError(5, "UNKNOWN_PIN", result);
        } else {
          result->mutable_unpin_prefix();
        }
        break;
      case v1::Operation::kListPins:
        AnswerPins(result->mutable_list_pins());
        break;
      case v1::Operation::kOffloadPrefix:
        result->mutable_offload_prefix()->set_blocks(5);
        result->mutable_offload_prefix()->set_ready_ticket(kTicket);
        break;
      case v1::Operation::kPrefetchPrefix:
        if (has_disk_) {
          AnswerPrefetch(result->mutable_prefetch_prefix());
          break;
        }
        result->mutable_prefetch_prefix()->set_blocks(4);
        result->mutable_prefetch_prefix()->set_matched_tokens(64);
        result->mutable_prefetch_prefix()->set_ready_ticket(kTicket);
        break;
      case v1::Operation::kMatchPrefix:
        result->mutable_match_prefix()->set_cached_tokens(96);
        for (const uint32_t tokens : {is_fetched_ ? 32u : 96u, is_fetched_ ? 64u : 0u, 0u}) {
          result->mutable_match_prefix()->add_tokens_by_tier(tokens);
        }
        break;
      case v1::Operation::kInvalidatePrefix:
        result->mutable_invalidate_prefix()->set_removed_blocks(7);
        if (has_disk_) result->mutable_invalidate_prefix()->set_durable_ticket(kDurableTicket);
        break;
      case v1::Operation::kSetRetention:
        result->mutable_set_retention()->set_blocks(2);
        break;
      case v1::Operation::kWaitForTicket:
        if (++waits_ % (kSlowWaits + 1) != 0) {
          SetError(4, "WAIT_TIMEOUT", result);
        } else {
          result->mutable_wait_for_ticket()->set_completed_ticket(kTicket);
        }
        break;
      default:
        SetError(12, "UNIMPLEMENTED", result);
    }
  }

  static void SetTiers(v1::CacheInfo* out) {
    const std::pair<const char*, v1::Medium> tiers[] = {
        {"hbm", v1::MEDIUM_GPU}, {"dram", v1::MEDIUM_HOST}, {"nvme", v1::MEDIUM_DISK}};
    for (const auto& [name, medium] : tiers) {
      v1::TierInfo* tier = out->add_tiers();
      tier->set_tier(static_cast<v1::Tier>(out->tiers_size()));
      tier->set_name(name);
      tier->set_medium(medium);
      for (v1::WindowInfo& window : *out->mutable_windows()) window.add_blocks(100);
    }
  }

  // First fetches the blocks that are on disk, then onboards them.
  void AnswerPrefetch(v1::PrefetchPrefixResult* out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_fetched_ = !is_fetched_;
    out->set_matched_tokens(96);
    out->set_blocks(is_fetched_ ? 2 : 4);
    out->set_ready_ticket(kTicket);
    if (!is_fetched_) return;
    out->set_fetched_blocks(3);
    out->set_fetch_ticket(kFetchTicket);
  }

  static void AnswerPins(v1::ListPinsResult* out) {
    v1::PinInfo* first = out->add_pins();
    first->set_pin_id(1);
    first->set_client_name("vllm-0");
    first->set_pinned_tokens(96);
    first->set_blocks(6);
    v1::PinInfo* second = out->add_pins();
    second->set_pin_id(2);
    second->mutable_namespace_()->set_lora_id(7);
    second->mutable_namespace_()->set_cache_salt("team a");
    second->mutable_expire_time()->set_seconds(
        absl::ToUnixSeconds(absl::Now() + absl::Minutes(150)));
    out->set_pinned_blocks(6);
    out->set_budget_blocks(1000);
  }

  uint32_t lower_blocks_ = 8;
  bool has_disk_ = false;
  absl::Mutex mutex_;
  std::vector<v1::Operation> operations_ ABSL_GUARDED_BY(mutex_);
  int waits_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_fetched_ ABSL_GUARDED_BY(mutex_) = false;
};

class PrefixCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
    builder.RegisterService(&cache_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override { server_->Shutdown(); }

  Outcome Ctl(const std::string& arguments) {
    return RunProgram(absl::StrCat("--endpoint ", endpoint_, " ", arguments));
  }

  // The output of a command, after a check that it sent exactly these operations.
  std::string Print(const std::string& arguments, const std::vector<std::string>& operations) {
    const Outcome outcome = Ctl(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << "\n" << outcome.err;
    const std::vector<v1::Operation> asked = cache_.TakeOperations();
    EXPECT_EQ(asked.size(), operations.size()) << arguments;
    for (size_t i = 0; i < std::min(asked.size(), operations.size()); ++i) {
      v1::Operation wanted;
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(operations[i], &wanted));
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(asked[i], wanted))
          << arguments << "\n"
          << asked[i].ShortDebugString();
    }
    return outcome.out;
  }

  const TempDirectory directory_;
  const std::string endpoint_ = "unix:" + directory_.File("pagodad.sock");
  FakeCache cache_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(PrefixCommandsTest, PinPrintsItsId) {
  EXPECT_EQ(Print("pin --tokens 1,2,3", {"pin_prefix { tokens: [1, 2, 3] namespace {} }"}),
            "pin 3 holds 2,000 tokens in 1 block\n");
  const Json json =
      Json::parse(Print("pin --tokens 4 --lease 1.5 --lora 0 --salt s --tenant t -o json",
                        {"pin_prefix { tokens: 4 lease_ms: 1500"
                         " namespace { lora_id: 0 cache_salt: 's' tenant: 't' } }"}));
  EXPECT_EQ(json["pin_id"], "3");
  EXPECT_EQ(json["pinned_tokens"], 2000);
  EXPECT_EQ(json["blocks"], 1);
}

TEST_F(PrefixCommandsTest, EveryCommandNamesExtraIdsAndItems) {
  const std::string digest(64, 'a');
  const std::string options = absl::StrCat(" --tokens 1,2,3 --extra-ids 0,18446744073709551615,7 ",
                                           "--item ", digest, ":0:2:5 --item ", digest, ":2:1");
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes += "\\xaa";
  const std::string named = absl::StrCat(
      "tokens: [1, 2, 3] namespace {} extra_token_ids: [0, 18446744073709551615, 7] "
      "multimodal_items { digest: '",
      bytes, "' token_count: 2 item_offset: 5 } multimodal_items { digest: '", bytes,
      "' token_start: 2 token_count: 1 }");
  const std::string wait = absl::StrCat("wait_for_ticket { ticket: ", kTicket, " }");
  Print("pin" + options, {absl::StrCat("pin_prefix { ", named, " }")});
  Print("offload" + options, {absl::StrCat("offload_prefix { ", named, " }"), wait, wait, wait});
  Print("prefetch" + options, {absl::StrCat("prefetch_prefix { ", named, " }"), wait, wait, wait});
  Print("invalidate" + options, {absl::StrCat("invalidate_prefix { ", named, " }")});
  Print("retain --priority 90" + options,
        {absl::StrCat("set_retention { ", named, " retention { priority: 90 } }")});
}

TEST_F(PrefixCommandsTest, KeysNameAPrefixToo) {
  const std::string named = "keys: ['\\001\\377', 'ab'] namespace { keyed: true cache_salt: 's' }";
  Print("pin --keys 01FF,6162 --salt s", {absl::StrCat("pin_prefix { ", named, " }")});
  Print("invalidate --keys 01ff,6162 --salt s",
        {absl::StrCat("invalidate_prefix { ", named, " }")});
  Print("invalidate --all --keyed", {"invalidate_prefix { namespace { keyed: true } }"});
  for (const std::string options :
       {"--keys 0", "--keys 0g", "--keys ,", "--keys 00 --tokens 1", "--keys 00 --extra-ids 1"}) {
    const Outcome outcome = Ctl("pin " + options);
    EXPECT_NE(outcome.exit_code, 0) << options;
    EXPECT_THAT(cache_.TakeOperations(), testing::IsEmpty()) << options;
  }
}

TEST_F(PrefixCommandsTest, ExtrasThatAreNoneAreRefused) {
  for (const std::string options :
       {"--extra-ids 1,x", "--item abc:0:1", "--item abc", "--extra-id-file /nonexistent"}) {
    const Outcome outcome = Ctl("pin --tokens 1,2 " + options);
    EXPECT_NE(outcome.exit_code, 0) << options;
    EXPECT_THAT(cache_.TakeOperations(), testing::IsEmpty()) << options;
  }
  EXPECT_THAT(Ctl("invalidate --all --extra-ids 1").err, HasSubstr("whole namespace"));
}

TEST_F(PrefixCommandsTest, TokensMayComeFromAFile) {
  std::ofstream(directory_.File("tokens")) << "5 6\n7";
  Print("pin --token-file " + directory_.File("tokens"),
        {"pin_prefix { tokens: [5, 6, 7] namespace {} }"});
  const Outcome missing = Ctl("pin --token-file /nonexistent");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("/nonexistent"));
}

TEST_F(PrefixCommandsTest, UnpinEndsAPinOrSaysWhyNot) {
  EXPECT_EQ(Print("unpin 3", {"unpin_prefix { pin_id: 3 }"}), "pin 3 is ended\n");
  EXPECT_EQ(Print("unpin 3 -o json", {"unpin_prefix { pin_id: 3 }"}), "{}\n");
  const Outcome unknown = Ctl(absl::StrCat("unpin ", kUnknownPin));
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, HasSubstr("UNKNOWN_PIN"));
}

TEST_F(PrefixCommandsTest, PinsAreListed) {
  const std::vector<std::string> lines = Lines(Print("pins", {"list_pins {}"}));
  ASSERT_THAT(lines, SizeIs(4));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("96"), HasSubstr("never"), HasSubstr("vllm-0")));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("2 h 29 min"), HasSubstr("LoRA 7 salt \"team a\"")));
  EXPECT_EQ(lines[3], "6 blocks pinned of 1,000 allowed");

  const Json json = Json::parse(Print("pins -o json", {"list_pins {}"}));
  ASSERT_THAT(json["pins"], SizeIs(2));
  EXPECT_EQ(json["pins"][0]["client_name"], "vllm-0");
  EXPECT_FALSE(json["pins"][0].contains("expire_time"));
  EXPECT_FALSE(json["pins"][0]["namespace"].contains("lora_id"));
  EXPECT_EQ(json["pins"][1]["namespace"]["lora_id"], "7");
  EXPECT_THAT(json["pins"][1]["expire_time"].get<std::string>(), HasSubstr("T"));
  EXPECT_EQ(json["budget_blocks"], 1000);
}

TEST_F(PrefixCommandsTest, MovesReturnWhenTheirCopiesAreDone) {
  const std::string wait = absl::StrCat("wait_for_ticket { ticket: ", kTicket, " }");
  EXPECT_EQ(
      Print("offload --tokens 1", {"offload_prefix { tokens: 1 namespace {} }", wait, wait, wait}),
      "5 blocks offloaded to the secondary tier\n");
  EXPECT_EQ(Print("prefetch --tokens 1",
                  {"prefetch_prefix { tokens: 1 namespace {} }", wait, wait, wait}),
            "4 blocks onboarded to the primary tier, 64 tokens are cached\n");
  const Json offloaded =
      Json::parse(Print("offload --tokens 1 -o json",
                        {"offload_prefix { tokens: 1 namespace {} }", wait, wait, wait}));
  EXPECT_EQ(offloaded, Json({{"blocks", 5}, {"ready_ticket", "6"}}));
}

TEST_F(PrefixCommandsTest, WithoutALowerTierAnOffloadFailsAndAPrefetchHasNothingToDo) {
  cache_.SetLowerBlocks(0);
  const Outcome offload = Ctl("offload --tokens 1");
  EXPECT_EQ(offload.exit_code, 1);
  EXPECT_EQ(offload.out, "");
  EXPECT_THAT(offload.err, HasSubstr("the cache has only one tier"));
  EXPECT_THAT(cache_.TakeOperations(), testing::IsEmpty());

  const std::string wait = absl::StrCat("wait_for_ticket { ticket: ", kTicket, " }");
  EXPECT_EQ(Print("prefetch --tokens 1",
                  {"prefetch_prefix { tokens: 1 namespace {} }", wait, wait, wait}),
            "nothing to onboard, because the cache has only one tier; 64 tokens are cached\n");
}

TEST_F(PrefixCommandsTest, APrefetchFromDiskWaitsForTheFetchAndTellsWhatLiesWhere) {
  cache_.SetDisk();
  const std::string wait = absl::StrCat("wait_for_ticket { ticket: ", kTicket, " }");
  const std::string fetch =
      absl::StrCat("wait_for_ticket { ticket: ", kFetchTicket, " lane: LANE_FETCH }");
  const std::string prefetch = "prefetch_prefix { tokens: 1 namespace {} }";
  const std::string match = "match_prefix { tokens: [1, 0] namespace {} }";
  const std::vector<std::string> asked = {prefetch, wait,     wait, wait, fetch, fetch, fetch,
                                          match,    prefetch, wait, wait, wait,  match};
  const std::vector<std::string> lines = Lines(Print("prefetch --tokens 1 --to primary", asked));
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], testing::StartsWith("6 blocks onboarded to the hbm tier, 3 blocks fetched "
                                            "from the nvme tier, in "));
  EXPECT_EQ(lines[1], "96 tokens cached: 96 in hbm");
  const Json sum = Json::parse(Lines(Print("prefetch --tokens 1 -o json", asked))[0]);
  EXPECT_EQ(sum["blocks"], 6);
  EXPECT_EQ(sum["fetched_blocks"], 3);

  const std::vector<std::string> in_memory =
      Lines(Print("prefetch --tokens 1 --to memory --deadline 1.5 -o json",
                  {"prefetch_prefix { tokens: 1 namespace {} target: PREFETCH_TARGET_MEMORY"
                   " deadline_ms: 1500 }",
                   wait, wait, wait, fetch, fetch, fetch, match}));
  ASSERT_THAT(in_memory, SizeIs(2));
  const Json ordered = Json::parse(in_memory[0]);
  EXPECT_EQ(ordered["blocks"], 2);
  EXPECT_EQ(ordered["fetched_blocks"], 3);
  EXPECT_EQ(ordered["matched_tokens"], 96);
  const Json end = Json::parse(in_memory[1]);
  EXPECT_EQ(end["cached_tokens"], 96);
  EXPECT_EQ(end["tokens_by_tier"], Json({32, 64, 0}));
}

TEST_F(PrefixCommandsTest, APrefetchMayBeOrderedOnly) {
  cache_.SetDisk();
  EXPECT_EQ(Print("prefetch --tokens 1 --no-wait", {"prefetch_prefix { tokens: 1 namespace {} }"}),
            "2 blocks being onboarded to the hbm tier, 3 blocks ordered from the nvme tier, 96 "
            "tokens are cached\n");
  EXPECT_EQ(Ctl("prefetch --tokens 1 --to disk").exit_code, 2);
  EXPECT_EQ(Ctl("prefetch --tokens 1 --deadline 0").exit_code, 2);
  EXPECT_THAT(cache_.TakeOperations(), testing::IsEmpty());
}

TEST_F(PrefixCommandsTest, AnOffloadAboveADiskSaysWhatIsWrittenThere) {
  cache_.SetDisk();
  const std::string wait = absl::StrCat("wait_for_ticket { ticket: ", kTicket, " }");
  EXPECT_EQ(
      Print("offload --tokens 1", {"offload_prefix { tokens: 1 namespace {} }", wait, wait, wait}),
      "5 blocks offloaded from the hbm tier; blocks without a copy on the nvme tier are written "
      "there "
      "before other blocks\n");
}

TEST_F(PrefixCommandsTest, AnInvalidationIsDurableWhereTheCacheHasADisk) {
  cache_.SetDisk();
  const std::string invalidate = "invalidate_prefix { tokens: [1, 2] namespace {} }";
  const std::string erased =
      absl::StrCat("wait_for_ticket { ticket: ", kDurableTicket, " lane: LANE_BACKUP }");
  EXPECT_EQ(Print("invalidate --tokens 1,2", {invalidate, erased, erased, erased}),
            "7 blocks left the cache, and none of them comes back after a restart\n");
  const Json json =
      Json::parse(Print("invalidate --tokens 1,2 -o json", {invalidate, erased, erased, erased}));
  EXPECT_EQ(json, Json({{"removed_blocks", "7"}, {"durable_ticket", "13"}}));
}

TEST_F(PrefixCommandsTest, AMoveWhoseCopiesTakeTooLongFails) {
  const Outcome outcome = Ctl("--timeout 0.000001 offload --tokens 1");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST_F(PrefixCommandsTest, InvalidateForgetsAPrefixOrAWholeNamespace) {
  EXPECT_EQ(Print("invalidate --tokens 1,2", {"invalidate_prefix { tokens: [1, 2] namespace {} }"}),
            "7 blocks left the cache\n");
  Print("invalidate --all --salt s", {"invalidate_prefix { namespace { cache_salt: 's' } }"});
  // A file that turns out empty names no namespace.
  const Outcome empty = Ctl("invalidate --token-file - </dev/null");
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, HasSubstr("--all"));
  EXPECT_THAT(cache_.TakeOperations(), testing::IsEmpty());
}

TEST_F(PrefixCommandsTest, RetainSetsAPriority) {
  EXPECT_EQ(Print("retain --tokens 1,2 --priority 90",
                  {"set_retention { tokens: [1, 2] namespace {} retention { priority: 90 } }"}),
            "2 blocks kept at priority 90\n");
  EXPECT_EQ(Print("retain --tokens 1,2 --priority 0 --duration 60 --from 1 --to 2 -o json",
                  {"set_retention { tokens: [1, 2] namespace {}"
                   " retention { token_start: 1 token_end: 2 priority: 0 duration_ms: 60000 } }"}),
            "{\"blocks\":2}\n");
}

}  // namespace
}  // namespace pagoda
