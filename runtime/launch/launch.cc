#include "runtime/launch/launch.h"

#include <unistd.h>

#include <memory>

#include "probes/recorder/emit.h"
#include "tracedb/model/trace_view.h"

namespace ringscope {
namespace {

std::string host_name() {
  char text[256] = "";
  return gethostname(text, sizeof text - 1) == 0 ? text : "localhost";
}

void record_rank(const Mesh& mesh, int rank) {
  const Coord c = mesh.coord(rank);
  RankRecord record{};
  record.rank = uint32_t(rank);
  record.world = uint32_t(mesh.world());
  record.tp = uint16_t(c.tp), record.cp = uint16_t(c.cp), record.dp = uint16_t(c.dp), record.pp = uint16_t(c.pp);
  record.tp_size = uint16_t(mesh.size(Axis::kTp)), record.cp_size = uint16_t(mesh.size(Axis::kCp));
  record.dp_size = uint16_t(mesh.size(Axis::kDp)), record.pp_size = uint16_t(mesh.size(Axis::kPp));
  record.pid = uint64_t(getpid());
  record.host = rs_intern(host_name().c_str());
  emit(RecordKind::kRank, record);
}

void record_exit(int rank, int64_t status, const std::string& reason, const Where& where) {
  RankExitRecord record{};
  record.rank = uint64_t(rank);
  record.status = status;
  record.reason = rs_intern(reason.c_str());
  record.where = where.pack();
  emit(RecordKind::kRankExit, record);
}

void record_outcome(RunEnd end) {
  MetaRecord record{};
  record.key = rs_intern(meta_key::kOutcome);
  record.value = rs_intern(end == RunEnd::kCompleted ? "completed"
                           : end == RunEnd::kStalled ? "stalled"
                                                     : "interrupted");
  emit(RecordKind::kMeta, record);
}

}  // namespace

RunEnd launch_ranks(Sched& sched, const Mesh& mesh, const std::function<RankEnd(int rank)>& body,
                    const LaunchHooks& hooks) {
  const int world = mesh.world();
  Channel ended_channel;
  std::vector<char> ended(world, 0);  // changed inside update only
  bool stall_declared = false;
  sched.stall_timeout_ns = hooks.stall_timeout_ns;
  sched.interrupted = hooks.interrupted;
  sched.on_stall = [&](const StallSnapshot& snapshot) {
    std::vector<char> ended_now;
    sched.update(ended_channel, [&] {
      ended_now = ended;
      stall_declared = true;
    });
    for (int rank = 0; rank < world; ++rank)
      if (!ended_now[rank]) record_exit(rank, -2, "still blocked when the run stalled", Where{});
    if (hooks.on_stall) hooks.on_stall(snapshot);
  };
  for (int rank = 0; rank < world; ++rank)
    sched.spawn("rank" + std::to_string(rank) + ".host", [&, rank] {
      rs_thread_attach(rank, ("rank" + std::to_string(rank) + ".host").c_str());
      record_rank(mesh, rank);
      const RankEnd end = body(rank);
      bool write = false;
      sched.update(ended_channel, [&] {
        ended[rank] = 1;
        write = !stall_declared;  // otherwise its end was written when the stall was declared
      });
      rs_thread_mute(0);
      if (write && end.witnessed) record_exit(rank, end.status, end.reason, end.where);
      rs_thread_detach();
    });
  const RunEnd end = sched.run();
  record_outcome(end);
  return end;
}

}  // namespace ringscope
