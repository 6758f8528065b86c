#include "engine/serve/openai/api_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/serve/openai/api_error.h"

namespace pagoda::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ApiRequest::Kind;

json Completion(const json& more = json::object()) {
  json body = {{"model", "m"}, {"prompt", "Hello"}};
  body.update(more);
  return body;
}

json Chat(const json& more = json::object()) {
  json body = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  body.update(more);
  return body;
}

// The field that the answer names.
std::string RefusedField(Kind kind, const json& body) {
  const absl::StatusOr<ApiRequest> request = ParseApiRequest(kind, body.dump());
  EXPECT_FALSE(request.ok()) << body;
  const Json error = ApiErrorJson(request.status());
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(ApiErrorResponse(request.status()).status, 400);
  return error["param"].is_string() ? error["param"].get<std::string>() : "";
}

TEST(ApiRequestTest, ACompletionHasTheDefaultsOfTheApi) {
  const absl::StatusOr<ApiRequest> request =
      ParseApiRequest(Kind::kCompletion, Completion().dump());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->model, "m");
  EXPECT_THAT(request->prompts, ElementsAre(ApiPrompt("Hello")));
  EXPECT_EQ(request->max_tokens, 16u);
  EXPECT_EQ(request->samples, 1u);
  EXPECT_EQ(request->sampling.temperature, 1.0f);
  EXPECT_EQ(request->sampling.top_p, 1.0f);
  EXPECT_FALSE(request->has_seed);
  EXPECT_FALSE(request->stream);
  EXPECT_FALSE(request->sampling.top_logprobs.has_value());
}

TEST(ApiRequestTest, ReadsEveryField) {
  const json body = Completion({{"max_tokens", 7},
                                {"temperature", 0.5},
                                {"top_p", 0.25},
                                {"top_k", 9},
                                {"repetition_penalty", 1.5},
                                {"n", 3},
                                {"seed", -1},
                                {"stream", true},
                                {"stream_options", {{"include_usage", true}}},
                                {"stop", {"a", "b"}},
                                {"stop_token_ids", {5}},
                                {"logprobs", 0},
                                {"priority", -2},
                                {"max_draft_tokens", 5},
                                {"cache_salt", "s"},
                                {"ignore_eos", true},
                                {"return_token_ids", true},
                                {"user", "u"}});
  const absl::StatusOr<ApiRequest> request = ParseApiRequest(Kind::kCompletion, body.dump());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->max_tokens, 7u);
  EXPECT_EQ(request->sampling.temperature, 0.5f);
  EXPECT_EQ(request->sampling.top_p, 0.25f);
  EXPECT_EQ(request->sampling.top_k, 9u);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request->samples, 3u);
  EXPECT_EQ(request->sampling.seed, ~uint64_t{0});
  EXPECT_TRUE(request->has_seed);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_THAT(request->stop, ElementsAre("a", "b"));
  EXPECT_THAT(request->stop_token_ids, ElementsAre(5u));
  EXPECT_EQ(request->sampling.top_logprobs, 0u);
  EXPECT_EQ(request->priority, -2);
  EXPECT_EQ(request->max_draft_tokens, 5u);
  EXPECT_EQ(request->cache_salt, "s");
  EXPECT_TRUE(request->ignore_eos);
  EXPECT_TRUE(request->return_token_ids);
}

TEST(ApiRequestTest, APromptIsATextOrIdsOrAListOfEither) {
  const auto prompts = [](const json& prompt) {
    return ParseApiRequest(Kind::kCompletion, Completion({{"prompt", prompt}}).dump())->prompts;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_THAT(prompts({1, 2}), ElementsAre(ApiPrompt(Ids{1, 2})));
  EXPECT_THAT(prompts({"a", "b"}), ElementsAre(ApiPrompt("a"), ApiPrompt("b")));
  EXPECT_THAT(prompts({{1}, {2, 3}}), ElementsAre(ApiPrompt(Ids{1}), ApiPrompt(Ids{2, 3})));
  for (const json& wrong : std::vector<json>{
           json(), json::array(), {-1}, {4294967296}, {1.5}, json(7), {{"a"}}, {json::array()}}) {
    EXPECT_EQ(RefusedField(Kind::kCompletion, Completion({{"prompt", wrong}})), "prompt") << wrong;
  }
}

TEST(ApiRequestTest, AChatHasMessagesOfText) {
  const json body = Chat(
      {{"messages",
        {{{"role", "system"}, {"content", "Be brief."}},
         {{"role", "user"},
          {"name", "x"},
          {"content", {{{"type", "text"}, {"text", "H"}}, {{"type", "text"}, {"text", "i"}}}}}}},
       {"max_completion_tokens", 5},
       {"max_tokens", nullptr},
       {"logprobs", true},
       {"top_logprobs", 4},
       {"tools", json::array()},
       {"response_format", {{"type", "text"}}}});
  const absl::StatusOr<ApiRequest> request = ParseApiRequest(Kind::kChat, body.dump());
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->messages.size(), 2);
  EXPECT_EQ(request->messages[1].role, "user");
  EXPECT_EQ(request->messages[1].content, "Hi");
  EXPECT_EQ(request->max_tokens, 5u);
  EXPECT_EQ(request->sampling.top_logprobs, 4u);
  EXPECT_FALSE(ParseApiRequest(Kind::kChat, Chat().dump())->max_tokens.has_value());
}

TEST(ApiRequestTest, NamesTheFieldThatIsWrong) {
  const std::vector<std::pair<std::string, json>> wrong = {
      {"model", nullptr},
      {"model", 7},
      {"max_tokens", 0},
      {"max_tokens", 1.5},
      {"max_tokens", 1e30},
      {"n", 0},
      {"n", 129},
      {"temperature", "hot"},
      {"stream", "yes"},
      {"stream_options", {{"include_usage", true}}},
      {"stop", {"a", ""}},
      {"stop", 7},
      {"stop", json::array_t(17, "a")},
      {"stop_token_ids", {-1}},
      {"seed", 0.5},
      {"seed", uint64_t{1} << 63},
      {"logprobs", 21},
      {"priority", uint64_t{1} << 40},
      {"max_draft_tokens", 33},
      {"cache_salt", 1}};
  for (const auto& [field, value] : wrong) {
    EXPECT_EQ(RefusedField(Kind::kCompletion, Completion({{field, value}})), field) << value;
  }
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"top_logprobs", 2}})), "top_logprobs");
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"messages", {{{"content", "a"}}}}})), "messages[0]");
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"messages", {{{"role", "user"}}}}})),
            "messages[0].content");
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"messages", "Hi"}})), "messages");
}

TEST(ApiRequestTest, RefusesByNameWhatIsNotServed) {
  const std::vector<std::pair<std::string, json>> completions = {{"echo", true},
                                                                 {"suffix", "x"},
                                                                 {"best_of", 2},
                                                                 {"presence_penalty", 0.1},
                                                                 {"logit_bias", {{"1", 2}}},
                                                                 {"frequency_penalty", 1},
                                                                 {"nonsense", 0},
                                                                 {"messages", json::array()}};
  for (const auto& [field, value] : completions) {
    EXPECT_EQ(RefusedField(Kind::kCompletion, Completion({{field, value}})), field);
  }
  const std::vector<std::pair<std::string, json>> chats = {
      {"tool_choice", "required"},
      {"tool_choice", {{"type", "function"}, {"function", {{"name", "f"}}}}},
      {"functions", {1}},
      {"response_format", {{"type", "yaml"}}},
      {"response_format", "json_object"},
      {"modalities", {"audio"}},
      {"audio", json::object()},
      {"prompt", "a"}};
  for (const auto& [field, value] : chats) {
    EXPECT_EQ(RefusedField(Kind::kChat, Chat({{field, value}})), field);
  }
  const json image = {{"role", "user"}, {"content", {{{"type", "image_url"}}}}};
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"messages", {image}}})), "messages[0].content");
  const json call = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {1}}};
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"messages", {call}}})), "messages[0].tool_calls");
}

using Format = StructuredOutput::Kind;

std::optional<StructuredOutput> StructuredIn(const std::string& more) {
  const std::string body =
      R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], )" + more + "}";
  const absl::StatusOr<ApiRequest> request = ParseApiRequest(Kind::kChat, body);
  EXPECT_TRUE(request.ok()) << request.status();
  return request->structured;
}

TEST(ApiRequestTest, AnAnswerCanHaveAFormat) {
  EXPECT_FALSE(StructuredIn(R"("response_format": {"type": "text"})").has_value());
  EXPECT_FALSE(StructuredIn(R"("response_format": null)").has_value());
  EXPECT_EQ(StructuredIn(R"("response_format": {"type": "json_object"})")->kind,
            Format::kJsonObject);
  // The schema stays as the client wrote it: the order of properties counts, and texts can look
  // like members.
  const std::string schema =
      R"({"properties": {"z": {"const": "\",\"schema\":{"}, "a": {}, "schema": {"enum": [[1]]}} })";
  const auto read =
      StructuredIn(R"("response_format" : {"json_schema": {"name": "n", "\u0073chema" :)" + schema +
                   R"(, "strict": true}, "type": "json_schema"}, "n": 1)");
  EXPECT_EQ(read->kind, Format::kJsonSchema);
  EXPECT_EQ(read->text, schema);
  EXPECT_EQ(StructuredIn(R"("guided_json": {"b": 1, "a": 2})")->text, R"( {"b": 1, "a": 2})");
  EXPECT_EQ(StructuredIn(R"("guided_json": "{\"b\": 1}")")->text, R"({"b": 1})");
  EXPECT_EQ(StructuredIn(R"("guided_regex": "a+")")->kind, Format::kRegex);
  EXPECT_EQ(StructuredIn(R"("guided_grammar": "root ::= x")")->text, "root ::= x");
}

TEST(ApiRequestTest, AWrongFormatIsRefusedByName) {
  const json schema = {{"type", "json_schema"}};
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"response_format", schema}})),
            "response_format.json_schema");
  json unnamed = schema;
  unnamed["json_schema"] = {{"name", "n"}};
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"response_format", unnamed}})),
            "response_format.json_schema.schema");
  const json extra = {{"type", "json_object"}, {"schema", json::object()}};
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"response_format", extra}})), "schema");
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"guided_regex", "a"}, {"guided_grammar", "b"}})),
            "guided_grammar");
  EXPECT_EQ(RefusedField(Kind::kCompletion, Completion({{"guided_regex", 1}})), "guided_regex");
  EXPECT_EQ(RefusedField(Kind::kCompletion,
                         Completion({{"guided_regex", "a"}, {"use_beam_search", true}, {"n", 2}})),
            "use_beam_search");
}

TEST(ApiRequestTest, AChatKeepsToolsAndFieldsInTheirOrder) {
  const std::string body =
      R"({"model": "m", "tools": [{"type": "function", "b": 1, "a": {"d": 1, "c": 2}}],
      "tool_choice": "auto", "chat_template_kwargs": {"z": 1, "enable_thinking": false},
      "messages": [
        {"role": "user", "content": "Hi", "name": null},
        {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [
          {"id": "1", "function": {"name": "f", "arguments": "{\"y\": 1, \"x\": [2]}"}},
          {"id": "2", "function": {"name": "f", "arguments": ""}},
          {"id": "3", "function": {"name": "f", "arguments": "no JSON"}},
          {"id": "4", "function": {"name": "f", "arguments": {"w": 1}}}]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "21"}]}]})";
  const absl::StatusOr<ApiRequest> request = ParseApiRequest(Kind::kChat, body);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->tools, ElementsAre(R"({"type":"function","b":1,"a":{"d":1,"c":2}})"));
  EXPECT_EQ(request->template_kwargs, R"({"z":1,"enable_thinking":false})");
  ASSERT_EQ(request->messages.size(), 3);
  EXPECT_EQ(request->messages[0].fields, "");
  EXPECT_EQ(request->messages[1].content, "");
  EXPECT_EQ(request->messages[1].fields,
            R"({"reasoning_content":"Hm.","tool_calls":[)"
            R"({"id":"1","function":{"name":"f","arguments":{"y":1,"x":[2]}}},)"
            R"({"id":"2","function":{"name":"f","arguments":{}}},)"
            R"({"id":"3","function":{"name":"f","arguments":"no JSON"}},)"
            R"({"id":"4","function":{"name":"f","arguments":{"w":1}}}]})");
  EXPECT_EQ(request->messages[2].content, "21");
  EXPECT_EQ(request->messages[2].fields, R"({"tool_call_id":"1"})");
}

// {"k0": 0, ...}.
std::string ObjectOf(int members) {
  std::string text = "{";
  for (int i = 0; i < members; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "\"k", i, "\":", i);
  return absl::StrCat(text, "}");
}

TEST(ApiRequestTest, ObjectsOfAChatHaveBoundedMembers) {
  const auto body = [](const std::string& more) {
    return absl::StrCat(R"({"model": "m", "messages": [{"role": "user", "content": "Hi"}], )", more,
                        "}");
  };
  const auto status = [&](const std::string& more) {
    return ParseApiRequest(Kind::kChat, body(more)).status();
  };
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(status(absl::StrCat(R"("tools": [)", ObjectOf(4096), "]")).ok());
  for (const std::string& more :
       {absl::StrCat(R"("tools": [)", ObjectOf(4097), "]"),
        absl::StrCat(R"("chat_template_kwargs": )", ObjectOf(400'000)),
        absl::StrCat(R"("metadata": [)", ObjectOf(400'000), "]"),
        // Each is within the bound.
        absl::StrCat(R"("metadata": [)", absl::StrJoin(std::vector(100, ObjectOf(4000)), ","),
                     "]")}) {
    const absl::Status refused = status(more);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("more than 4096 members"));
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(60));
}

TEST(ApiRequestTest, ArgumentsOfACallAreBounded) {
  const auto body = [](const std::string& arguments) {
    const json call = {{"function", {{"name", "f"}, {"arguments", arguments}}}};
    return Chat({{"messages", {{{"role", "assistant"}, {"tool_calls", {call}}}}}});
  };
  const auto nested = [](int depth) {
    return absl::StrCat(R"({"a":)", std::string(depth - 1, '['), std::string(depth - 1, ']'), "}");
  };
  const absl::StatusOr<ApiRequest> deepest = ParseApiRequest(Kind::kChat, body(nested(31)).dump());
  ASSERT_TRUE(deepest.ok()) << deepest.status();
  EXPECT_THAT(deepest->messages[0].fields,
              HasSubstr(absl::StrCat(R"("arguments":)", nested(31), ",")));
  EXPECT_EQ(RefusedField(Kind::kChat, body(nested(40))), "messages[0].tool_calls");
  EXPECT_EQ(RefusedField(Kind::kChat, body(ObjectOf(400'000))), "messages[0].tool_calls");
}

TEST(ApiRequestTest, WithoutAChoiceOfToolsTheModelSeesNone) {
  const json tools = {{{"type", "function"}}};
  const auto shown = [&](const json& more) {
    return ParseApiRequest(Kind::kChat, Chat(more).dump())->tools.size();
  };
  EXPECT_EQ(shown({{"tools", tools}}), 1);
  EXPECT_EQ(shown({{"tools", tools}, {"tool_choice", "none"}}), 0);
  const std::vector<std::pair<std::string, json>> wrong = {
      {"tools", 7},
      {"tools", {7}},
      {"tools", json::array_t(129, json::object())},
      {"chat_template_kwargs", {1}}};
  for (const auto& [field, value] : wrong) {
    EXPECT_EQ(RefusedField(Kind::kChat, Chat({{field, value}})), field) << value;
  }
  for (const json& calls : std::vector<json>{7, {7}, {{{"function", 7}}}, {{{"id", "1"}}}}) {
    const json message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", calls}};
    EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"messages", {message}}})), "messages[0].tool_calls");
  }
  EXPECT_EQ(RefusedField(Kind::kCompletion, Completion({{"tools", tools}})), "tools");
}

TEST(ApiRequestTest, ABeamSearchIsNamedAsInVllm) {
  const auto parsed = [](json more) {
    more["use_beam_search"] = true;
    return ParseApiRequest(Kind::kCompletion, Completion(more).dump());
  };
  const auto search =
      parsed({{"n", 2}, {"best_of", 4}, {"length_penalty", 0.5}, {"early_stopping", true}});
  ASSERT_TRUE(search.ok()) << search.status();
  EXPECT_EQ(search->beam_width, 4u);
  EXPECT_EQ(search->samples, 2u);
  EXPECT_EQ(search->length_penalty, 0.5f);
  EXPECT_TRUE(search->early_stopping);
  EXPECT_EQ(search->sampling.temperature, 0.0f) << "the default of 1 is for sampling";
  EXPECT_EQ(parsed({{"n", 3}})->beam_width, 3u) << "as many beams as answers";
  // A search with one beam is greedy, and the engine gets no beam options.
  const auto greedy = parsed({{"length_penalty", 0.5}, {"early_stopping", true}});
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  EXPECT_EQ(greedy->beam_width, 1u);
  EXPECT_EQ(greedy->length_penalty, 1.0f);
  EXPECT_FALSE(greedy->early_stopping);
  const auto chat =
      ParseApiRequest(Kind::kChat, Chat({{"n", 2}, {"use_beam_search", true}}).dump());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->beam_width, 2u);
  EXPECT_EQ(ParseApiRequest(Kind::kCompletion, Completion({{"n", 2}}).dump())->beam_width, 1u);
}

TEST(ApiRequestTest, RefusesWhatABeamSearchDoesNotHave) {
  const std::vector<std::pair<std::string, json>> wrong = {{"use_beam_search", 1},
                                                           {"n", 33},
                                                           {"best_of", 1},
                                                           {"best_of", 33},
                                                           {"length_penalty", 10.5},
                                                           {"length_penalty", "long"},
                                                           {"early_stopping", "never"},
                                                           {"temperature", 0.5},
                                                           {"top_k", 5},
                                                           {"top_p", 0.5},
                                                           {"repetition_penalty", 1.5},
                                                           {"logprobs", 1},
                                                           {"stop", "a"},
                                                           {"max_draft_tokens", 1}};
  for (const auto& [field, value] : wrong) {
    json more = {{"use_beam_search", true}, {"n", 2}};
    more[field] = value;
    EXPECT_EQ(RefusedField(Kind::kCompletion, Completion(more)), field) << value;
  }
  EXPECT_EQ(RefusedField(Kind::kCompletion, Completion({{"length_penalty", 2}})), "length_penalty");
  EXPECT_EQ(RefusedField(Kind::kChat, Chat({{"early_stopping", true}})), "early_stopping");
}

TEST(ApiRequestTest, RefusesWhatIsNoRequestAtAll) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string(100000, '['),
        std::string("{\"model\": \"\xff\"}"), std::string("{} {}")}) {
    const absl::StatusOr<ApiRequest> request = ParseApiRequest(Kind::kCompletion, body);
    EXPECT_EQ(ReasonOf(request.status()), Reason::kInvalidArgument) << body.substr(0, 20);
  }
  const std::string deep = std::string(40, '[') + "0" + std::string(40, ']');
  EXPECT_THAT(
      std::string(ParseApiRequest(Kind::kChat, "{\"tools\": " + deep + "}").status().message()),
      HasSubstr("deep"));
}

TEST(ApiErrorTest, AReasonHasItsStatus) {
  const auto status = [](const absl::Status& error) { return ApiErrorResponse(error).status; };
  EXPECT_EQ(status(MakeError(Reason::kQueueFull, "")), 429);
  EXPECT_EQ(status(MakeError(Reason::kBlocksExhausted, "")), 429);
  EXPECT_EQ(status(MakeError(Reason::kTooManyCalls, "")), 429);
  EXPECT_EQ(status(MakeError(Reason::kDraining, "")), 503);
  EXPECT_EQ(status(MakeError(Reason::kUnauthenticated, "")), 401);
  EXPECT_EQ(status(MakeError(Reason::kPermissionDenied, "")), 403);
  EXPECT_EQ(status(MakeError(Reason::kNoEngine, "")), 404);
  EXPECT_EQ(status(MakeError(Reason::kMessageTooLarge, "")), 413);
  EXPECT_EQ(status(MakeError(Reason::kInvalidPrompt, "")), 400);
  EXPECT_EQ(status(MakeError(Reason::kInvalidCheckpoint, "")), 400);
  EXPECT_EQ(status(MakeError(Reason::kKvLost, "")), 500);
  EXPECT_EQ(status(UnknownModel("a", "b")), 404);
  EXPECT_EQ(status(absl::InternalError("")), 500);
  EXPECT_EQ(ApiErrorJson(MakeError(Reason::kQueueFull, "m")).dump(),
            R"({"message":"m","type":"rate_limit_error","param":null,"code":"queue_full"})");
}

TEST(ApiRequestTest, TheGuardSeesTheCostOfIgnoredFieldsAndCanEndTheParsing) {
  std::string body = R"({"model":"m","prompt":[1],"metadata":[{})";
  for (int i = 0; i < 50'000; ++i) body += ",{}";
  body += "]}";
  size_t bytes = 0;
  ASSERT_TRUE(ParseApiRequest(Kind::kCompletion, body, [&](size_t more) {
                bytes += more;
                return absl::OkStatus();
              }).ok());
  EXPECT_GT(bytes, 50'000u * sizeof(ApiJson));
  int calls = 0;
  for (const Kind kind : {Kind::kCompletion, Kind::kChat}) {
    const absl::Status refused = ParseApiRequest(kind, body, [&](size_t) {
                                   ++calls;
                                   return absl::CancelledError("the client has gone");
                                 }).status();
    EXPECT_EQ(refused, absl::CancelledError("the client has gone"));
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace pagoda::server
