// The measurements of an answer, for people and for programs.
#ifndef PAGODA_ENGINE_SERVE_PROMPT_REPORT_TEXT_H_
#define PAGODA_ENGINE_SERVE_PROMPT_REPORT_TEXT_H_

#include <string>

#include "engine/serve/prompt/answerer.h"
#include "nlohmann/json.hpp"

namespace pagoda {

// The prompt tokens that went through the model, divided by the time from the end of the queue to
// the first token. Reused tokens do not count. 0 without a report.
double PromptTokensPerSecond(const GenerateReport& report);
// The tokens behind the first one, divided by the time from the first token to the last: without
// the prompt. 0 if there was only one token.
double DecodeTokensPerSecond(const GenerateReport& report);

// One line: "82 prompt tokens, 28 reused (34.15 %); first token after 1.86 ms; prompt 29,032.3
// tokens/s, decode 4,353.1 tokens/s; 16 tokens, ended by length".
std::string ReportText(const PromptAnswer& answer);

// text, stopped, prompt_tokens_per_second, decode_tokens_per_second, and the members of
// GeneratedToJson. An answer that was stopped before its first token has only tokens, text and
// stopped.
nlohmann::ordered_json AnswerJson(const PromptAnswer& answer);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_REPORT_TEXT_H_
