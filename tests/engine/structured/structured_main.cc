// The program of structured_test. It starts itself to compile grammars, as the daemon does.
#include <gtest/gtest.h>

#include <optional>

#include "engine/structured/grammar_process.h"

int main(int argc, char** argv) {
  if (const std::optional<int> status = pagoda::GrammarProcessMain(argc, argv);
      status.has_value()) {
    return *status;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
