// The typed reader: database -> TraceView. Rows come in id order, which is (rank, issue) order (finish()).
#include <algorithm>
#include <unordered_map>

#include "tracedb/store/statement.h"
#include "tracedb/store/store.h"

namespace ringscope {
namespace {

constexpr const char* kWhere = "step,layer,microbatch,ring_step,pass";

class ViewReader {
 public:
  explicit ViewReader(const Store& store) : store_(store) {}

  Result<TraceView> read() {
    read_facts();
    read_ops();
    read_order();
    read_values();
    if (!error_.message.empty()) return tl::unexpected(error_);
    return std::move(view_);
  }

 private:
  template <class Visit>
  void each(const std::string& sql, Visit visit) {
    if (!error_.message.empty()) return;
    Statement s(store_.handle(), sql);
    while (s.step()) visit(s);
    if (auto ok = s.status(store_.path()); !ok) error_ = ok.error();
  }
  static std::string with_where(const std::string& columns, const std::string& table) {
    return "SELECT " + columns + "," + kWhere + " FROM " + table + " ORDER BY id";
  }
  uint32_t op_row(uint64_t op) const {
    const auto it = op_rows_.find(op);
    return it == op_rows_.end() ? kNoRow : it->second;
  }

  void read_facts() {
    each("SELECT key, value FROM meta", [&](Statement& s) { view_.meta.emplace(s.text(0), s.text(1)); });
    view_.strings.emplace_back();
    each("SELECT id, value FROM string ORDER BY id", [&](Statement& s) {
      const auto id = size_t(s.integer(0));
      if (id < view_.strings.size() || id > view_.strings.size() + (1u << 20)) return;
      view_.strings.resize(id + 1);
      view_.strings[id] = s.text(1);
    });
    each("SELECT path, format, rank, rows, lost FROM source ORDER BY id", [&](Statement& s) {
      view_.sources.push_back({s.text(0), s.text(1), int32_t(s.integer(2)), s.integer(3), s.integer(4)});
    });
    each("SELECT rank, tp, cp, dp, pp, pid, host FROM rank ORDER BY rank", [&](Statement& s) {
      auto i = [&](int c) { return int32_t(s.integer(c)); };
      view_.ranks.push_back({i(0), i(1), i(2), i(3), i(4), s.integer(5), s.text(6)});
    });
    each(with_where("rank,status,time_ns,reason", "rank_exit"), [&](Statement& s) {
      view_.rank_exits.push_back({int32_t(s.integer(0)), s.integer(1), s.integer(2), s.text(3), s.where(4)});
    });
    each("SELECT stream, rank, name FROM stream ORDER BY rank, id", [&](Statement& s) {
      view_.streams.push_back({uint32_t(s.integer(0)), int32_t(s.integer(1)), s.text(2)});
    });
    read_comms();
    each("SELECT rank, ring, records, torn, from_ns, to_ns FROM lost ORDER BY rank, process, ring_id",
         [&](Statement& s) {
           view_.lost.push_back({int32_t(s.integer(0)), s.text(1), uint64_t(s.integer(2)), uint64_t(s.integer(3)),
                                 s.integer(4), s.integer(5)});
         });
    each("SELECT name, severity, sum(count), max(help) FROM import_stats GROUP BY name, severity ORDER BY name",
         [&](Statement& s) {
           view_.import_stats.push_back({s.text(0), s.text(1), s.integer(2), s.text(3)});
         });
  }

  void read_comms() {
    std::unordered_map<uint32_t, size_t> row_of;
    each("SELECT comm, axis, name, size FROM comm ORDER BY creation, comm", [&](Statement& s) {
      CommRow row{uint32_t(s.integer(0)), Axis(s.integer(1)), s.text(2), {}};
      row.ranks.assign(size_t(std::clamp<int64_t>(s.integer(3), 0, 1 << 20)), -1);
      row_of.emplace(row.comm, view_.comms.size());
      view_.comms.push_back(std::move(row));
    });
    each("SELECT comm, group_rank, rank FROM comm_rank", [&](Statement& s) {
      const auto it = row_of.find(uint32_t(s.integer(0)));
      if (it == row_of.end()) return;
      auto& ranks = view_.comms[it->second].ranks;
      const int64_t at = s.integer(1);
      if (at >= 0 && at < int64_t(ranks.size())) ranks[size_t(at)] = int32_t(s.integer(2));
    });
  }

  void read_ops() {
    each(with_where("op_id,rank,stream,name,kind,state,issue,group_op,enqueue_ns,start_ns,end_ns,bytes_sent", "op"),
         [&](Statement& s) {
           OpRow row;
           row.op = uint64_t(s.integer(0));
           row.rank = int32_t(s.integer(1));
           row.stream = uint32_t(s.integer(2));
           row.name = uint32_t(s.integer(3));
           row.kind = OpKind(s.integer(4));
           row.state = OpState(s.integer(5));
           row.issue = uint64_t(s.integer(6));
           row.group = uint64_t(s.integer(7));
           row.enqueue_ns = s.integer(8);
           row.start_ns = s.integer(9);
           row.end_ns = s.integer(10);
           row.bytes_sent = uint64_t(s.integer(11));
           row.where = s.where(12);
           op_rows_.emplace(row.op, uint32_t(view_.ops.size()));
           view_.ops.push_back(row);
         });
    each("SELECT op_id, comm, func, dtype, redop, root, seq, count FROM coll ORDER BY id", [&](Statement& s) {
      CollRow row{op_row(uint64_t(s.integer(0))),
                  uint32_t(s.integer(1)),
                  CollFunc(s.integer(2)),
                  DType(s.integer(3)),
                  RedOp(s.integer(4)),
                  int32_t(s.integer(5)),
                  uint64_t(s.integer(6)),
                  uint64_t(s.integer(7))};
      if (row.op != kNoRow) view_.ops[row.op].coll = uint32_t(view_.colls.size());
      view_.colls.push_back(row);
    });
    each("SELECT op_id, comm, peer, direction, dtype, seq, bytes, count FROM p2p ORDER BY id", [&](Statement& s) {
      P2pRow row{op_row(uint64_t(s.integer(0))), uint32_t(s.integer(1)), int32_t(s.integer(2)),
                 Direction(s.integer(3)),        DType(s.integer(4)),    uint64_t(s.integer(5)),
                 uint64_t(s.integer(6)),         uint64_t(s.integer(7))};
      if (row.op != kNoRow) view_.ops[row.op].p2p = uint32_t(view_.p2ps.size());
      view_.p2ps.push_back(row);
    });
  }

  void read_order() {
    each("SELECT op_id, buffer, begin_byte, end_byte, mode FROM access ORDER BY id", [&](Statement& s) {
      view_.accesses.push_back({op_row(uint64_t(s.integer(0))), uint64_t(s.integer(1)), uint64_t(s.integer(2)),
                                uint64_t(s.integer(3)), AccessMode(s.integer(4))});
    });
    each(with_where("rank,stream,kind,issue,event,key,name", "sync"), [&](Statement& s) {
      view_.syncs.push_back({int32_t(s.integer(0)), uint32_t(s.integer(1)), SyncKind(s.integer(2)),
                             uint64_t(s.integer(3)), uint64_t(s.integer(4)), uint64_t(s.integer(5)), s.where(7),
                             uint32_t(s.integer(6))});
    });
    each("SELECT buffer, rank, bytes, category, name FROM buffer ORDER BY id", [&](Statement& s) {
      view_.buffers.push_back({uint64_t(s.integer(0)), int32_t(s.integer(1)), uint64_t(s.integer(2)),
                               MemCategory(s.integer(3)), std::string(view_.text(uint32_t(s.integer(4))))});
    });
    each(with_where("rank,comm,expected_steps,run_steps", "ring_plan"), [&](Statement& s) {
      view_.ring_plans.push_back(
          {int32_t(s.integer(0)), uint32_t(s.integer(1)), s.where(4), uint32_t(s.integer(2)), uint32_t(s.integer(3))});
    });
  }

  void read_values() {
    each(with_where("rank,role,token_start,count,pos_start,stride,document,sample,rope_base", "position_run"),
         [&](Statement& s) {
           auto u = [&](int c) { return uint32_t(s.integer(c)); };
           view_.position_runs.push_back({int32_t(s.integer(0)), s.where(9), PositionRole(s.integer(1)), u(2), u(3),
                                          u(4), int32_t(s.integer(5)), uint32_t(s.integer(6, 0xFFFFFFFF)), u(7),
                                          float(s.real(8))});
         });
    each(with_where("rank,position,head,kv_owner,sample,method,parts,m_own,lse_own,m_used,sum_used,lse_result",
                    "softmax_row"),
         [&](Statement& s) {
           view_.softmax_rows.push_back({int32_t(s.integer(0)), s.where(12), uint32_t(s.integer(1)),
                                         int32_t(s.integer(2)), int32_t(s.integer(3, 0xFFFF)), uint32_t(s.integer(4)),
                                         SoftmaxMethod(s.integer(5)), int32_t(s.integer(6)), s.real(7), s.real(8),
                                         s.real(9), s.real(10), s.real(11)});
         });
    each(with_where("rank,rows,empty,bad,method,parts,lse_min,lse_max,lse_mean", "softmax_stat"), [&](Statement& s) {
      view_.softmax_stats.push_back({int32_t(s.integer(0)), s.where(9), uint32_t(s.integer(1)), uint32_t(s.integer(2)),
                                     uint32_t(s.integer(3)), SoftmaxMethod(s.integer(4)), int32_t(s.integer(5)),
                                     s.real(6), s.real(7), s.real(8)});
    });
    each(with_where("rank,name,role,part,count,checksum,norm,bad", "tensor_stat"), [&](Statement& s) {
      view_.tensor_stats.push_back({int32_t(s.integer(0)), s.where(8), uint32_t(s.integer(1)), TensorRole(s.integer(2)),
                                    int32_t(s.integer(3, -1)), uint64_t(s.integer(4)), uint64_t(s.integer(5)),
                                    s.real(6), uint64_t(s.integer(7))});
    });
    each(with_where("rank,category,bytes,peak_bytes", "memory_sample"), [&](Statement& s) {
      view_.memory_samples.push_back({int32_t(s.integer(0)), s.where(4), MemCategory(s.integer(1)),
                                      uint64_t(s.integer(2)), uint64_t(s.integer(3))});
    });
    each(with_where("rank,loss_sum,valid_tokens,divisor,loss,tokens,seconds,grad_norm,lr,peak_bytes", "train_step"),
         [&](Statement& s) {
           view_.train_steps.push_back({int32_t(s.integer(0)), s.where(10), s.real(1), uint64_t(s.integer(2)),
                                        s.real(3), s.real(4), uint64_t(s.integer(5)), s.real(6), s.real(7), s.real(8),
                                        uint64_t(s.integer(9))});
         });
  }

  const Store& store_;
  TraceView view_;
  Error error_{ErrorKind::kData, ""};
  std::unordered_map<uint64_t, uint32_t> op_rows_;
};

}  // namespace

Result<TraceView> load_view(const Store& store) { return ViewReader(store).read(); }

}  // namespace ringscope
