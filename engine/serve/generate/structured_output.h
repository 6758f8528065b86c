#ifndef PAGODA_ENGINE_SERVE_GENERATE_STRUCTURED_OUTPUT_H_
#define PAGODA_ENGINE_SERVE_GENERATE_STRUCTURED_OUTPUT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/structured/grammar.h"
#include "engine/text/model_text.h"
#include "pagoda/v1/engine.pb.h"

namespace pagoda::server {

// Compiles what a request says its answers must be; null if it says nothing. Too long for a gRPC
// thread. Errors: those of ModelText::CompileGrammar; INVALID_ARGUMENT for an empty message.
absl::StatusOr<std::shared_ptr<const CompiledGrammar>> ReadStructuredOutput(
    const v1::GenerateRequest& request, const ModelText& text);

// Whether ReadStructuredOutput may take long, because nothing is known of the grammar yet.
bool MustCompile(const v1::GenerateRequest& request, const ModelText& text);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_GENERATE_STRUCTURED_OUTPUT_H_
