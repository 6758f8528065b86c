#include "engine/text/tokenizer/gguf_pre_tokenizers.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pagoda {
namespace {

// The expressions are llama.cpp's, which differ in places from those of the models' own tokenizers:
// llama.cpp does not distinguish upper and lower case beyond ASCII. Where it searches without
// categories of characters, spaces beyond ASCII match nothing but \s; the sets leave them out.
constexpr char kContractions[] = "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])";
constexpr char kLinesAndSpaces[] = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits[] = R"(\p{N}+)";
constexpr char kThreeDigits[] = R"(\p{N}{1,3})";
constexpr char kThreeAsciiDigits[] = "[0-9][0-9][0-9]";
constexpr char kLines[] = R"([^\n]+|[\n]+)";
constexpr char kNewline[] = R"([\r\n])";
constexpr char kEastAsian[] = "[一-龥぀-ゟ゠-ヿ]+";
constexpr char kSignsWithSlash[] = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)";

constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr char kBailingMoe[] =
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kQwen35Words[] =
    R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)";
constexpr char kSeedCoderWords[] = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)";
constexpr char kJais2Words[] =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S))"
    R"(|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr char kExaoneMoeWords[] = R"([^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
                                   R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kYoutuScripts[] =
    R"([\uAC00-\uD7A3\u3131-\u318E]+|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A)"
    R"(\uFF1B\uFF0C\u3001-\u303F\uFE30-\uFE4F]+|[\u3105-\u312F]+|[\u4E00-\u9FA5)"
    R"(\u3040-\u309F\u30A0-\u30FF]+)";
constexpr char kDeepseekWords[] = R"([!"#$%\&'()*+,\-./:;<=>?@\[\\\]\^_`\{|\}~][A-Za-z]+)"
                                  R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)";
constexpr char kDeepseekEastAsian[] = R"([[一-龥ࠀ-一가-퟿]--[\s]]+)";
constexpr char kDeepseekLetters[] =
    R"(\s?[)"
    R"(A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293)"
    R"(\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A)"
    R"(\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556)"
    R"(\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B)"
    R"(\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D)"
    R"(\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE)"
    R"(\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4)"
    R"(\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128)"
    R"(\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184)"
    R"(\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B)"
    R"(\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17)"
    R"(\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3)"
    R"(\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2)"
    R"(\U000118A0-\U000118DF\U0001E900-\U0001E943]+)";
constexpr char kDeepseekSigns[] = R"(\s?[!-/:-~！-／：-～‘-‟、-。]+)";
constexpr char kSpacesAtEnd[] = R"(\s+\z)";

constexpr char kBloom[] = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr char kFalconSigns[] = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr char kDefaultSigns[] = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr char kAfmoeScripts[] =
    R"([\u4E00-\u9FFF\u3400-\u4DBF\u8C48-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F)"
    R"(\u2F00-\u2FDF\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F)"
    R"(\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+)";

// Words, numbers and signs behind the contractions.
std::string WithContractions(absl::string_view words) {
  return absl::StrCat(kContractions, "|", words);
}

std::string WordsAndSigns(absl::string_view number) {
  return absl::StrCat(R"([^\r\n\p{L}\p{N}]?\p{L}+|)", number, R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)",
                      kLinesAndSpaces);
}

// Words in which a capital begins a new one. `upper` and `lower` are sets of characters.
std::string CasedWords(absl::string_view upper, absl::string_view lower, absl::string_view behind,
                       absl::string_view number) {
  constexpr char kBefore[] = R"([^\r\n\p{L}\p{N}]?)";
  return absl::StrCat(kBefore, upper, "*", lower, "+", behind, "|",  //
                      kBefore, upper, "+", lower, "*", behind, "|", number, kSignsWithSlash,
                      kLinesAndSpaces);
}

using PreTokenizers = std::map<std::string, GgufPreTokenizer, std::less<>>;

void AddNames(PreTokenizers& table, absl::string_view names,
              const GgufPreTokenizer& pre_tokenizer) {
  for (const absl::string_view name : absl::StrSplit(names, ' ')) {
    table.emplace(name, pre_tokenizer);
  }
}

void AddGpt2Words(PreTokenizers& table) {
  AddNames(table, "default", {.expressions = {kDefaultSigns, kGpt2, kDigits, kThreeAsciiDigits}});
  AddNames(table,
           "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling",
           {.expressions = {kGpt2}});
  AddNames(table, "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
           {.expressions = {kDigit, kGpt2}});
}

void AddLlama3Words(PreTokenizers& table) {
  const std::string llama3 = WithContractions(WordsAndSigns(kThreeDigits));
  AddNames(table, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2",
           {.expressions = {llama3}, .ignore_merges = true, .adds_bos = true});
  AddNames(table, "dbrx smaug-bpe", {.expressions = {llama3}});
  AddNames(table, "chatglm-bpe", {.expressions = {llama3}, .has_default_bos = false});
  AddNames(table, "glm4 glm5",
           {.expressions = {llama3}, .ignore_merges = true, .has_default_bos = false});
}

void AddQwen2Words(PreTokenizers& table) {
  const std::string qwen2 = WithContractions(WordsAndSigns(kDigit));
  AddNames(table, "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
           {.expressions = {qwen2}});
  AddNames(table, "qwen35",
           {.expressions = {WithContractions(absl::StrCat(kQwen35Words, kLinesAndSpaces))}});
  AddNames(table, "ufakzeka", {.expressions = {WordsAndSigns(kDigit)}});
  AddNames(table, "laguna", {.expressions = {kLines, qwen2}});
}

// Adds pre-tokenizers that only one family of models has.
void AddFamilyWords(PreTokenizers& table) {
  AddNames(table, "minicpm5",
           {.expressions = {kThreeDigits, WithContractions(WordsAndSigns(kDigits))},
            .ignore_merges = true});
  AddNames(table, "jais-2", {.expressions = {WithContractions(kJais2Words)}});
  AddNames(table, "seed-coder",
           {.expressions = {WithContractions(absl::StrCat(kSeedCoderWords, kLinesAndSpaces))}});
  AddNames(table, "bailingmoe bailingmoe2 llada-moe", {.expressions = {kBailingMoe}});
  AddNames(table, "exaone-moe", {.expressions = {WithContractions(kExaoneMoeWords)}});
}

void AddCasedWords(PreTokenizers& table) {
  const std::string contractions = absl::StrCat("(?:", kContractions, ")?");
  constexpr char kUpper[] = R"([\p{L}--[a-z]])";
  constexpr char kLower[] = R"([\p{L}--[A-Z]])";
  constexpr char kAnyCase[] = R"([\p{L}\p{M}])";
  AddNames(table, "tekken",
           {.expressions = {CasedWords(kUpper, kLower, "", kDigit)},
            .ignore_merges = true,
            .adds_bos = true});
  AddNames(table, "gpt-4o llama4 kanana2 talkie minimax-m2",
           {.expressions = {CasedWords(kUpper, kLower, contractions, kThreeDigits)}});
  AddNames(table, "granite-embed-multi-97m",
           {.expressions = {CasedWords(R"([[\p{L}\p{M}]--[a-z]])", R"([[\p{L}\p{M}]--[A-Z]])",
                                       contractions, kThreeDigits)},
            .ignore_merges = true});
  AddNames(
      table, "tiny_aya cohere2moe",
      {.expressions = {kDigitGroups, CasedWords(kAnyCase, kAnyCase, contractions, kThreeDigits)}});
  AddNames(table, "youtu",
           {.expressions = {kYoutuScripts, CasedWords(kAnyCase, kAnyCase, contractions, kDigit)},
            .ignore_merges = true});
}

void AddDeepseekWords(PreTokenizers& table) {
  const std::string words = absl::StrCat(kDeepseekWords, R"([\r\n]*)", kLinesAndSpaces);
  AddNames(table, "deepseek-llm",
           {.expressions = {kNewline, kDeepseekLetters, kDeepseekSigns, kSpacesAtEnd,
                            kDeepseekEastAsian, kDigits}});
  AddNames(table, "deepseek-coder",
           {.expressions = {kNewline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekEastAsian, kDigit}});
  AddNames(table, "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
           {.expressions = {kThreeDigits, kEastAsian, words}});
  AddNames(table, "spark2_5",
           {.expressions = {kThreeDigits, kEastAsian,
                            absl::StrCat(kDeepseekWords, R"(|[\r\n]|\s+(?!\S)|\s+)"), kDigit}});
  AddNames(table, "afmoe", {.expressions = {kDigitGroups, kAfmoeScripts, words}});
}

// Adds the pre-tokenizers of models that split signs, digits or marks of their own before the
// words.
void AddSigns(PreTokenizers& table) {
  AddNames(table, "falcon", {.expressions = {kFalconSigns, kGpt2, kThreeAsciiDigits}});
  AddNames(table, "bloom poro-chat gpt3-finnish", {.expressions = {kBloom}});
  AddNames(table, "viking", {.expressions = {kBloom, kDigit}});
  AddNames(table, "superbpe", {.expressions = {kDigits, "(?=(?:[0-9]{3})+(?![0-9]))"}});
  AddNames(table, "chameleon",
           {.expressions = {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", R"([\t\n]|    |  )", kDigit,
                            R"([\p{P}!-/:-@\[-`\x7B-~])", kGpt2},
            .adds_bos = true});
}

void AddLinesWithVisibleSpaces(PreTokenizers& table) {
  const GgufPreTokenizer lines = {.expressions = {kLines}, .has_visible_spaces = true};
  AddNames(table, "sarvam-moe", lines);
  GgufPreTokenizer gemma4 = lines;
  gemma4.joins_newlines = true;
  gemma4.adds_bos = true;
  gemma4.has_default_bos = false;
  AddNames(table, "gemma4", gemma4);
}

const PreTokenizers& Table() {
  static const auto* const table = [] {
    auto* const made = new PreTokenizers;
    AddGpt2Words(*made);
    AddLlama3Words(*made);
    AddQwen2Words(*made);
    AddFamilyWords(*made);
    AddCasedWords(*made);
    AddDeepseekWords(*made);
    AddSigns(*made);
    AddLinesWithVisibleSpaces(*made);
    return made;
  }();
  return *table;
}

}  // namespace

const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name) {
  const auto found = Table().find(name.empty() ? "default" : name);
  return found == Table().end() ? nullptr : &found->second;
}

std::vector<std::string> GgufPreTokenizerNames() {
  std::vector<std::string> names;
  for (const auto& [name, pre_tokenizer] : Table()) names.push_back(name);
  return names;
}

}  // namespace pagoda
