#include "clients/command_line/options/cache_spec.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "pools/types.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr char kDefaultDType[] = "bfloat16";
constexpr char kDTypePrefix[] = "DTYPE_";

// The dtype's name in lower case: "bfloat16".
std::string DTypeText(v1::DType dtype) {
  absl::string_view name = v1::DType_Name(dtype);
  if (!absl::ConsumePrefix(&name, kDTypePrefix)) return absl::StrCat("dtype ", int{dtype});
  return absl::AsciiStrToLower(name);
}

std::string AllDTypes() {
  std::vector<std::string> names;
  for (int i = v1::DType_MIN + 1; i <= v1::DType_MAX; ++i) {
    if (v1::DType_IsValid(i)) names.push_back(DTypeText(static_cast<v1::DType>(i)));
  }
  return absl::StrJoin(names, ", ");
}

absl::Status Refuse(const std::string& text, const std::string& what) {
  return MakeError(Reason::kInvalidArgument, absl::StrCat("\"", text, "\": ", what));
}

// Accepts only digits: no blanks and no sign.
template <class Number>
bool ReadNumber(absl::string_view text, Number* number) {
  return text.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(text, number);
}

// Counts are positive, because 0 means an unset field.
bool ReadCount(absl::string_view text, uint32_t* count) {
  return ReadNumber(text, count) && *count > 0;
}

bool ReadBlockBytes(absl::string_view text, v1::LayerGroup* group) {
  const uint64_t bytes = ParseByteSize(text).value_or(0);
  group->set_kind(v1::LAYER_KIND_OPAQUE);
  group->set_bytes_per_block(bytes);
  return bytes > 0;
}

// "8x128", "K576" or "K4x128".
bool ReadHeads(absl::string_view text, v1::LayerGroup* group) {
  const bool key_only = absl::ConsumePrefix(&text, "K");
  group->set_kind(key_only ? v1::LAYER_KIND_KEY_ONLY : v1::LAYER_KIND_KEY_VALUE);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, 'x');
  uint32_t heads = 1;
  uint32_t head_dim = 0;
  const bool says_heads = parts.size() == 2;
  if (parts.size() > 2 || (!says_heads && !key_only)) return false;
  if (says_heads && !ReadCount(parts[0], &heads)) return false;
  if (!ReadCount(parts.back(), &head_dim)) return false;
  group->set_num_kv_heads(heads);
  group->set_head_dim(head_dim);
  return true;
}

}  // namespace

absl::StatusOr<v1::LayerGroup> ParseLayerGroup(const std::string& text) {
  constexpr char kForms[] =
      "layers are COUNTxHEADSxDIM, COUNTxKDIM (K only) or COUNTxopaque:BYTES; the first two can be "
      "followed by :DTYPE, and all can end with @WINDOW";
  v1::LayerGroup group;
  absl::string_view rest = text;
  uint32_t count = 0;
  if (const size_t at = rest.rfind('@'); at != absl::string_view::npos) {
    if (!ReadCount(rest.substr(at + 1), &count)) return Refuse(text, kForms);
    group.set_window_size(count);
    rest = rest.substr(0, at);
  }
  const size_t x = rest.find('x');
  if (x == absl::string_view::npos || !ReadCount(rest.substr(0, x), &count)) {
    return Refuse(text, kForms);
  }
  group.set_count(count);
  rest = rest.substr(x + 1);
  if (absl::ConsumePrefix(&rest, "opaque:")) {
    if (!ReadBlockBytes(rest, &group)) return Refuse(text, kForms);
    return group;
  }
  const size_t colon = rest.find(':');
  const bool says_dtype = colon != absl::string_view::npos;
  const std::string name(says_dtype ? rest.substr(colon + 1) : kDefaultDType);
  if (!ReadHeads(rest.substr(0, colon), &group)) return Refuse(text, kForms);
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  v1::DType_Parse(absl::StrCat(kDTypePrefix, absl::AsciiStrToUpper(name)), &dtype);
  if (dtype == v1::DTYPE_UNSPECIFIED) {
    return Refuse(text, absl::StrCat("unknown dtype ", name, "; the dtypes are ", AllDTypes()));
  }
  group.set_dtype(dtype);
  return group;
}

std::string LayerGroupText(const v1::LayerGroup& group) {
  std::string text = absl::StrCat(group.count(), "x");
  if (group.kind() == v1::LAYER_KIND_OPAQUE) {
    absl::StrAppend(&text, "opaque:", group.bytes_per_block());
  } else {
    const bool key_only = group.kind() == v1::LAYER_KIND_KEY_ONLY;
    if (key_only) absl::StrAppend(&text, "K");
    if (!key_only || group.num_kv_heads() != 1) absl::StrAppend(&text, group.num_kv_heads(), "x");
    absl::StrAppend(&text, group.head_dim(), ":", DTypeText(group.dtype()));
  }
  if (group.window_size() != 0) absl::StrAppend(&text, "@", group.window_size());
  return text;
}

absl::StatusOr<v1::TierSize> ParseTierSize(const std::string& text, v1::Medium medium) {
  v1::TierSize size;
  size.set_medium(medium);
  absl::string_view number = text;
  if (absl::ConsumeSuffix(&number, "%")) {
    // "12.5" is 125 thousandths.
    const std::vector<absl::string_view> parts = absl::StrSplit(number, '.');
    uint32_t percent = 0;
    uint32_t tenths = 0;
    const bool has_tenths = parts.size() == 2 && parts[1].size() == 1;
    const bool good = (parts.size() == 1 || has_tenths) && ReadNumber(parts[0], &percent) &&
                      (!has_tenths || ReadNumber(parts[1], &tenths));
    if (!good || percent > 100 || percent * 10 + tenths == 0 || percent * 10 + tenths > 1000) {
      return Refuse(text, "a share is 0.1% to 100%, with at most one digit after the point");
    }
    size.set_free_permille(percent * 10 + tenths);
    return size;
  }
  const std::optional<uint64_t> bytes = ParseByteSizeWithUnit(text);
  if (!bytes.has_value() || *bytes == 0) {
    return Refuse(text, absl::StrCat("a size is ", kByteSizeForms,
                                     ", or a share of the free memory such as 50%"));
  }
  size.set_bytes(*bytes);
  return size;
}

std::string MediumText(v1::Medium medium) {
  const std::optional<Medium> known = MediumFromProto(medium);
  return known.has_value() ? std::string(MediumName(*known)) : absl::StrCat("medium ", int{medium});
}

}  // namespace pagoda
