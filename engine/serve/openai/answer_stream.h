// Sends an answer as server-sent events.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_ANSWER_STREAM_H_
#define PAGODA_ENGINE_SERVE_OPENAI_ANSWER_STREAM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/serve/openai/api_answer.h"
#include "server/http/http_exchange.h"

namespace pagoda::server {

// The stream begins with the first pieces. An error before them is sent as a normal answer with its
// own status. Thread-compatible.
class AnswerStream {
 public:
  struct Options {
    uint32_t choices = 1;
    bool is_chat = false;
    bool include_usage = false;
  };
  // `answer` and `exchange` must outlive this object.
  AnswerStream(const ApiAnswer* answer, HttpExchange* exchange, Options options)
      : answer_(*answer), exchange_(*exchange), options_(options), open_choices_(options.choices) {}

  // False: the client no longer accepts data.
  bool Add(absl::Span<const ChoicePiece> pieces);
  void Finish(absl::Span<const GenerateReport> reports);
  void Fail(const absl::Status& status);

 private:
  bool Write(std::string text);

  const ApiAnswer& answer_;
  HttpExchange& exchange_;
  const Options options_;
  uint32_t open_choices_;
  bool begun_ = false;
  // The piece that ends the last choice. It is sent together with the totals.
  std::optional<ChoicePiece> last_;
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_ANSWER_STREAM_H_
