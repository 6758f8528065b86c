#include "base/address_form.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

constexpr uint32_t kMaxPort = 65535;

}  // namespace

std::string AddressMistake(std::string_view text) {
  if (text.empty()) return "it is empty";
  if (const size_t end = text.find("://"); end != std::string_view::npos) {
    return absl::StrCat("it begins with ", std::string(text.substr(0, end + 3)),
                        ", and only host and port are meant");
  }
  if (text.starts_with("unix:") || text.find('/') != std::string_view::npos) {
    return "it is a path, and a TCP address is meant";
  }
  const size_t bracket = text.rfind(']');
  const size_t after_host = bracket == std::string_view::npos ? 0 : bracket;
  const size_t colon = text.find(':', after_host);
  if (bracket == std::string_view::npos && std::count(text.begin(), text.end(), ':') > 1) {
    return "an IPv6 address needs brackets, as in [::1]:7070";
  }
  if (colon == std::string_view::npos) {
    return absl::StrCat("it has no port, as in ", std::string(text), ":7070");
  }
  if (colon == 0) return "it has no host";
  if (text.starts_with('[') != (bracket != std::string_view::npos) ||
      (bracket != std::string_view::npos && colon != bracket + 1)) {
    return "its brackets do not enclose the host, as in [::1]:7070";
  }
  const std::string port(text.substr(colon + 1));
  const bool in_digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  uint32_t number = 0;
  if (!in_digits || !absl::SimpleAtoi(port, &number) || number > kMaxPort) {
    return absl::StrCat("its port '", port, "' is no number up to ", kMaxPort);
  }
  return "";
}

}  // namespace pagoda
