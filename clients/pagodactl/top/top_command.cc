// pagodactl top: shows a daemon's status live.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/event_poll.h"
#include "base/file_descriptor.h"
#include "clients/command_line/terminal/interrupt.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/top/commands.h"
#include "clients/pagodactl/top/full_screen.h"
#include "clients/pagodactl/top/top_json.h"
#include "clients/pagodactl/top/top_poller.h"
#include "clients/pagodactl/top/top_screen.h"
#include "clients/pagodactl/top/top_state.h"
#include "clients/pagodactl/top/top_stream.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

// The longest wait for a daemon that hangs.
constexpr double kMostPollSeconds = 2;
// The interval of the checks whether the snapshot is complete.
constexpr absl::Duration kSnapshotLook = absl::Milliseconds(20);

struct TopOptions {
  double interval_seconds = 1;
  bool once = false;

  absl::Duration interval() const { return absl::Seconds(interval_seconds); }
};

// Delivers signals through a descriptor while the object exists. Create it before other threads:
// they inherit the signal mask.
class SignalQueue {
 public:
  SignalQueue() : fd_(signalfd(-1, Block(), SFD_CLOEXEC | SFD_NONBLOCK)) {}
  ~SignalQueue() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

  int fd() const { return fd_.get(); }
  // The next signal; 0 if there is none.
  int Take() const {
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  const sigset_t* Block() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
      sigaddset(&signals_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
    return &signals_;
  }

  sigset_t signals_;
  sigset_t previous_;
  const FileDescriptor fd_;
};

void AddAnswer(absl::StatusOr<TopSample> answer, TopState& state) {
  if (answer.ok()) {
    state.Add(*std::move(answer));
  } else {
    state.Fail(answer.status(), absl::Now());
  }
}

GlobalOptions PollOptions(GlobalOptions globals) {
  globals.timeout_seconds = std::min(globals.timeout_seconds, kMostPollSeconds);
  return globals;
}

// --- On a terminal ---

class LiveTop {
 public:
  LiveTop(TopState* state, const SignalQueue* signals) : state_(*state), signals_(*signals) {}

  // Runs until a key, a signal, or the end of the terminal.
  absl::Status Run(TopPoller poller, absl::Duration interval) {
    absl::StatusOr<EventPoll> wait = EventPoll::Create();
    if (!wait.ok()) return wait.status();
    if (!wait->Add(signals_.fd(), EPOLLIN, &ended_)) {
      return absl::ErrnoToStatus(errno, "cannot wait for signals");
    }
    // A file, which epoll refuses, has its keys now.
    if (!wait->Add(STDIN_FILENO, EPOLLIN, this)) OnKeys();
    TopPollThread polls(std::move(poller), interval, &*wait);
    FullScreen screen;
    while (!ended_) {
      if (absl::Status drawn = screen.Draw(Picture()); !drawn.ok()) return drawn;
      const EventPoll::Ready ready = wait->Wait(absl::InfiniteDuration());
      for (absl::StatusOr<TopSample>& answer : polls.Take()) AddAnswer(std::move(answer), state_);
      while (const int signal = signals_.Take()) OnSignal(signal, screen);
      const bool has_keys = absl::c_linear_search(ready.sources, this);
      if (has_keys && !OnKeys()) wait->Remove(STDIN_FILENO);
    }
    return absl::OkStatus();
  }

 private:
  // A copy of the state while the picture is paused.
  struct Held {
    TopState state;
    absl::Time time;
  };

  std::vector<std::string> Picture() const {
    const Terminal terminal = DetectTerminal(STDOUT_FILENO);
    if (!held_.has_value()) return TopScreen(state_, terminal, absl::Now());
    return TopScreen(held_->state, terminal, held_->time, TopPicture::kHeld);
  }

  void OnSignal(int signal, FullScreen& screen) {
    if (signal == SIGWINCH) return;  // The next picture has the new size.
    if (signal != SIGTSTP) {
      ended_ = true;
      return;
    }
    screen.Leave();
    raise(SIGSTOP);  // Stops like Ctrl-Z. Execution continues here after SIGCONT.
    screen.Enter();
  }

  // False if standard input is at its end, or the terminal is gone.
  bool OnKeys() {
    char keys[64];
    const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
    for (ssize_t i = 0; i < count; ++i) {
      if (keys[i] == 'q' || keys[i] == 'Q') ended_ = true;
      if (keys[i] == ' ') HoldOrGoOn();
    }
    return count > 0;
  }

  void HoldOrGoOn() {
    if (held_.has_value()) {
      held_.reset();
    } else {
      held_.emplace(Held{.state = state_, .time = absl::Now()});
    }
  }

  TopState& state_;
  const SignalQueue& signals_;
  bool ended_ = false;
  std::optional<Held> held_;
};

absl::Status RunLive(const GlobalOptions& globals, const TopOptions& options) {
  const SignalQueue signals;
  const GlobalOptions polled = PollOptions(globals);
  const TopStream stream(polled);
  TopPoller poller(polled, &stream);
  // Polls once first, so that an absent daemon gives an error instead of a picture.
  absl::StatusOr<TopSample> first = poller.Poll();
  if (!first.ok()) return first.status();
  TopState state(globals.endpoint);
  state.Add(*std::move(first));
  return LiveTop(&state, &signals).Run(std::move(poller), options.interval());
}

// --- Without a terminal ---

void PrintState(const GlobalOptions& globals, const TopState& state) {
  if (globals.output == OutputFormat::kJson) {
    std::cout << TopJson(state).dump() << std::endl;
    return;
  }
  Terminal terminal = DetectTerminal(STDOUT_FILENO);
  terminal.rows = 0;
  for (const std::string& line : TopScreen(state, terminal, absl::Now())) {
    std::cout << line << "\n";
  }
  std::cout << std::flush;
}

// Prints a time stamp above each report of a series.
void PrintTime(bool first) {
  std::cout << (first ? "" : "\n")
            << absl::FormatTime("--- %Y-%m-%d %H:%M:%S ---", absl::Now(), absl::LocalTimeZone())
            << "\n\n";
}

// Waits for the stream's snapshot, so that the first report is complete. Also returns if the stream
// fails, after `timeout`, and when `ended` is notified; the report then says what is missing.
void WaitForSnapshot(const TopStream& stream, absl::Duration timeout, absl::Notification& ended) {
  const absl::Time deadline = absl::Now() + timeout;
  do {
    const StreamLook look = stream.Look();
    const bool refused = look.phase == StreamLook::Phase::kDown && !look.interruption.ok();
    if (look.live() || refused || look.time > deadline) return;
  } while (!ended.WaitForNotificationWithTimeout(kSnapshotLook));
}

// Prints a line or a report every interval. The first one comes after one interval, when there are
// rates.
absl::Status RunLines(const GlobalOptions& globals, const TopOptions& options) {
  absl::Notification ended;
  const InterruptScope interrupt([&ended] { ended.Notify(); });
  const GlobalOptions polled = PollOptions(globals);
  const TopStream stream(polled);
  TopPoller poller(polled, &stream);
  if (absl::StatusOr<TopSample> first = poller.Poll(); !first.ok()) return first.status();
  WaitForSnapshot(stream, globals.timeout(), ended);
  TopState state(globals.endpoint);
  AddAnswer(poller.Poll(), state);
  for (bool first = true; !ended.WaitForNotificationWithTimeout(options.interval());
       first = false) {
    AddAnswer(poller.Poll(), state);
    if (globals.output == OutputFormat::kTable && !options.once) PrintTime(first);
    PrintState(globals, state);
    if (options.once) return state.error();
    if (!std::cout) return absl::AbortedError("cannot write the output: its reader is gone");
  }
  return absl::OkStatus();
}

absl::Status RunTop(const GlobalOptions& globals, const TopOptions& options) {
  const bool live = !options.once && globals.output == OutputFormat::kTable &&
                    DetectTerminal(STDOUT_FILENO).interactive;
  return live ? RunLive(globals, options) : RunLines(globals, options);
}

}  // namespace

void AddTopCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "top",
      "Shows the daemon's status live: occupancy, hit rate, events, clients, copies, tenants");
  // Owned by the parser's callback and by the action it makes.
  const auto options = std::make_shared<TopOptions>();
  command->add_option("--interval", options->interval_seconds, "Seconds between two updates")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", options->once, "Print one report after one interval, then end");
  command->footer(
      "Keys: q or Ctrl-C quits, space pauses the picture. If the output is not a terminal, top\n"
      "prints a report every interval until it is interrupted; with -o json, one object per line.\n"
      "The cached blocks and the changes come from the event stream, which begins with a "
      "snapshot,\n"
      "so top counts as one of the daemon's subscribers. Free blocks, clients and hit rates are\n"
      "polled.\n"
      "Examples:\n"
      "  pagodactl top --interval 0.5\n"
      "  pagodactl top --once\n"
      "  pagodactl top -o json | jq -c '[.time, .windows[0].interval_hit_rate]'\n"
      "  pagodactl top -o json | jq -c '.stream.windows[]? | [.window, .reusable_blocks]'");
  command->callback([&globals, &chosen, options] {
    chosen = [&globals, options] { return RunTop(globals, *options); };
  });
}

}  // namespace pagoda
