#include "engine/structured/large_stack.h"

#include <cstddef>

#include "base/thread.h"

namespace pagoda {
namespace {

// For a recursion through GrammarCompiler::kMaxRules rules, many times.
constexpr size_t kStackBytes = 256 << 20;

}  // namespace

absl::Status RunWithLargeStack(absl::FunctionRef<void()> work) {
  Thread thread;
  const absl::Status started = thread.Start("pagoda-grammar", work, kStackBytes);
  thread.Join();
  return started;
}

}  // namespace pagoda
