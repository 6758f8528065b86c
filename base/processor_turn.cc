#include "base/processor_turn.h"

#include <optional>
#include <thread>

#include "base/stopwatch.h"

namespace pagoda {
namespace {

thread_local std::optional<SteadyTime> turn;  // When it began. Nothing: the thread takes no turns.

}  // namespace

void BeginProcessorTurn() { turn = SteadyNow(); }

void RestartProcessorTurn() {
  if (turn.has_value()) turn = SteadyNow();
}

bool ProcessorTurnIsOver() { return turn.has_value() && Since(*turn) >= kProcessorTurn; }

void EndProcessorTurnIfOver() {
  if (!ProcessorTurnIsOver()) return;
  std::this_thread::yield();
  turn = SteadyNow();
}

}  // namespace pagoda
