// Checks of numbers for options of CLI11.
#ifndef PAGODA_CLIENTS_COMMAND_LINE_NUMBER_CHECK_H_
#define PAGODA_CLIENTS_COMMAND_LINE_NUMBER_CHECK_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pagoda {

// In place of CLI::PositiveNumber and CLI::NonNegativeNumber, whose errors print the largest double
// with all of its 309 digits.
inline CLI::Validator AboveZero() {
  return {[](const std::string& text) {
            double number = 0;
            const bool good = absl::SimpleAtod(text, &number) && number > 0;
            return good ? std::string() : absl::StrCat("\"", text, "\" is not a number above 0");
          },
          "POSITIVE"};
}
inline CLI::Validator NotNegative() {
  return {[](const std::string& text) {
            double number = 0;
            const bool good = absl::SimpleAtod(text, &number) && number >= 0;
            return good ? std::string() : absl::StrCat("\"", text, "\" is not a number from 0 on");
          },
          "NONNEGATIVE"};
}

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_COMMAND_LINE_NUMBER_CHECK_H_
