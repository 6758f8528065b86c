#ifndef PAGODA_TESTS_CLIENTS_FAKE_ENGINE_H_
#define PAGODA_TESTS_CLIENTS_FAKE_ENGINE_H_

#include <cstdint>

#include "grpcpp/grpcpp.h"
#include "pagoda/v1/engine.grpc.pb.h"

namespace pagoda {

// Echoes the prompt's tokens plus one, and the name of an adapter. A request with five tokens is
// not told how many were reused.
class FakeEngine final : public v1::EngineService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    for (uint32_t token : request->prompt_tokens()) {
      v1::GenerateResponse message;
      message.add_tokens(token + 1);
      writer->Write(message);
    }
    v1::GenerateResponse last;
    if (!request->adapter().empty()) last.set_text("adapter " + request->adapter());
    v1::GenerateReport* report = last.mutable_report();
    report->set_finish_reason(v1::FINISH_REASON_LENGTH);
    report->set_prompt_tokens(request->prompt_tokens_size());
    if (request->prompt_tokens_size() != 5) report->set_reused_tokens(1);
    report->set_generated_tokens(request->prompt_tokens_size());
    report->mutable_time_to_first_token()->set_nanos(2'000'000);
    report->mutable_total_time()->set_nanos(500'000'000);
    writer->Write(last);
    return grpc::Status::OK;
  }
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_CLIENTS_FAKE_ENGINE_H_
