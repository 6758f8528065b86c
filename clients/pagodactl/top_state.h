// What `top` knows of a daemon: its last two answers, what the event stream had told by then, and
// what happened between them.
#ifndef PAGODA_CLIENTS_PAGODACTL_TOP_STATE_H_
#define PAGODA_CLIENTS_PAGODACTL_TOP_STATE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "clients/pagodactl/top_stream.h"
#include "pagoda/v1/admin.pb.h"

namespace pagoda {

struct TopSample {
  absl::Time time;
  v1::GetStatusResponse status;
  // Empty also where the daemon does not tell.
  std::vector<v1::TenantInfo> tenants;
  // Looked at after the answer came.
  StreamLook stream;

  // Events up to the answer that the stream had not told; none where it tells of another
  // incarnation, or of nothing yet.
  std::optional<uint64_t> events_behind() const;
};

// What a stream told, a second of the time between two looks at it.
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

// A second of the time between two samples.
struct TopRates {
  struct Window {
    double allocated_blocks = 0;
    double lookup_tokens = 0;
    std::optional<double> hit_rate;  // None: nothing was looked up.
  };
  struct Direction {
    std::string source;  // What the daemon calls the tier.
    std::string target;
    double copies = 0;
    double bytes = 0;
  };
  std::vector<Window> windows;        // As the samples have them.
  std::vector<Direction> directions;  // Likewise.
};

// Thread-compatible.
class TopState {
 public:
  explicit TopState(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  // The daemon has answered. An answer of another incarnation starts anew.
  void Add(TopSample sample);
  // It has not; what is known stays.
  void Fail(const absl::Status& error, absl::Time now);

  const std::string& endpoint() const { return endpoint_; }
  // None before the first answer.
  const std::optional<TopSample>& sample() const { return sample_; }
  // None before the second answer of one incarnation.
  const std::optional<TopRates>& rates() const { return rates_; }
  // None unless the stream was live at both answers, after the same snapshot.
  const std::optional<StreamRates>& stream_rates() const { return stream_rates_; }
  // The live stream has not told yet what had happened by the answer before the last one.
  bool stream_lags() const { return stream_lags_; }
  // OK where the daemon answered last time.
  const absl::Status& error() const { return error_; }
  // Of the first failure in a row; means nothing where error() is OK.
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

#endif  // PAGODA_CLIENTS_PAGODACTL_TOP_STATE_H_
