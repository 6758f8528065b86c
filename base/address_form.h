#ifndef PAGODA_BASE_ADDRESS_FORM_H_
#define PAGODA_BASE_ADDRESS_FORM_H_

#include <string>
#include <string_view>

namespace pagoda {

// The most probable reason why a text is not HOST:PORT, as the end of a sentence: "it has no port".
// Empty if it has the form 127.0.0.1:7070, [::1]:7070 or host.example:7070. Whether the host exists
// is not checked.
std::string AddressMistake(std::string_view text);

}  // namespace pagoda

#endif  // PAGODA_BASE_ADDRESS_FORM_H_
