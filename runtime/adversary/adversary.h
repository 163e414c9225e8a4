// RankAdversary: stands between one rank's host program and everything that it uses, and does to its operations what a
// plan says. The program, its device and its communicators know nothing of it. Without a plan it lists the program's
// sites instead, and issues nothing.
//
// What mutations mean (the grammar is in runtime/fault/mutation.h):
//   drop      never issued, no row. Statistics that read what a dropped kernel would have written go with it, unless that
//             memory (parameters, gradients, optimizer) keeps values from step to step, or the kernel adds to it.
//   swap      the call is issued behind the rank's next one on that stream.
//   early     the event's record is what would have been recorded in front of the operation before.
//   stale     the event keeps (a wait: is for) the record before of that event's name.
//   exit      workers stop, later calls do nothing and are not recorded, the next host wait says "stopped", status 1.
//   kill      the same, and nobody writes how the rank ended.
//   hang      the host blocks inside the call until the run stops; pause: for a time.
// Thread rule: the rank's host task.
#pragma once

#include <array>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/adversary/call.h"
#include "runtime/adversary/outputs.h"
#include "runtime/adversary/plan.h"
#include "runtime/comm/seam.h"

namespace ringscope {

class RankAdversary : public Seam {
 public:
  // plan: null = list. Device and plan outlive it.
  RankAdversary(Device& device, const RankPlan* plan) : device_(device), plan_(plan) {}

  void launch(Launch) override;
  void record(Event&, Stream&) override;
  void wait(Stream&, const Event&) override;
  HostWait host_wait() override;
  void creating(std::vector<Axis>& axes, size_t i) override;
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator>) override;
  void upload(Upload&, const SequenceSplit&) override;
  const std::optional<Ended>& ended() const override { return ended_; }

  std::vector<Site> take_sites() { return std::move(sites_); }

 private:
  friend class AdversaryCommunicator;
  using Actions = std::vector<Action>;

  // What stands at the site that the program comes to. Null = the site's operation is not to be issued.
  template <class Describe>
  const Actions* come_to(Describe describe);
  const Actions& at(uint32_t index) const;
  bool listing() const { return plan_ == nullptr; }
  bool over() const { return over_; }
  void act_on_host(const Action& action);
  void end(bool witnessed);
  void stop_unless(bool goes_on);

  // calls
  void call(Call call, uint32_t group);
  bool begin_group();  // true = it is taken apart
  uint32_t next_site() const { return next_; }
  void issue_call(const Call& call);

  // launches
  void mark_records(const Actions& actions);  // of "early"
  void note_dropped(const Launch& launch);
  void note_written(std::span<const Tensor> writes);
  bool reads_dropped(std::span<const Tensor> reads) const;

  // events
  void remember(const Event& event);
  const Event* record_before(const char* name, uint64_t key) const;  // key 0 = the last one

  Device& device_;
  const RankPlan* plan_;
  uint32_t next_ = 0;
  std::vector<Site> sites_;
  bool host_waited_ = false, over_ = false;
  std::optional<Ended> ended_;
  Channel never_;
  std::array<Communicator*, 3> comms_{};  // by axis kTp, kCp, kDp: the real ones
  struct Held {
    Call call;
    Where where;  // of the program, as it came to it
  };
  std::unordered_map<uint32_t, Held> held_;            // of "swap", by site
  std::unordered_map<uint32_t, Event> marked_;         // of "early", by the record's site
  std::unordered_map<uint32_t, KeptOutput> kept_;      // of "previous", by the site that takes it
  std::map<std::string, std::vector<Event>> records_;  // the last ones of every event's name
  struct Range {
    uint64_t buffer;
    int64_t begin, end;
  };
  std::vector<Range> dropped_;  // what dropped kernels would have written, until somebody else does
};

// The decorator of one of the rank's communicators.
std::unique_ptr<Communicator> make_adversary_communicator(RankAdversary& adversary, std::unique_ptr<Communicator> comm);

}  // namespace ringscope
