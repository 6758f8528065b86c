#include "clients/pagodactl/top/top_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/command/engine_text.h"
#include "clients/pagodactl/events/event_text.h"
#include "clients/pagodactl/store/exchange_text.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr size_t kLabelWidth = 12;
constexpr int kMinBar = 8;
constexpr int kMaxBar = 64;
// The space beside a bar for its label and "100.0 % of 1,000,000".
constexpr int kBesideBar = 36;
// The number of events shown: at most, and at least if space is short.
constexpr size_t kMostRecent = 8;
constexpr size_t kFewestRecent = 3;

size_t CharactersOf(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) {
    return (c & 0xC0) != 0x80;  // Not a continuation byte of UTF-8.
  }));
}

// The first `count` characters.
std::string FirstCharacters(const std::string& text, size_t count) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts_character && count-- == 0) return text.substr(0, i);
  }
  return text;
}

// A line of text pieces, each with or without a style. The line can thus be cut before escape
// sequences are added.
class Line {
 public:
  Line& Add(std::string text) {
    pieces_.push_back({std::move(text), std::nullopt});
    return *this;
  }
  Line& Add(Style style, std::string text) {
    pieces_.push_back({std::move(text), style});
    return *this;
  }
  // A line that begins with a label, or with blanks if it continues the previous one.
  static Line Labelled(const std::string& label) {
    Line line;
    return line.Add(absl::StrFormat("%-*s", kLabelWidth, label));
  }

  std::string Render(const Terminal& terminal) const {
    std::string text;
    // Lines in a file are not cut.
    size_t room = terminal.rows > 0 ? static_cast<size_t>(std::max(terminal.columns, 0))
                                    : std::numeric_limits<size_t>::max();
    for (const Piece& piece : pieces_) {
      const std::string shown = FirstCharacters(piece.text, room);
      room -= CharactersOf(shown);
      if (shown.empty()) continue;
      text += piece.style.has_value() ? Paint(terminal, *piece.style, shown) : shown;
    }
    return text;
  }

 private:
  struct Piece {
    std::string text;
    std::optional<Style> style;
  };
  std::vector<Piece> pieces_;
};

// Lines that are shown or left out together. The section with the largest `rank` is left out first.
// Before that, the lines after the first `keep` lines of sections are dropped one by one.
struct Section {
  int rank;
  std::vector<Line> lines;
  size_t keep = std::numeric_limits<size_t>::max();
};

std::string RateText(double rate) {
  return rate < 9.95 ? absl::StrFormat("%.1f", rate)
                     : FormatCount(static_cast<uint64_t>(std::llround(rate)));
}

std::string PercentText(double share) { return absl::StrFormat("%.1f %%", share * 100); }

// --- Bars ---

struct BlockState {
  const char* name;
  const char* unicode;
  const char* ascii;
  Style style;
};
constexpr size_t kNumStates = 5;
constexpr std::array<BlockState, kNumStates> kStates = {{{"active", "█", "#", Style::kGreen},
                                                         {"cached", "▓", "=", Style::kBlue},
                                                         {"pinned", "▒", "!", Style::kYellow},
                                                         {"in flight", "╱", "~", Style::kCyan},
                                                         {"free", "░", ".", Style::kDim}}};

std::array<uint32_t, kNumStates> BlocksOf(const v1::TierStatus& tier) {
  return {tier.active_blocks(), tier.cached_blocks(), tier.pinned_blocks(), tier.in_flight_blocks(),
          tier.free_blocks()};
}

// The cells of each state, `width` in total. Each share is rounded down, but a state with blocks
// gets at least one cell. The largest state takes the difference.
std::array<int, kNumStates> CellsOf(const std::array<uint32_t, kNumStates>& blocks,
                                    uint32_t capacity, int width) {
  std::array<int, kNumStates> cells = {};
  int left = width;
  for (size_t i = 0; i < kNumStates; ++i) {
    cells[i] = static_cast<int>(std::floor(Share(blocks[i], capacity) * width));
    if (blocks[i] > 0) cells[i] = std::max(cells[i], 1);
    left -= cells[i];
  }
  const auto largest = std::max_element(blocks.begin(), blocks.end()) - blocks.begin();
  cells[largest] = std::max(cells[largest] + left, 0);
  return cells;
}

void AddBar(const v1::TierStatus& tier, int width, const Terminal& terminal, Line& line) {
  const auto cells = CellsOf(BlocksOf(tier), tier.capacity_blocks(), width);
  for (size_t i = 0; i < kNumStates; ++i) {
    std::string text;
    for (int cell = 0; cell < cells[i]; ++cell) {
      text += terminal.unicode ? kStates[i].unicode : kStates[i].ascii;
    }
    line.Add(kStates[i].style, std::move(text));
  }
}

// --- Sections, from top to bottom ---

Section Title(const TopState& state, absl::Time now, TopPicture picture) {
  const v1::GetStatusResponse& status = state.sample()->status;
  Section section{.rank = 0, .lines = {}};
  Line& title = section.lines.emplace_back();
  title.Add(Style::kBold, "pagodad")
      .Add(absl::StrCat(" ", status.version(), " at ", state.endpoint(), ", up ",
                        FormatElapsed(DurationFromProto(status.uptime()))));
  if (status.draining()) title.Add(", ").Add(Style::kYellow, "draining");
  if (picture == TopPicture::kHeld) {
    section.lines.emplace_back().Add(Style::kYellow, "paused; space continues");
  }
  if (!state.error().ok()) {
    section.lines.emplace_back().Add(
        Style::kRed, absl::StrCat("no answer for ", FormatElapsed(now - state.failing_since()),
                                  ", retrying: ", std::string(state.error().message())));
  }
  if (status.quarantined_blocks() > 0) {
    section.lines.emplace_back().Add(
        Style::kYellow,
        absl::StrCat("quarantined: ", FormatCounted(status.quarantined_blocks(), "block"), " of ",
                     FormatCounted(status.quarantines(), "ended session")));
  }
  return section;
}

Section Cache(const v1::GetStatusResponse& status) {
  const v1::CacheInfo& cache = status.cache();
  Section section{.rank = 6, .lines = {Line::Labelled("cache")}};
  const std::string& model = cache.model_fingerprint();
  section.lines[0].Add(absl::StrFormat(
      "%s, model %s, %s per block, epoch %016x", cache.name(), model.empty() ? "-" : model,
      FormatCounted(cache.tokens_per_block(), "token"), status.epoch()));
  return section;
}

void AddTier(const v1::TierStatus& tier, const Terminal& terminal, Section& section) {
  const auto blocks = BlocksOf(tier);
  const uint32_t used = tier.capacity_blocks() - tier.free_blocks();
  Line bar = Line::Labelled(absl::StrCat("  ", TierText(tier)));
  AddBar(tier, std::clamp(terminal.columns - kBesideBar, kMinBar, kMaxBar), terminal, bar);
  bar.Add(absl::StrCat(" ", PercentText(Share(used, tier.capacity_blocks())), " of ",
                       FormatCount(tier.capacity_blocks())));
  section.lines.push_back(std::move(bar));
  Line counts = Line::Labelled("");
  for (size_t i = 0; i < kNumStates; ++i) {
    counts.Add(absl::StrCat(i == 0 ? "" : ", ", FormatCount(blocks[i]), " ", kStates[i].name));
  }
  section.lines.push_back(std::move(counts));
}

// "612 primary, 500 dram".
std::string ReusableText(const WindowFigures& figures, const v1::CacheInfo& cache) {
  std::string text;
  for (const auto& [tier, blocks] : figures.reusable) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", FormatCount(blocks), " ",
                    TierText(tier, cache));
  }
  return text.empty() ? "none" : text;
}

// "25 stored, 0.0 offloaded, 0.0 onboarded, 3.0 evicted". Other removal reasons are shown only if
// they occurred.
std::string ChangesText(const StreamRates::Window& rates) {
  std::string text = absl::StrCat(RateText(rates.stored), " stored, ", RateText(rates.offloaded),
                                  " offloaded, ", RateText(rates.onboarded), " onboarded");
  const auto evicted = rates.removed.find(v1::REMOVAL_REASON_EVICTED);
  absl::StrAppend(&text, ", ", RateText(evicted == rates.removed.end() ? 0 : evicted->second),
                  " evicted");
  for (const auto& [reason, rate] : rates.removed) {
    if (reason == v1::REMOVAL_REASON_EVICTED || rate <= 0) continue;
    absl::StrAppend(&text, ", ", RateText(rate), " ", RemovalReasonText(reason));
  }
  return text;
}

// Adds the stream's figures of a window, if the stream is live and has them.
void AddStreamLines(const TopState& state, uint32_t window_size, Section& section) {
  const StreamLook& look = state.sample()->stream;
  const auto figures = look.figures.windows.find(window_size);
  if (!look.live() || figures == look.figures.windows.end()) return;
  section.lines.push_back(Line::Labelled("  reusable"));
  section.lines.back().Add(ReusableText(figures->second, state.sample()->status.cache()));
  if (!state.stream_rates().has_value()) return;
  section.lines.push_back(Line::Labelled("  changes/s"));
  section.lines.back().Add(ChangesText(state.stream_rates()->windows.at(window_size)));
}

Section Window(const TopState& state, int index, const Terminal& terminal) {
  const v1::WindowStatus& window = state.sample()->status.windows(index);
  const TopRates::Window* rates =
      state.rates().has_value() ? &state.rates()->windows[index] : nullptr;
  Section section{.rank = 1, .lines = {}};
  Line& head = section.lines.emplace_back();
  head.Add(Style::kBold, "window")
      .Add(absl::StrCat(
          " ", WindowName(WindowFromProto(window.window_size())), ", hit rate ",
          rates != nullptr && rates->hit_rate.has_value() ? PercentText(*rates->hit_rate) : "-",
          " now, ",
          PercentText(Share(window.prefix_hit_tokens_total(), window.prefix_lookup_tokens_total())),
          " since the start"));
  for (const v1::TierStatus& tier : window.tiers()) AddTier(tier, terminal, section);
  AddStreamLines(state, window.window_size(), section);
  if (rates != nullptr) {
    section.lines.push_back(Line::Labelled("  allocated"));
    section.lines.back().Add(absl::StrCat(RateText(rates->allocated_blocks), " per second, for ",
                                          RateText(rates->lookup_tokens),
                                          " prompt tokens looked up"));
  }
  section.lines.push_back(Line::Labelled("  pinned"));
  section.lines.back().Add(absl::StrCat(FormatCount(window.pinned_blocks()), " of ",
                                        FormatCount(window.pin_budget_blocks()), " allowed"));
  return section;
}

Line ClientsLine(const v1::GetStatusResponse& status) {
  Line line = Line::Labelled("clients");
  return line.Add(absl::StrCat(FormatCounted(status.sessions(), "session"), ", ",
                               FormatCounted(status.sequences(), "sequence"), ", ",
                               FormatCounted(status.subscribers(), "subscriber"), ", ",
                               FormatCounted(status.pins(), "pin")));
}

// A healthy stream lags behind the answer by the events of a few milliseconds.
void AddBehind(const TopState& state, Line& line) {
  const std::optional<uint64_t> behind = state.sample()->events_behind();
  if (!behind.has_value()) {
    line.Add(Style::kYellow, "from another incarnation than the answer");
  } else if (*behind == 0) {
    line.Add(Style::kGreen, "up to date");
  } else if (state.stream_lags()) {
    line.Add(Style::kYellow,
             absl::StrCat(FormatCounted(*behind, "event"), " and more than an interval behind"));
  } else {
    line.Add(absl::StrCat(FormatCounted(*behind, "event"), " behind"));
  }
}

Line StreamLine(const TopState& state, absl::Time now) {
  const StreamLook& look = state.sample()->stream;
  Line line = Line::Labelled("stream");
  switch (look.phase) {
    case StreamLook::Phase::kDown:
      if (look.interruption.ok()) return line.Add("none yet");
      return line.Add(Style::kRed,
                      absl::StrCat("none for ", FormatElapsed(now - look.phase_since),
                                   ", retrying: ", std::string(look.interruption.message())));
    case StreamLook::Phase::kSnapshot: {
      uint64_t blocks = 0;
      for (const auto& [size, window] : look.figures.windows) blocks += window.stored;
      return line.Add(Style::kYellow, absl::StrCat("reading a snapshot, ",
                                                   FormatCounted(blocks, "block"), " so far"));
    }
    case StreamLook::Phase::kLive:
      break;
  }
  line.Add(absl::StrCat("at revision ", FormatCount(look.figures.revision), ", "));
  AddBehind(state, line);
  return line.Add(
      absl::StrCat(", last message ", FormatElapsed(look.time - look.last_message), " ago"));
}

// The cache's clients, and the stream's figures of the whole cache.
Section Activity(const TopState& state, absl::Time now) {
  Section section{.rank = 2, .lines = {ClientsLine(state.sample()->status)}};
  Line events = Line::Labelled("events");
  if (const std::optional<StreamRates>& rates = state.stream_rates(); rates.has_value()) {
    events.Add(absl::StrCat(
        RateText(rates->events), " per second: ", RateText(rates->stored_events), " stored, ",
        RateText(rates->updated_events), " updated, ", RateText(rates->removed_events),
        " removed, ", RateText(rates->created_events), " created"));
  } else {
    events.Add("- per second");
  }
  section.lines.push_back(std::move(events));
  section.lines.push_back(StreamLine(state, now));
  const StreamLook& look = state.sample()->stream;
  if (look.phase != StreamLook::Phase::kDown && !look.interruption.ok()) {
    section.lines.push_back(Line::Labelled(""));
    section.lines.back().Add(
        Style::kYellow,
        absl::StrCat("restarted ", FormatElapsed(now - look.phase_since), " ago, with snapshot ",
                     look.figures.snapshots + (look.live() ? 0 : 1), ": ",
                     std::string(look.interruption.message())));
  }
  return section;
}

// The last events, newest first. If space is short, the oldest ones are dropped.
Section Recent(const TopState& state) {
  Section section{.rank = 5, .lines = {}, .keep = kFewestRecent};
  const StreamLook& look = state.sample()->stream;
  if (!look.live()) return section;
  const std::deque<EventSummary>& recent = look.figures.recent;
  for (auto event = recent.rbegin(); event != recent.rend(); ++event) {
    if (section.lines.size() == kMostRecent) break;
    Line& line = section.lines.emplace_back(Line::Labelled(section.lines.empty() ? "latest" : ""));
    line.Add(absl::FormatTime("%H:%M:%E3S ", event->time, absl::LocalTimeZone()))
        .Add(event->style, absl::StrFormat("%-8s", event->type));
    if (look.figures.windows.size() > 1) {
      line.Add(absl::StrFormat("%-6s ", WindowName(WindowFromProto(event->window_size))));
    }
    line.Add(event->detail);
  }
  return section;
}

Section Transfers(const TopState& state) {
  const v1::TransferStatus& transfers = state.sample()->status.transfers();
  Section section{.rank = 4, .lines = {Line::Labelled("copies")}};
  section.lines[0].Add(absl::StrCat(FormatCount(transfers.running()), " running, ",
                                    FormatCount(transfers.queued()), " waiting, ",
                                    FormatCount(transfers.failed_total()), " failed"));
  if (!state.rates().has_value()) return section;
  for (const TopRates::Direction& direction : state.rates()->directions) {
    section.lines.push_back(Line::Labelled(""));
    section.lines.back().Add(absl::StrCat(direction.source, " to ", direction.target, ": ",
                                          FormatBytes(static_cast<uint64_t>(direction.bytes)),
                                          "/s, ", RateText(direction.copies),
                                          " copies per second"));
  }
  return section;
}

// Empty without a store and without other daemons.
Section OtherMachines(const v1::GetStatusResponse& status) {
  Section section{.rank = 4, .lines = {}};
  for (const LabelledTexts& texts : {OtherMachinesTexts(status), ExchangeTexts(status)}) {
    for (const auto& [label, text] : texts) {
      section.lines.push_back(Line::Labelled(label));
      section.lines.back().Add(text);
    }
  }
  return section;
}

// "120 of 1,000 primary, 7 dram", over all windows.
std::string UseText(const v1::TenantInfo& tenant) {
  std::string text;
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const auto tier = static_cast<v1::Tier>(v1::TIER_PRIMARY + static_cast<int>(t));
    std::string name;
    uint64_t used = 0, quota = 0;
    bool any = false, limited = true;
    for (const v1::TenantUse& use : tenant.use()) {
      if (use.tier() != tier) continue;
      any = true;
      name = TierText(use.tier(), use.tier_name());
      used += use.used_blocks();
      quota += use.quota_blocks();
      limited = limited && use.has_quota_blocks();
    }
    if (!any) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", FormatCount(used),
                    limited ? absl::StrCat(" of ", FormatCount(quota)) : "", " ", name);
  }
  return text;
}

// Empty if the default tenant is the only one: it then has all blocks.
Section Tenants(const std::vector<v1::TenantInfo>& tenants) {
  Section section{.rank = 3, .lines = {}};
  if (tenants.size() == 1 && tenants[0].name().empty()) return section;
  for (const v1::TenantInfo& tenant : tenants) {
    section.lines.push_back(Line::Labelled(section.lines.empty() ? "tenants" : ""));
    section.lines.back().Add(absl::StrFormat(
        "%-16s %s, %s, blocks: %s", tenant.name().empty() ? "(default tenant)" : tenant.name(),
        FormatCounted(tenant.sessions(), "session"), FormatCounted(tenant.sequences(), "sequence"),
        UseText(tenant)));
  }
  return section;
}

Section Engine(const v1::EngineStatus& engine) {
  Section section{.rank = 5, .lines = {Line::Labelled("engine")}, .keep = 1};
  section.lines[0].Add(absl::StrFormat("%s, %d running, %d waiting requests, ", engine.model(),
                                       engine.running_requests(), engine.waiting_requests()));
  if (engine.up()) {
    section.lines[0].Add(EngineStateText(engine));
  } else {
    section.lines[0].Add(Style::kRed, EngineStateText(engine));
  }
  const std::string addresses = EngineAddressesText(engine.addresses());
  if (!addresses.empty()) section.lines.push_back(Line::Labelled("").Add(addresses));
  return section;
}

Section Legend(const Terminal& terminal) {
  Section section{.rank = 7, .lines = {Line()}};
  for (const BlockState& state : kStates) {
    section.lines[0]
        .Add(state.style, terminal.unicode ? state.unicode : state.ascii)
        .Add(absl::StrCat(" ", state.name, "   "));
  }
  if (terminal.rows > 0) section.lines[0].Add("q quits, space pauses");
  return section;
}

// --- Fitting ---

size_t LinesOf(const std::vector<Section>& sections) {
  size_t lines = 0;
  for (const Section& section : sections) lines += section.lines.size();
  return lines;
}

// Drops the last line of a section that can lose one. Returns false if there is none.
bool DropLine(std::vector<Section>& sections) {
  for (Section& section : sections) {
    if (section.lines.size() <= section.keep) continue;
    section.lines.pop_back();
    return true;
  }
  return false;
}

// Drops the section of the largest rank; among equal ranks, the last one.
void DropLeast(std::vector<Section>& sections) {
  auto least = sections.begin();
  for (auto it = sections.begin(); it != sections.end(); ++it) {
    if (it->rank >= least->rank) least = it;
  }
  sections.erase(least);
}

std::vector<std::string> Fit(std::vector<Section> sections, const Terminal& terminal) {
  std::erase_if(sections, [](const Section& section) { return section.lines.empty(); });
  const bool bounded = terminal.rows > 0;
  const auto rows = static_cast<size_t>(std::max(terminal.rows, 0));
  while (bounded && sections.size() > 1 && LinesOf(sections) > rows) {
    if (!DropLine(sections)) DropLeast(sections);
  }
  // Empty lines between sections, if there is space for all of them.
  const bool airy = !bounded || LinesOf(sections) + sections.size() - 1 <= rows;
  std::vector<std::string> lines;
  for (const Section& section : sections) {
    if (airy && !lines.empty()) lines.emplace_back();
    for (const Line& line : section.lines) lines.push_back(line.Render(terminal));
  }
  if (bounded && lines.size() > rows) lines.resize(rows);
  return lines;
}

}  // namespace

std::vector<std::string> TopScreen(const TopState& state, const Terminal& terminal, absl::Time now,
                                   TopPicture picture) {
  std::vector<Section> sections;
  if (!state.sample().has_value()) {
    sections.push_back({.rank = 0, .lines = {Line()}});
    sections[0].lines[0].Add(absl::StrCat("pagodad at ", state.endpoint(), ": no answer yet"));
    return Fit(std::move(sections), terminal);
  }
  const v1::GetStatusResponse& status = state.sample()->status;
  sections.push_back(Title(state, now, picture));
  sections.push_back(Cache(status));
  for (int i = 0; i < status.windows_size(); ++i) {
    sections.push_back(Window(state, i, terminal));
  }
  sections.push_back(Activity(state, now));
  sections.push_back(Tenants(state.sample()->tenants));
  sections.push_back(Transfers(state));
  sections.push_back(OtherMachines(status));
  if (status.has_engine()) sections.push_back(Engine(status.engine()));
  sections.push_back(Recent(state));
  sections.push_back(Legend(terminal));
  return Fit(std::move(sections), terminal);
}

}  // namespace pagoda
