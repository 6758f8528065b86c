// What callers that are not operators read in /api/v1: each text field of the answers is either
// public, and listed here, or removed.
#include "server/http/public_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "wire/message_json.h"

namespace pagoda::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::UnorderedElementsAre;

// Sets every field of the message, and of the messages in it. A list gets one element.
void Fill(Message* message) {
  const auto& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->field(i);
    const bool is_list = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(is_list ? reflection.AddMessage(message, field)
                     : reflection.MutableMessage(message, field));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        is_list ? reflection.AddString(message, field, "x")
                : reflection.SetString(message, field, "x");
        break;
      default:  // Numbers are public.
        break;
    }
  }
}

// The paths of the texts that are not empty: "store.servers".
void TextsOf(const Message& message, const std::string& prefix, std::vector<std::string>* out) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = prefix + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      out->push_back(path);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      TextsOf(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, 0)
                                   : reflection.GetMessage(message, field),
              path + ".", out);
    }
  }
}
std::vector<std::string> TextsOf(const Message& message) {
  std::vector<std::string> texts;
  TextsOf(message, "", &texts);
  return texts;
}

// A new text field of GetStatusResponse fails this test until somebody has decided who may read it.
TEST(PublicViewTest, OthersReadTheseTextsOfTheStatus) {
  v1::GetStatusResponse status;
  Fill(&status);
  KeepPublic(&status);
  EXPECT_THAT(
      TextsOf(status),
      UnorderedElementsAre(
          "version", "cache.name", "cache.model_fingerprint", "cache.tiers.name",
          "windows.tiers.name", "engine.model", "engine.architecture",
          "transfers.directions.source_name", "transfers.directions.target_name",
          "exchange.unavailable", "exchange.fetches_total.name",
          "exchange.publisher.dropped_total.name", "store.gets_total.name", "store.puts_total.name",
          "store.exists_total.name", "store.faults_total.name",
          "peer_sources.connection.gets_total.name", "peer_sources.connection.puts_total.name",
          "peer_sources.connection.exists_total.name", "peer_sources.connection.faults_total.name",
          "disk.tier_name", "disk.windows.engine", "disk.windows.mode",
          "disk.windows.errors_total.name", "gpu_self_test.device", "gpu_self_test.kernels.part",
          "gpu_self_test.kernels.family", "gpu_self_test.kernels.outcome",
          "gpu_self_test.problem.reason"));
  EXPECT_TRUE(status.gpu_self_test().has_problem());
}

TEST(PublicViewTest, TheSelfTestOfAGpuKeepsItsNumbersAndNames) {
  v1::GetStatusResponse status;
  v1::GpuSelfTest& test = *status.mutable_gpu_self_test();
  test.set_device("cuda:0, a GPU");
  v1::GpuSelfTest::Kernel& kernel = *test.add_kernels();
  kernel.set_part("gate");
  kernel.set_family("portable");
  kernel.set_needed(true);
  kernel.set_outcome("timeout");
  kernel.set_tolerance(0.5);
  kernel.set_why("it hung");
  kernel.set_text("gate by portable is left out: timeout: it hung");
  test.mutable_problem()->set_code(9);
  test.mutable_problem()->set_message("no kernel for gate");
  EXPECT_EQ(JsonOf(test).value(),
            R"({"device":"cuda:0, a GPU","kernels":[{"part":"gate","family":"portable",)"
            R"("needed":true,"outcome":"timeout","error":0,"tolerance":0.5,"seconds":0,)"
            R"("why":"it hung","text":"gate by portable is left out: timeout: it hung"}],)"
            R"("problem":{"reason":"","code":9,"message":"no kernel for gate"},)"
            R"("no_backend":false})");
  KeepPublic(&status);
  EXPECT_EQ(JsonOf(test).value(),
            R"({"device":"cuda:0, a GPU","kernels":[{"part":"gate","family":"portable",)"
            R"("needed":true,"outcome":"timeout","error":0,"tolerance":0.5,"seconds":0,)"
            R"("why":"","text":""}],"problem":{"reason":"","code":9,"message":""},)"
            R"("no_backend":false})");
}

TEST(PublicViewTest, StrangersReadTheseTextsOfTheCaches) {
  v1::ListCachesResponse caches;
  Fill(&caches);
  KeepPublic(&caches);
  EXPECT_THAT(
      TextsOf(caches),
      UnorderedElementsAre("caches.cache.name", "caches.cache.model_fingerprint",
                           "caches.cache.tiers.name", "caches.tenant", "caches.tiers.name"));
  EXPECT_EQ(caches.caches_size(), 1);
  EXPECT_EQ(caches.budgets_size(), 0);
}

TEST(PublicViewTest, WhatIsAbsentStaysAbsent) {
  v1::GetStatusResponse status;
  KeepPublic(&status);
  EXPECT_EQ(status.ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace pagoda::server
