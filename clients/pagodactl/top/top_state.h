// The state of `top`: the daemon's last answer, the event stream's figures at that time, and the
// rates since the answer before.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_TOP_STATE_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_TOP_STATE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "clients/pagodactl/top/top_stream.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {

struct TopSample {
  absl::Time time;
  v1::GetStatusResponse status;
  // Empty if the daemon refused to list them.
  std::vector<v1::TenantInfo> tenants;
  // Read after the answer arrived.
  StreamLook stream;

  // The number of events before the answer that the stream had not delivered yet. None if the
  // stream is not live or belongs to another incarnation of the daemon.
  std::optional<uint64_t> events_behind() const;
};

// Rates per second of a stream's figures between two looks at it.
struct StreamRates {
  struct Window {
    double stored = 0;
    double offloaded = 0;
    double onboarded = 0;
    std::map<v1::RemovalReason, double> removed;
  };
  double created_events = 0;
  double stored_events = 0;
  double updated_events = 0;
  double removed_events = 0;
  double events = 0;                   // All of them.
  std::map<uint32_t, Window> windows;  // By size, as StreamFigures::windows.
};

// Rates per second between two samples.
struct TopRates {
  struct Window {
    double allocated_blocks = 0;
    double lookup_tokens = 0;
    std::optional<double> hit_rate;  // None: nothing was looked up.
  };
  struct Direction {
    std::string source;  // The daemon's name for the tier.
    std::string target;
    double copies = 0;
    double bytes = 0;
  };
  std::vector<Window> windows;        // In the order of the samples.
  std::vector<Direction> directions;  // In the order of the later sample.
};

// Thread-compatible.
class TopState {
 public:
  explicit TopState(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  // Adds an answer. An answer of another incarnation of the daemon resets the rates.
  void Add(TopSample sample);
  // Records that the daemon did not answer. The last sample stays.
  void Fail(const absl::Status& error, absl::Time now);

  const std::string& endpoint() const { return endpoint_; }
  // None before the first answer.
  const std::optional<TopSample>& sample() const { return sample_; }
  // None before the second answer of the same incarnation.
  const std::optional<TopRates>& rates() const { return rates_; }
  // None unless the stream was live at both answers, since the same snapshot.
  const std::optional<StreamRates>& stream_rates() const { return stream_rates_; }
  // Whether the live stream lags by more than one interval: it has not delivered all events before
  // the previous answer.
  bool stream_lags() const { return stream_lags_; }
  // OK if the daemon answered the last time.
  const absl::Status& error() const { return error_; }
  // The time of the first failure in a row. Meaningless if error() is OK.
  absl::Time failing_since() const { return failing_since_; }

 private:
  std::string endpoint_;
  std::optional<TopSample> sample_;
  std::optional<TopRates> rates_;
  std::optional<StreamRates> stream_rates_;
  bool stream_lags_ = false;
  absl::Status error_;
  absl::Time failing_since_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_TOP_STATE_H_
