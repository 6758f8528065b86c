// The measurements of an answer, for people and for programs.
#ifndef PAGODA_CLIENTS_PAGODA_RUN_REPORT_TEXT_H_
#define PAGODA_CLIENTS_PAGODA_RUN_REPORT_TEXT_H_

#include <string>

#include "clients/pagoda_run/local_model.h"
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
std::string ReportText(const LocalAnswer& answer);

// tokens, text, stopped, prompt_tokens, reused_tokens, generated_tokens, finish_reason,
// time_to_first_token_seconds, prompt_tokens_per_second, decode_tokens_per_second, draft tokens if
// there were any. An answer that was stopped before its first token has only the first three.
nlohmann::ordered_json AnswerJson(const LocalAnswer& answer);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_RUN_REPORT_TEXT_H_
