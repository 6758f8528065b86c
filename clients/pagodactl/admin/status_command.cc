// pagodactl status: shows a daemon's status once.
#include <unistd.h>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/command_line/terminal/format.h"
#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/terminal.h"
#include "clients/pagodactl/admin/commands.h"
#include "clients/pagodactl/command/admin_client.h"
#include "clients/pagodactl/command/engine_text.h"
#include "clients/pagodactl/command/further_counts.h"
#include "clients/pagodactl/store/exchange_text.h"
#include "pagoda/v1/admin.pb.h"
#include "pools/memory/huge_pages.h"
#include "pools/types.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

constexpr int kTierBarWidth = 32;

struct StateBar {
  const char* name;
  Style style;
  uint32_t blocks;
};

std::vector<StateBar> StatesOf(const v1::TierStatus& tier) {
  return {{"active", Style::kGreen, tier.active_blocks()},
          {"cached", Style::kBlue, tier.cached_blocks()},
          {"pinned", Style::kYellow, tier.pinned_blocks()},
          {"in flight", Style::kCyan, tier.in_flight_blocks()},
          {"free", Style::kDim, tier.free_blocks()}};
}

double HitRate(const v1::WindowStatus& window) {
  return Share(window.prefix_hit_tokens_total(), window.prefix_lookup_tokens_total());
}

// " at 2.0 GiB/s per thread". Empty for a disk, whose threads are not timed.
std::string SpeedText(const v1::TransferDirection& direction) {
  if (!direction.has_busy_time()) return "";
  const double seconds = absl::ToDoubleSeconds(DurationFromProto(direction.busy_time()));
  const double speed = seconds > 0 ? static_cast<double>(direction.bytes_total()) / seconds : 0;
  return absl::StrCat(" at ", FormatBytes(static_cast<uint64_t>(speed)), "/s per thread");
}

// The medium of a tier. An old daemon names no kind and has only host memory.
std::string MemoryText(const v1::CacheInfo& cache, const v1::TierStatus& tier) {
  for (const v1::TierInfo& info : cache.tiers()) {
    if (info.tier() == tier.tier() && info.medium() == v1::MEDIUM_DISK) return "disk";
  }
  if (tier.memory_kind() != v1::MEMORY_KIND_CUDA) return "host";
  return absl::StrFormat("cuda:%d", tier.device());
}

// "host in huge pages of 2 MiB".
std::string MemoryAndPagesText(const v1::CacheInfo& cache, const v1::TierStatus& tier) {
  const std::optional<MemoryPages> pages = MemoryPagesFromProto(tier.memory_pages());
  const std::string memory = MemoryText(cache, tier);
  return pages.has_value() ? absl::StrCat(memory, " in ", std::string(PagesText(*pages))) : memory;
}

// "cached at priority 10: 1,024, 35: 7". Nothing if all blocks have the default priority.
void PrintPriorities(const v1::TierStatus& tier) {
  const auto& priorities = tier.cached_by_priority();
  if (priorities.empty() ||
      (priorities.size() == 1 && priorities[0].priority() == kDefaultPriority.value())) {
    return;
  }
  std::string text;
  for (const v1::PriorityBlocks& one : priorities) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", one.priority(), ": ",
                    FormatCount(one.blocks()));
  }
  Print("    cached at priority %s\n", text);
}

// "12 of the cached are copies of blocks in nearer tiers", if there are any.
void PrintDuplicates(const v1::TierStatus& tier) {
  if (tier.duplicate_blocks() == 0) return;
  Print("    %s of the cached are copies of blocks in nearer tiers\n",
        FormatCount(tier.duplicate_blocks()));
}

void PrintTier(const v1::CacheInfo& cache, const v1::TierStatus& tier, const Terminal& terminal) {
  Print("  %-10s %s of %s, %s on %s\n", TierText(tier), FormatBlocks(tier.capacity_blocks()),
        FormatBytes(tier.block_bytes()), FormatBytes(tier.block_bytes() * tier.capacity_blocks()),
        MemoryAndPagesText(cache, tier));
  for (const StateBar& state : StatesOf(tier)) {
    const double share = Share(state.blocks, tier.capacity_blocks());
    Print("    %-10s %s %10s  %8s\n", state.name,
          Paint(terminal, state.style, Bar(terminal, share, kTierBarWidth)),
          FormatCount(state.blocks), FormatShare(share));
  }
  PrintDuplicates(tier);
  PrintPriorities(tier);
}

void PrintWindow(const v1::CacheInfo& cache, const v1::WindowStatus& window,
                 const Terminal& terminal) {
  Print("\n%s %s\n", Paint(terminal, Style::kBold, "window"),
        WindowName(WindowFromProto(window.window_size())));
  for (const v1::TierStatus& tier : window.tiers()) PrintTier(cache, tier, terminal);
  Print("  hit rate   %s: %s of %s prompt tokens, %s of them below the first tier\n",
        FormatShare(HitRate(window)), FormatCount(window.prefix_hit_tokens_total()),
        FormatCount(window.prefix_lookup_tokens_total()),
        FormatCount(window.lower_hit_tokens_total()));
  Print("  blocks     %s allocated, %s freed, %s evicted since the start\n",
        FormatCount(window.allocated_blocks_total()), FormatCount(window.freed_blocks_total()),
        FormatCount(window.evicted_blocks_total()));
  Print(
      "  moves      %s offloaded, %s onboarded, %s displaced, %s lost; %s offloaded without a "
      "copy\n",
      FormatCount(window.offloaded_blocks_total()), FormatCount(window.onboarded_blocks_total()),
      FormatCount(window.displaced_blocks_total()), FormatCount(window.lost_blocks_total()),
      FormatCount(window.freely_evicted_blocks_total()));
  Print("  tails      %s copied, %s taken over; %s merged, %s expired\n",
        FormatCount(window.partial_copies_total()), FormatCount(window.taken_over_blocks_total()),
        FormatBlocks(window.merged_blocks_total()),
        FormatCounted(window.expired_priorities_total(), "priority"));
  Print("  pinned     %s of %s allowed blocks\n", FormatCount(window.pinned_blocks()),
        FormatCount(window.pin_budget_blocks()));
  if (window.holes() > 0) Print("  holes      %s\n", FormatCount(window.holes()));
  const std::string further =
      FurtherCounts(window, v1::WindowStatus::kFreelyEvictedBlocksTotalFieldNumber);
  if (!further.empty()) Print("  further    %s\n", further);
}

void PrintTransfers(const v1::TransferStatus& transfers) {
  Print("copies       %d running, %d waiting, %d failed\n", transfers.running(), transfers.queued(),
        transfers.failed_total());
  for (const v1::TransferDirection& direction : transfers.directions()) {
    Print("             %s to %s: %s, %s%s\n",
          TierText(direction.source(), direction.source_name()),
          TierText(direction.target(), direction.target_name()),
          FormatCounted(direction.copies_total(), "copy"), FormatBytes(direction.bytes_total()),
          SpeedText(direction));
  }
}

void PrintDisk(const v1::DiskStatus& disk) {
  Print("disk         %s at %s%s\n", disk.tier_name(), disk.path(),
        disk.write_bytes_per_second() == 0
            ? ""
            : absl::StrCat(", written with at most ", FormatBytes(disk.write_bytes_per_second()),
                           "/s"));
  for (const v1::DiskWindowStatus& window : disk.windows()) {
    Print("             window %s: %s by %s%s%s%s\n",
          WindowName(WindowFromProto(window.window_size())), window.mode(), window.engine(),
          window.direct() ? ", direct" : "", window.mode_reason().empty() ? "" : ": ",
          window.mode_reason());
    Print("             %s held, %s stale, %s quarantined, %s retired, %s damaged\n",
          FormatCounted(window.held_slots(), "slot"), FormatCount(window.stale_slots()),
          FormatCount(window.quarantined_slots()), FormatCount(window.retired_slots()),
          FormatCount(window.damaged_slots()));
    Print("             %s waiting, %s queued; %s queued; %s running\n",
          FormatCounted(window.waiting_backups(), "backup"), FormatCount(window.queued_backups()),
          FormatCounted(window.queued_fetches(), "fetch"),
          FormatCounted(window.running_orders(), "order"));
    const std::string counts = FurtherCounts(window, 0);
    if (!counts.empty()) Print("             %s\n", counts);
  }
}

void PrintGpuSelfTest(const v1::GpuSelfTest& test, const Terminal& terminal) {
  Print("gpu          %s: %s\n", test.device(),
        test.has_problem()  ? Paint(terminal, Style::kRed,
                                    absl::StrCat("the engine computes on the host, because ",
                                                 test.problem().message()))
        : test.no_backend() ? "not tested"
                            : "the engine computes on it");
  for (const v1::GpuSelfTest::Kernel& kernel : test.kernels()) {
    if (kernel.outcome() != "right") Print("             %s\n", kernel.text());
  }
}

void PrintEngine(const v1::GetStatusResponse& status, const Terminal& terminal) {
  if (!status.has_engine()) {
    Print("engine       none\n");
    return;
  }
  const v1::EngineStatus& engine = status.engine();
  Print("engine       %s (%s), vocabulary of %s tokens, at most %s tokens per sequence\n",
        engine.model(), engine.architecture(), FormatCount(engine.vocab_size()),
        FormatCount(engine.max_sequence_tokens()));
  Print("             %d running, %s\n", engine.running_requests(),
        FormatCounted(engine.waiting_requests(), "waiting request"));
  const std::string state = EngineStateText(engine);
  Print("             %s\n", engine.up() ? state : Paint(terminal, Style::kRed, state));
  const std::string addresses = EngineAddressesText(engine.addresses());
  if (!addresses.empty()) Print("             %s\n", addresses);
}

// Empty: it serves.
std::string StateText(const v1::GetStatusResponse& status) {
  if (status.state() == v1::DAEMON_STATE_STARTING) return ", starting";
  return status.draining() || status.state() == v1::DAEMON_STATE_DRAINING ? ", draining" : "";
}

// Prints the daemon's own part, which the status of every cache has.
void PrintDaemon(const v1::GetStatusResponse& status, const GlobalOptions& globals,
                 const Terminal& terminal) {
  const std::string state = StateText(status);
  Print("%s %s at %s, up %s%s\n", Paint(terminal, Style::kBold, "pagodad"), status.version(),
        globals.endpoint, FormatElapsed(DurationFromProto(status.uptime())),
        state.empty() ? state : Paint(terminal, Style::kYellow, state));
}

void PrintTexts(const LabelledTexts& texts) {
  for (const auto& [label, text] : texts) Print("%-12s %s\n", label, text);
}

void PrintCache(const v1::GetStatusResponse& status, const Terminal& terminal) {
  const v1::CacheInfo& cache = status.cache();
  Print("cache        %s, model %s, %s per block\n", cache.name(), cache.model_fingerprint(),
        FormatCounted(cache.tokens_per_block(), "token"));
  Print("events       epoch %016x, revisions %d to %d\n", status.epoch(), status.oldest_revision(),
        status.revision());
  Print("clients      %s, %s, %s, %s\n", FormatCounted(status.sessions(), "session"),
        FormatCounted(status.sequences(), "sequence"),
        FormatCounted(status.subscribers(), "subscriber"), FormatCounted(status.pins(), "pin"));
  if (status.quarantines() > 0) {
    Print("quarantine   %s of %s\n", FormatCounted(status.quarantined_blocks(), "block"),
          FormatCounted(status.quarantines(), "ended session"));
  }
  if (status.recovered_blocks() > 0) {
    Print("recovered    %s from an earlier run\n",
          FormatCounted(status.recovered_blocks(), "block"));
  }
  PrintTransfers(status.transfers());
  if (status.has_disk()) PrintDisk(status.disk());
  PrintTexts(ExchangeTexts(status));
  PrintEngine(status, terminal);
  if (status.has_gpu_self_test()) PrintGpuSelfTest(status.gpu_self_test(), terminal);
  for (const v1::WindowStatus& window : status.windows()) PrintWindow(cache, window, terminal);
}

void PrintTable(const std::vector<v1::GetStatusResponse>& statuses, const GlobalOptions& globals) {
  const Terminal terminal = DetectTerminal(STDOUT_FILENO);
  PrintDaemon(statuses.front(), globals, terminal);
  PrintTexts(OtherMachinesTexts(statuses.front()));
  if (!statuses.front().has_cache()) {
    Print("caches       none; the daemon waits for clients that open one\n");
  }
  if (statuses.size() > 1) {
    Print("caches       %d; --cache NAME shows only one\n", statuses.size());
  }
  for (const v1::GetStatusResponse& status : statuses) {
    if (statuses.size() > 1) Print("\n");
    if (status.has_cache()) PrintCache(status, terminal);
  }
  std::cout.flush();
}

absl::Status RunStatus(const GlobalOptions& globals) {
  absl::StatusOr<AdminClient> admin = AdminClient::Connect(globals);
  if (!admin.ok()) return admin.status();
  const auto statuses = admin->Statuses();
  if (!statuses.ok()) return statuses.status();
  if (globals.output == OutputFormat::kTable) {
    PrintTable(*statuses, globals);
    return absl::OkStatus();
  }
  return PrintStatuses(*statuses);
}

}  // namespace

void AddStatusCommand(CLI::App& app, const GlobalOptions& globals, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "status", "Shows the daemon's status: blocks by tier and state, hit rate, clients, engine");
  command->footer(
      "Shows all caches of the daemon, or only one with --cache NAME. \"in flight\" blocks take\n"
      "part in a copy. With -o json each cache is an object on a line of its own.\n"
      "Examples:\n  pagodactl status\n  pagodactl status --cache llama\n  pagodactl status -o "
      "json");
  command->callback([&] { chosen = [&] { return RunStatus(globals); }; });
}

}  // namespace pagoda
