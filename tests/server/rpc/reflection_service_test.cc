#include "server/rpc/reflection_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/descriptor_database.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "server/daemon.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

namespace reflection = grpc::reflection::v1;
using Request = reflection::ServerReflectionRequest;
using Response = reflection::ServerReflectionResponse;

Request ForSymbol(const std::string& name) {
  Request request;
  request.set_file_containing_symbol(name);
  return request;
}

std::vector<std::string> Names(const Response& list) {
  std::vector<std::string> names;
  for (const auto& service : list.list_services_response().service()) {
    names.push_back(service.name());
  }
  return names;
}

// Adds the files of an answer.
void AddFiles(const Response& answer, google::protobuf::SimpleDescriptorDatabase* files) {
  for (const std::string& bytes : answer.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(bytes));
    ASSERT_TRUE(files->Add(file)) << file.name();
  }
}

class ReflectionServiceTest : public DaemonTest {
 protected:
  ReflectionServiceTest() : stub_(reflection::ServerReflection::NewStub(channel())) {}

  // The answers of one stream to the requests.
  std::vector<Response> Ask(const std::vector<Request>& requests) {
    const std::unique_ptr<grpc::ClientContext> context = NewContext();
    const auto stream = stub_->ServerReflectionInfo(context.get());
    std::vector<Response> answers;
    for (const Request& request : requests) {
      EXPECT_TRUE(stream->Write(request));
      Response answer;
      EXPECT_TRUE(stream->Read(&answer));
      EXPECT_EQ(answer.original_request().SerializeAsString(), request.SerializeAsString());
      answers.push_back(answer);
    }
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    return answers;
  }
  Response Ask(const Request& request) { return Ask(std::vector<Request>{request}).at(0); }

  const std::unique_ptr<reflection::ServerReflection::Stub> stub_;
};

TEST_F(ReflectionServiceTest, DescribesEveryServiceThatItLists) {
  Request list;
  list.set_list_services("*");
  const std::vector<std::string> names = Names(Ask(list));
  EXPECT_THAT(names, IsSupersetOf({"pagoda.v1.CacheService", "pagoda.v1.AdminService",
                                   "pagoda.v1.EventService", "grpc.health.v1.Health",
                                   "grpc.reflection.v1.ServerReflection",
                                   "grpc.reflection.v1alpha.ServerReflection"}));
  for (const std::string& name : names) {
    google::protobuf::SimpleDescriptorDatabase files;
    AddFiles(Ask(ForSymbol(name)), &files);
    google::protobuf::DescriptorPool pool(&files);  // Needs every imported file.
    const google::protobuf::ServiceDescriptor* const service = pool.FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    EXPECT_GT(service->method_count(), 0) << name;
  }
}

TEST_F(ReflectionServiceTest, TheEarlierVersionAnswersTheSame) {
  namespace alpha = grpc::reflection::v1alpha;
  const auto stub = alpha::ServerReflection::NewStub(channel());
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  const auto stream = stub->ServerReflectionInfo(context.get());
  alpha::ServerReflectionRequest request;
  request.set_file_containing_symbol("pagoda.v1.CacheService.Execute");
  ASSERT_TRUE(stream->Write(request));
  alpha::ServerReflectionResponse answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.SerializeAsString(),
            Ask(ForSymbol("pagoda.v1.CacheService.Execute")).SerializeAsString());
}

TEST_F(ReflectionServiceTest, FindsFilesAndExtensions) {
  Request file, numbers, extension;
  file.set_file_by_filename("pagoda/v1/types.proto");
  numbers.set_all_extension_numbers_of_type("pagoda.v1.ExecuteRequest");
  extension.mutable_file_containing_extension()->set_containing_type("pagoda.v1.ExecuteRequest");
  extension.mutable_file_containing_extension()->set_extension_number(1000);
  const std::vector<Response> answers = Ask({file, numbers, extension});
  google::protobuf::FileDescriptorProto found;
  ASSERT_TRUE(
      found.ParseFromString(answers[0].file_descriptor_response().file_descriptor_proto().at(0)));
  EXPECT_EQ(found.name(), "pagoda/v1/types.proto");
  EXPECT_EQ(answers[1].all_extension_numbers_response().base_type_name(),
            "pagoda.v1.ExecuteRequest");
  EXPECT_EQ(answers[1].all_extension_numbers_response().extension_number_size(), 0);
  EXPECT_EQ(answers[2].error_response().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ReflectionServiceTest, AnUnknownNameIsAnErrorAndTheStreamGoesOn) {
  const std::vector<Response> answers =
      Ask({ForSymbol("pagoda.v1.Missing"), Request(), ForSymbol("pagoda.v1.CacheService")});
  EXPECT_EQ(answers[0].error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(answers[0].error_response().error_message(), HasSubstr("pagoda.v1.Missing"));
  EXPECT_EQ(answers[1].error_response().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(answers[2].has_file_descriptor_response());
}

TEST_F(ReflectionServiceTest, ALargeRequestEndsTheStream) {
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  const auto stream = stub_->ServerReflectionInfo(context.get());
  stream->Write(ForSymbol(std::string(ReflectionService::kMaxRequestBytes, 'x')));
  Response answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(InfoOf(stream->Finish()).reason(), "MESSAGE_TOO_LARGE");
}

TEST_F(ReflectionServiceTest, AnOpenStreamEndsWithTheDrain) {
  const std::unique_ptr<grpc::ClientContext> context = NewContext();
  const auto stream = stub_->ServerReflectionInfo(context.get());
  ASSERT_TRUE(stream->Write(ForSymbol("pagoda.v1.CacheService")));
  Response answer;
  ASSERT_TRUE(stream->Read(&answer));
  std::thread drain([this] { daemon().Drain(); });
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(InfoOf(stream->Finish()).reason(), "DRAINING");
  drain.join();
}

}  // namespace
}  // namespace pagoda::server
