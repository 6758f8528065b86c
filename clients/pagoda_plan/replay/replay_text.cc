#include "clients/pagoda_plan/replay/replay_text.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "clients/command_line/terminal/format.h"
#include "clients/pagoda_plan/replay/hit_rate_chart.h"
#include "clients/pagoda_plan/replay/replay_opt.h"
#include "clients/pagoda_plan/size/drive_life.h"
#include "nlohmann/json.hpp"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

const ReplayReport& First(const ReplayResults& results) { return results.runs.front().report; }

uint32_t Capacity(const ReplayRun& run) { return run.report.tiers.front().capacity_blocks; }

bool HasOneCapacity(const ReplayResults& results) {
  return std::all_of(results.runs.begin(), results.runs.end(), [&](const ReplayRun& run) {
    return Capacity(run) == Capacity(results.runs.front());
  });
}

// The average bytes per second that copies write into a tier; 0 if the trace takes no time.
double WriteRate(const ReplayedTier& tier, const ReplayReport& report, uint64_t block_bytes) {
  const double seconds = absl::ToDoubleSeconds(report.trace_time);
  return seconds > 0 ? static_cast<double>(tier.blocks_written * block_bytes) / seconds : 0;
}

// --- For people ---

std::string TraceText(const ReplayResults& results) {
  const ReplayReport& trace = First(results);
  std::string text = absl::StrFormat(
      "requests  %s, %s skipped for their size\nblocks    %s of %d tokens requested\n",
      FormatCount(trace.requests), FormatCount(trace.skipped_requests),
      FormatCount(trace.blocks_requested), trace.tokens_per_block);
  if (results.service.has_value()) {
    absl::StrAppendFormat(
        &text, "service   prefill at %s tokens per second, decode at %s per sequence\n",
        FormatCount(static_cast<uint64_t>(results.service->prefill_tokens_per_second)),
        FormatCount(static_cast<uint64_t>(results.service->decode_tokens_per_second)));
  }
  return text;
}

struct Column {
  const char* title;
  int width;  // Negative: the text is on the left.
};

std::string Row(const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  std::vector<std::string> padded;
  for (size_t i = 0; i < columns.size(); ++i) {
    padded.push_back(absl::StrFormat("%*s", columns[i].width, cells[i]));
  }
  return absl::StrCat(absl::StrJoin(padded, "  "), "\n");
}

std::vector<std::string> Cells(const ReplayRun& run, bool overlaps, bool one_capacity) {
  const ReplayReport& report = run.report;
  const bool has_tiers = run.policy != kOptPolicy;
  const auto of_tiers = [has_tiers](std::string text) { return has_tiers ? text : "-"; };
  std::vector<std::string> cells = {
      run.policy,
      FormatCount(run.host_blocks()),
      FormatShare(report.hit_rate()),
      of_tiers(FormatShare(report.lower_hit_rate())),
      FormatCount(report.evictions),
      of_tiers(FormatCount(report.offloads)),
      of_tiers(FormatCount(report.onboards)),
      of_tiers(FormatCount(static_cast<uint64_t>(report.operations_per_second())))};
  if (!one_capacity) {
    cells.insert(cells.begin() + 1, FormatCount(run.report.tiers.front().capacity_blocks));
  }
  if (overlaps) {
    cells.push_back(FormatCount(report.overlap->most_running));
    cells.push_back(FormatCount(report.overlap->waiting_requests));
    cells.push_back(FormatElapsed(report.overlap->longest_wait));
  }
  return cells;
}

std::string Table(const ReplayResults& results) {
  const bool one_capacity = HasOneCapacity(results);
  std::vector<Column> columns = {{"POLICY", -8},    {"HOST BLOCKS", 12}, {"HIT RATE", 9},
                                 {"IN HOST", 9},    {"EVICTED", 11},     {"OFFLOADED", 11},
                                 {"ONBOARDED", 11}, {"OPERATIONS/S", 12}};
  std::string text = TraceText(results);
  if (one_capacity) {
    absl::StrAppend(&text, "primary   ", FormatBlocks(Capacity(results.runs.front())),
                    results.runs.front().tier_blocks.empty() ? " (unlimited)" : "", "\n\n");
  } else {
    text += "\n";
    columns.insert(columns.begin() + 1, {"BLOCKS", 11});
  }
  if (results.service.has_value()) {
    columns.insert(columns.end(), {{"RUNNING", 7}, {"WAITED", 8}, {"LONGEST WAIT", 12}});
  }
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.push_back(column.title);
  text += Row(columns, titles);
  for (const ReplayRun& run : results.runs) {
    text += Row(columns, Cells(run, results.service.has_value(), one_capacity));
  }
  return text;
}

std::string ReplayedTierText(const LadderTier& tier, const ReplayedTier& figures,
                             const ReplayReport& report, uint64_t block_bytes) {
  std::string text =
      absl::StrFormat("  %-12s  %-6s  %11s  %13s  %9s  %11s  %11s  %11s  %14s", tier.name,
                      std::string(MediumName(tier.medium)), FormatCount(figures.capacity_blocks),
                      FormatCount(figures.hit_tokens), FormatShare(report.hit_rate(figures)),
                      FormatCount(figures.blocks_written), FormatCount(figures.blocks_read),
                      FormatCount(figures.evictions), FormatCount(figures.free_evictions));
  if (block_bytes > 0) {
    absl::StrAppendFormat(&text, "  %13s  %13s", FormatBytes(figures.blocks_written * block_bytes),
                          FormatBytes(figures.blocks_read * block_bytes));
  }
  return text + "\n";
}

std::string OverlapText(const OverlapFigures& overlap, uint64_t requests) {
  return absl::StrFormat(
      "  at most %s ran at once; %s waited, %s on average over all and at most %s\n",
      FormatCounted(overlap.most_running, "request"), FormatCount(overlap.waiting_requests),
      FormatElapsed(overlap.mean_wait(requests)), FormatElapsed(overlap.longest_wait));
}

std::string LadderText(const ReplayResults& results) {
  const std::vector<LadderTier>& ladder = results.ladder;
  const uint64_t block_bytes = results.block_bytes;
  std::string text = TraceText(results);
  if (block_bytes > 0) absl::StrAppend(&text, "a block   ", FormatBytes(block_bytes), "\n");
  const LadderTier* disk = FindDisk(ladder);
  if (disk != nullptr) {
    absl::StrAppend(&text, "disk      reads and writes of ", disk->name,
                    " take no time, and no budget limits the writes\n");
  }
  for (const ReplayRun& run : results.runs) {
    const ReplayReport& report = run.report;
    absl::StrAppendFormat(
        &text, "\n%s: %s hit, %s evicted, %s per second\n", run.policy,
        FormatShare(report.hit_rate()), FormatBlocks(report.evictions),
        FormatCounted(static_cast<uint64_t>(report.operations_per_second()), "operation"));
    if (report.overlap.has_value()) text += OverlapText(*report.overlap, report.requests);
    absl::StrAppendFormat(&text, "  %-12s  %-6s  %11s  %13s  %9s  %11s  %11s  %11s  %14s%s\n",
                          "TIER", "MEDIUM", "BLOCKS", "HIT TOKENS", "HIT RATE", "WRITTEN", "READ",
                          "EVICTED", "FREE EVICTIONS",
                          block_bytes > 0 ? "  BYTES WRITTEN     BYTES READ" : "");
    for (size_t t = 0; t < ladder.size(); ++t) {
      text += ReplayedTierText(ladder[t], report.tiers[t], report, block_bytes);
    }
    if (disk == nullptr || block_bytes == 0) continue;
    const ReplayedTier& figures = report.tiers[static_cast<size_t>(disk - ladder.data())];
    absl::StrAppend(&text, "  ", disk->name, " is written at ",
                    FormatDecimalBytes(WriteRate(figures, report, block_bytes)),
                    "/s on average, over the ", FormatElapsed(report.trace_time),
                    " of the trace\n");
  }
  return text;
}

// --- For programs ---

// The tiers of --tiers, or those of the short forms.
std::vector<LadderTier> LadderOf(const ReplayResults& results, const ReplayRun& run) {
  if (!results.ladder.empty()) return results.ladder;
  std::vector<LadderTier> ladder;
  for (size_t t = 0; t < run.report.tiers.size(); ++t) {
    ladder.push_back({.name = DefaultTierName(Tier(t)), .size = ""});
  }
  return ladder;
}

Json TiersJson(const std::vector<LadderTier>& ladder, const ReplayReport& report,
               uint64_t block_bytes) {
  Json tiers = Json::array();
  for (size_t t = 0; t < ladder.size(); ++t) {
    const ReplayedTier& figures = report.tiers[t];
    Json tier = {{"name", ladder[t].name},
                 {"medium", std::string(MediumName(ladder[t].medium))},
                 {"capacity_blocks", figures.capacity_blocks},
                 {"hit_tokens", figures.hit_tokens},
                 {"hit_rate", report.hit_rate(figures)},
                 {"blocks_written", figures.blocks_written},
                 {"blocks_read", figures.blocks_read},
                 {"evictions", figures.evictions},
                 {"free_evictions", figures.free_evictions}};
    if (block_bytes > 0) {
      tier["capacity_bytes"] = figures.capacity_blocks * block_bytes;
      tier["bytes_written"] = figures.blocks_written * block_bytes;
      tier["bytes_read"] = figures.blocks_read * block_bytes;
      tier["bytes_written_per_second"] = WriteRate(figures, report, block_bytes);
    }
    tiers.push_back(tier);
  }
  return tiers;
}

Json OverlapJson(const OverlapFigures& overlap, uint64_t requests) {
  return {{"most_running_requests", overlap.most_running},
          {"most_held_blocks", overlap.most_held_blocks},
          {"waiting_requests", overlap.waiting_requests},
          {"mean_wait_seconds", absl::ToDoubleSeconds(overlap.mean_wait(requests))},
          {"longest_wait_seconds", absl::ToDoubleSeconds(overlap.longest_wait)},
          {"reply_blocks", overlap.reply_blocks},
          {"found_reply_blocks", overlap.found_reply_blocks},
          {"cut_replies", overlap.cut_replies}};
}

Json RunJson(const ReplayResults& results, const ReplayRun& run) {
  const ReplayReport& report = run.report;
  Json json = {{"policy", run.policy},
               {"capacity_blocks", Capacity(run)},
               {"skipped_requests", report.skipped_requests},
               {"blocks_hit", report.blocks_hit},
               {"hit_rate", report.hit_rate()},
               {"evictions", report.evictions}};
  if (results.ladder.empty()) json["host_blocks"] = run.host_blocks();
  if (run.policy != kOptPolicy) {
    json["offloads"] = report.offloads;
    json["onboards"] = report.onboards;
    json["tiers"] = TiersJson(LadderOf(results, run), report, results.block_bytes);
    json["operations"] = report.operations;
    json["operations_per_second"] = report.operations_per_second();
    if (results.ladder.empty()) {
      json["host_blocks_hit"] = report.lower_blocks_hit;
      json["host_hit_rate"] = report.lower_hit_rate();
    }
  }
  if (report.overlap.has_value()) json["overlap"] = OverlapJson(*report.overlap, report.requests);
  json["run_trace_seconds"] = absl::ToDoubleSeconds(report.trace_time);
  json["elapsed_seconds"] = absl::ToDoubleSeconds(report.elapsed);
  return json;
}

}  // namespace

std::string ReplayRun::TiersText() const {
  if (tier_blocks.empty()) return "unlimited";
  if (tier_blocks.size() == 1) return FormatBlocks(tier_blocks.front());
  const auto count = [](std::string* out, uint32_t n) { out->append(FormatCount(n)); };
  return absl::StrJoin(tier_blocks, " + ", count) + " blocks";
}

std::string ReplayText(const ReplayResults& results) {
  return results.ladder.empty() ? Table(results) : LadderText(results);
}

Json ReplayJson(const ReplayResults& results) {
  const ReplayReport& trace = First(results);
  Json json = {{"format", std::string(TraceFormatName(results.format))},
               {"requests", trace.requests},
               {"skipped_requests", trace.skipped_requests},
               {"blocks_requested", trace.blocks_requested},
               {"capacity_blocks", trace.tiers.front().capacity_blocks},
               {"tokens_per_block", trace.tokens_per_block},
               {"trace_seconds", absl::ToDoubleSeconds(trace.trace_time)}};
  json["schedule"] = results.service.has_value() ? "overlapping" : "one_by_one";
  if (results.service.has_value()) {
    json["prefill_tokens_per_second"] = results.service->prefill_tokens_per_second;
    json["decode_tokens_per_second"] = results.service->decode_tokens_per_second;
  }
  if (results.block_bytes > 0) json["block_bytes"] = results.block_bytes;
  json["runs"] = Json::array();
  for (const ReplayRun& run : results.runs) json["runs"].push_back(RunJson(results, run));
  return json;
}

std::string ReplaySvg(const ReplayResults& results) {
  std::vector<HitRateLine> lines;
  std::map<std::string, size_t> by_name;
  for (const ReplayRun& run : results.runs) {
    std::string name = run.policy;
    if (run.host_blocks() > 0)
      absl::StrAppend(&name, " + ", FormatCount(run.host_blocks()), " host");
    const auto [line, is_new] = by_name.try_emplace(name, lines.size());
    if (is_new) lines.push_back({.name = name, .points = {}});
    lines[line->second].points.push_back({Capacity(run), run.report.hit_rate()});
  }
  for (HitRateLine& line : lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const auto& a, const auto& b) { return a.blocks < b.blocks; });
  }
  const ReplayReport& trace = First(results);
  return HitRateSvg(absl::StrCat("Hit rate by capacity: ", FormatCounted(trace.requests, "request"),
                                 ", ", FormatBlocks(trace.blocks_requested), " of ",
                                 Counted(trace.tokens_per_block, "token"),
                                 results.service.has_value() ? "" : ", one by one"),
                    lines);
}

}  // namespace pagoda
