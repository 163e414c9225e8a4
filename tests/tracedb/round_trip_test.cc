// Recorder -> spool -> database -> view, for every kind of record.
#include <array>
#include <cmath>
#include <thread>
#include <tuple>

#include "probes/recorder/emit.h"
#include "tests/tracedb/scratch.h"
#include "tracedb/import/registry.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

class Recording {
 public:
  Recording(const std::string& dir, int mode, uint64_t ring_bytes = 64 * 1024) {
    rs_options options{};
    options.spool_dir = dir.c_str();
    options.mode = mode;
    options.ring_bytes = ring_bytes;
    EXPECT_EQ(rs_open(&options), 0) << rs_last_error();
  }
  ~Recording() { rs_close(); }
};

Where place(int step, int layer, int ring_step) {
  Where w;
  w.step = step;
  w.layer = int16_t(layer);
  w.microbatch = 0;
  w.ring_step = int16_t(ring_step);
  w.pass = Pass::kForward;
  return w;
}

uint64_t enqueue(OpKind kind, uint32_t name, uint16_t stream, const Where& where, uint64_t group = 0) {
  OpEnqueueRecord r{};
  r.op = rs_next_op();
  r.where = where.pack();
  r.name = name;
  r.kind = uint16_t(kind);
  r.group = group;
  emit(RecordKind::kOpEnqueue, r, stream);
  return r.op;
}
void start(uint64_t op) { emit(RecordKind::kOpStart, OpStartRecord{op}); }
void end(uint64_t op, uint64_t bytes = 0) { emit(RecordKind::kOpEnd, OpEndRecord{op, bytes}); }

struct RankOps {
  uint64_t kernel = 0, coll = 0, send = 0, recv = 0, pending = 0;
};

// What one rank's host thread writes.
RankOps write_host(uint32_t rank) {
  rs_thread_attach(int(rank), ("rank" + std::to_string(rank) + ".host").c_str());
  RankRecord identity{};
  identity.rank = rank;
  identity.world = 2;
  identity.cp = uint16_t(rank);
  identity.tp_size = identity.dp_size = identity.pp_size = 1;
  identity.cp_size = 2;
  identity.pid = 4711;
  identity.host = rs_intern("node-a");
  emit(RecordKind::kRank, identity);
  CommRecord comm{};
  comm.comm = 7;
  comm.size = 2;
  comm.name = RS_NAME("cp[0,1]");
  comm.axis = uint16_t(Axis::kCp);
  comm.group_rank = uint16_t(rank);
  emit(RecordKind::kComm, comm);
  emit(RecordKind::kCommRank, CommRankRecord{7, 1 - rank, 1 - rank});
  const uint16_t stream = uint16_t(10 + rank);
  emit(RecordKind::kStream, StreamRecord{RS_NAME("cp")}, stream);
  BufferAllocRecord buffer{};
  buffer.buffer = 100 + rank;
  buffer.base = 0xFFFF800000001000;
  buffer.bytes = 4096;
  buffer.category = uint32_t(MemCategory::kKvRing);
  buffer.name = RS_NAME("ring.kv");
  buffer.where = place(3, 1, 0).pack();
  emit(RecordKind::kBufferAlloc, buffer);

  RankOps ops;
  ops.kernel = enqueue(OpKind::kKernel, RS_NAME("attn.block"), stream, place(3, 1, 0));
  emit(RecordKind::kAccess, AccessRecord{ops.kernel, buffer.buffer, 0, 2048, uint64_t(AccessMode::kRead)});
  emit(RecordKind::kAccess, AccessRecord{ops.kernel, buffer.buffer, 2048, 4096, uint64_t(AccessMode::kWrite)});
  SyncRecord sync{};
  sync.event = 55;
  sync.key = 1000 + rank;
  sync.kind = uint32_t(SyncKind::kRecord);
  sync.where = place(3, 1, 0).pack();
  sync.name = RS_NAME("ring.recv_done");
  emit(RecordKind::kSync, sync, stream);
  sync.kind = uint32_t(SyncKind::kWait);
  emit(RecordKind::kSync, sync, uint16_t(stream + 10));
  ops.send = enqueue(OpKind::kP2p, RS_NAME("send"), stream, place(3, 1, 0));
  P2pRecord p2p{};
  p2p.op = ops.send;
  p2p.comm = 7;
  p2p.peer = uint16_t(1 - rank);
  p2p.direction = uint8_t(Direction::kSend);
  p2p.dtype = uint8_t(DType::kBF16);
  p2p.seq = 5;
  p2p.bytes = 2048;
  p2p.count = 1024;
  emit(RecordKind::kP2p, p2p);
  ops.recv = enqueue(OpKind::kP2p, RS_NAME("recv"), stream, place(3, 1, 0), ops.send);
  p2p.op = ops.recv;
  p2p.direction = uint8_t(Direction::kRecv);
  emit(RecordKind::kP2p, p2p);
  ops.coll = enqueue(OpKind::kCollective, RS_NAME("all_reduce"), stream, Where{});
  CollRecord coll{};
  coll.op = ops.coll;
  coll.comm = 7;
  coll.func = uint8_t(CollFunc::kAllReduce);
  coll.dtype = uint8_t(DType::kF32);
  coll.redop = uint8_t(RedOp::kSum);
  coll.seq = 9;
  coll.count = 77;
  coll.root = -1;
  emit(RecordKind::kColl, coll);
  ops.pending = enqueue(OpKind::kKernel, RS_NAME("never.run"), stream, place(4, 0, -1));
  emit(RecordKind::kBufferFree, BufferFreeRecord{buffer.buffer}, stream);

  PositionRunRecord run{};
  run.where = place(3, 1, -1).pack();
  run.token_start = 64;
  run.count = 32;
  run.pos_start = 64;
  run.stride = -1;
  run.role = uint32_t(PositionRole::kRope);
  run.document = rank ? 0xFFFFFFFF : 4;
  run.sample = 2;
  run.rope_base = 10000.f;
  emit(RecordKind::kPositionRun, run);
  SoftmaxRowRecord row{};
  row.where = place(3, 1, 1).pack();
  row.position = 99;
  row.head = 3;
  row.kv_owner = rank ? 0xFFFF : 1;
  row.method = uint16_t(SoftmaxMethod::kLseMerge);
  row.parts = 2;
  row.m_own = -INFINITY;
  row.lse_own = -1.5;
  row.m_used = NAN;
  row.sum_used = 1.25;
  row.lse_result = 2.5;
  emit(RecordKind::kSoftmaxRow, row);
  SoftmaxStatRecord softmax{};
  softmax.where = place(3, 1, -1).pack();
  softmax.rows = 512;
  softmax.empty = 3;
  softmax.bad = rank;
  softmax.method = uint16_t(SoftmaxMethod::kGlobalThreeStep);
  softmax.parts = 2;
  softmax.lse_min = -1.25;
  softmax.lse_max = 7.5;
  softmax.lse_mean = NAN;
  emit(RecordKind::kSoftmaxStat, softmax);
  AttentionRowRecord attention{};
  attention.where = place(3, 1, 1).pack();
  attention.position = 98;
  attention.head = 5;
  attention.kv_owner = rank ? 0xFFFF : 1;
  attention.sample = 2;
  attention.parts = 4;
  attention.maker = uint8_t(RowMaker::kRecomputed);
  attention.dtype = uint8_t(DType::kF64);
  attention.m = -INFINITY;
  attention.lse = 1.5;
  attention.out = NAN;
  attention.out_size = 2.25;
  attention.score_noise = 8.5;
  attention.keys = 77;
  attention.block_owner = 3;
  attention.method = uint16_t(SoftmaxMethod::kGlobalThreeStep);
  attention.checksum = 0xFEDCBA9876543210;
  emit(RecordKind::kAttentionRow, attention);
  LabelRunRecord labels{};
  labels.where = place(3, -1, -1).pack();
  labels.token_start = 32;
  labels.count = 16;
  labels.sample = 2;
  labels.role = uint16_t(LabelRole::kApplied);
  labels.first_token = 65;
  labels.last_token = -1;
  labels.first_label = 66;
  labels.last_label = -1;
  labels.document = rank ? 0xFFFFFFFF : 4;
  labels.counted = 15;
  labels.pairs = 14;
  labels.next = 13;
  labels.same = 12;
  labels.second = 11;
  labels.tokens_sum = 0x8000000000000001;
  labels.labels_sum = 10;
  emit(RecordKind::kLabelRun, labels);
  TensorStatRecord tensor{};
  tensor.where = place(3, 1, -1).pack();
  tensor.name = RS_NAME("embed.weight");
  tensor.role = uint16_t(TensorRole::kParameter);
  tensor.part = 0xFFFF;
  tensor.count = 64;
  tensor.checksum = 0xFFFFFFFF00000000 + rank;  // the ranks disagree
  tensor.norm = 3.5;
  emit(RecordKind::kTensorStat, tensor);
  tensor.role = uint16_t(TensorRole::kGradient);
  tensor.checksum = 17;  // here they agree
  tensor.projection = -0.5;
  emit(RecordKind::kTensorStat, tensor, 0, kHasProjection);
  emit(RecordKind::kStepValue, StepValueRecord{place(3, -1, -1).pack(), uint16_t(StepQuantity::kDivisor),
                                               uint16_t(rank ? 0xFFFF : uint16_t(Axis::kCp)), 0, 63.5});
  emit(RecordKind::kUpdateSample, UpdateSampleRecord{place(3, 1, -1).pack(), RS_NAME("embed.weight"),
                                                     rank ? 0xFFFFu : 1u, 5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5});
  emit(RecordKind::kMemorySample,
       MemorySampleRecord{place(3, -1, -1).pack(), uint32_t(MemCategory::kActivation), 0, 5, 9});
  TrainStepRecord step{};
  step.where = place(3, -1, -1).pack();
  step.loss_sum = 12.5;
  step.valid_tokens = 63;
  step.divisor = 63;
  step.loss = 0.25;
  step.tokens = 128;
  step.seconds = 0.5;
  step.grad_norm = 1.75;
  step.lr = 1e-3;
  step.peak_bytes = 1u << 20;
  emit(RecordKind::kTrainStep, step);
  emit(RecordKind::kRingPlan, RingPlanRecord{place(3, 1, -1).pack(), 7, 2, 1, 0});
  return ops;
}

void write_worker(uint32_t rank, const RankOps& ops) {
  rs_thread_attach(int(rank), ("rank" + std::to_string(rank) + ".cp").c_str());
  for (uint64_t op : {ops.kernel, ops.send, ops.recv}) {
    start(op);
    end(op, op == ops.send ? 2048 : 0);
  }
  start(ops.coll);  // blocked for its peers
}

void write_launcher() {
  emit(RecordKind::kMeta, MetaRecord{rs_intern("outcome"), rs_intern("stalled")});
  RankExitRecord exit{};
  exit.rank = 1;
  exit.status = -2;
  exit.reason = rs_intern("still blocked");
  exit.where = place(3, 1, 0).pack();
  emit(RecordKind::kRankExit, exit);
}

void write_everything() {
  write_launcher();
  std::vector<RankOps> ops(2);
  for (uint32_t rank : {1u, 0u}) std::thread([&, rank] { ops[rank] = write_host(rank); }).join();
  for (uint32_t rank : {0u, 1u}) std::thread([&, rank] { write_worker(rank, ops[rank]); }).join();
}

void expect_facts(const TraceView& v) {
  ASSERT_EQ(v.ranks.size(), 2u);
  EXPECT_EQ(v.ranks[1].cp, 1);
  EXPECT_EQ(v.ranks[1].pid, 4711);
  EXPECT_EQ(v.ranks[0].host, "node-a");
  ASSERT_EQ(v.rank_exits.size(), 1u);
  EXPECT_EQ(v.rank_exits[0].status, -2);
  EXPECT_EQ(v.rank_exits[0].reason, "still blocked");
  EXPECT_EQ(v.rank_exits[0].where, place(3, 1, 0));
  EXPECT_GT(v.rank_exits[0].time_ns, 1'500'000'000'000'000'000);
  ASSERT_EQ(v.streams.size(), 2u);
  EXPECT_EQ(v.streams[0].stream, 10u);
  EXPECT_EQ(v.streams[0].name, "cp");
  ASSERT_EQ(v.comms.size(), 1u);
  EXPECT_EQ(v.comms[0].comm, 7u);
  EXPECT_EQ(v.comms[0].axis, Axis::kCp);
  EXPECT_EQ(v.comms[0].name, "cp[0,1]");
  EXPECT_EQ(v.comms[0].ranks, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(v.meta.at("outcome"), "stalled");
  EXPECT_TRUE(v.lost.empty());
  EXPECT_TRUE(v.lossless(0));
}

void expect_ops(const TraceView& v) {
  ASSERT_EQ(v.ops.size(), 10u);
  for (size_t i = 1; i < v.ops.size(); ++i)
    EXPECT_LT(std::make_pair(v.ops[i - 1].rank, v.ops[i - 1].issue), std::make_pair(v.ops[i].rank, v.ops[i].issue));
  const OpRow& kernel = v.ops[0];
  EXPECT_EQ(kernel.rank, 0);
  EXPECT_EQ(v.text(kernel.name), "attn.block");
  EXPECT_EQ(kernel.stream, 10u);
  EXPECT_EQ(kernel.state, OpState::kCompleted);
  EXPECT_EQ(kernel.where, place(3, 1, 0));
  EXPECT_LT(kernel.enqueue_ns, kernel.start_ns);
  EXPECT_LE(kernel.start_ns, kernel.end_ns);
  const OpRow& send = v.ops[1];
  EXPECT_EQ(send.bytes_sent, 2048u);
  ASSERT_NE(send.p2p, kNoRow);
  const P2pRow& p2p = v.p2ps[send.p2p];
  EXPECT_EQ(p2p.op, 1u);
  EXPECT_EQ(p2p.peer, 1);
  EXPECT_EQ(p2p.direction, Direction::kSend);
  EXPECT_EQ(p2p.dtype, DType::kBF16);
  EXPECT_EQ(p2p.seq, 5u);
  EXPECT_EQ(p2p.bytes, 2048u);
  EXPECT_EQ(p2p.count, 1024u);
  EXPECT_EQ(v.ops[2].group, send.op);
  const OpRow& coll_op = v.ops[3];
  EXPECT_EQ(coll_op.state, OpState::kStarted);
  EXPECT_EQ(coll_op.where, Where{});
  ASSERT_NE(coll_op.coll, kNoRow);
  const CollRow& coll = v.colls[coll_op.coll];
  EXPECT_EQ(coll.func, CollFunc::kAllReduce);
  EXPECT_EQ(coll.seq, 9u);
  EXPECT_EQ(coll.count, 77u);
  EXPECT_EQ(coll.root, -1);
  EXPECT_EQ(coll.redop, RedOp::kSum);
  EXPECT_EQ(v.ops[4].state, OpState::kScheduled);
  EXPECT_EQ(v.ops[4].start_ns, 0);
}

void expect_order(const TraceView& v) {
  ASSERT_EQ(v.accesses.size(), 4u);
  EXPECT_EQ(v.accesses[1].op, 0u);
  EXPECT_EQ(v.accesses[1].begin, 2048u);
  EXPECT_EQ(v.accesses[1].end, 4096u);
  EXPECT_EQ(v.accesses[1].mode, AccessMode::kWrite);
  EXPECT_EQ(v.accesses[2].op, 5u);
  ASSERT_EQ(v.syncs.size(), 4u);
  EXPECT_EQ(v.syncs[0].kind, SyncKind::kRecord);
  EXPECT_EQ(v.syncs[1].kind, SyncKind::kWait);
  EXPECT_EQ(v.syncs[1].stream, 20u);
  EXPECT_EQ(v.syncs[1].key, 1000u);
  EXPECT_EQ(v.text(v.syncs[0].name), "ring.recv_done");
  EXPECT_GT(v.syncs[0].issue, v.ops[0].issue);  // one order for operations and syncs
  EXPECT_LT(v.syncs[1].issue, v.ops[1].issue);
  ASSERT_EQ(v.buffers.size(), 2u);
  EXPECT_EQ(v.buffers[1].buffer, 101u);
  EXPECT_EQ(v.buffers[1].category, MemCategory::kKvRing);
  EXPECT_EQ(v.text(v.buffers[1].name), "ring.kv");
  ASSERT_EQ(v.ring_plans.size(), 2u);
  EXPECT_EQ(v.ring_plans[0].comm, 7u);
  EXPECT_EQ(v.ring_plans[0].expected_steps, 2u);
  EXPECT_EQ(v.ring_plans[0].run_steps, 1u);
}

void expect_values(const TraceView& v) {
  ASSERT_EQ(v.position_runs.size(), 2u);
  const PositionRunRow& run = v.position_runs[0];
  EXPECT_EQ(run.role, PositionRole::kRope);
  EXPECT_EQ(run.token_start, 64u);
  EXPECT_EQ(run.stride, -1);
  EXPECT_EQ(run.document, 4u);
  EXPECT_EQ(run.sample, 2u);
  EXPECT_EQ(run.rope_base, 10000.f);
  EXPECT_EQ(v.position_runs[1].document, 0xFFFFFFFFu);
  ASSERT_EQ(v.softmax_rows.size(), 2u);
  const SoftmaxRow& row = v.softmax_rows[0];
  EXPECT_EQ(row.where.ring_step, 1);
  EXPECT_EQ(row.position, 99u);
  EXPECT_EQ(row.head, 3);
  EXPECT_EQ(row.kv_owner, 1);
  EXPECT_EQ(v.softmax_rows[1].kv_owner, 0xFFFF);
  EXPECT_EQ(row.m_own, -INFINITY);
  EXPECT_TRUE(std::isnan(row.m_used));
  EXPECT_EQ(row.sum_used, 1.25);
  EXPECT_EQ(row.lse_result, 2.5);
  ASSERT_EQ(v.attention_rows.size(), 2u);
  const AttentionRow& attention = v.attention_rows[0];
  EXPECT_EQ(attention.where, (place(3, 1, 1)));
  EXPECT_EQ(attention.position, 98u);
  EXPECT_EQ(attention.head, 5);
  EXPECT_EQ(attention.kv_owner, 1);
  EXPECT_EQ(v.attention_rows[1].kv_owner, 0xFFFF);
  EXPECT_EQ(attention.sample, 2u);
  EXPECT_EQ(attention.parts, 4);
  EXPECT_EQ(attention.maker, RowMaker::kRecomputed);
  EXPECT_EQ(attention.dtype, DType::kF64);
  EXPECT_EQ(attention.method, SoftmaxMethod::kGlobalThreeStep);
  EXPECT_EQ(attention.m, -INFINITY);
  EXPECT_EQ(attention.lse, 1.5);
  EXPECT_TRUE(std::isnan(attention.out));
  EXPECT_EQ(attention.out_size, 2.25);
  EXPECT_EQ(attention.score_noise, 8.5);
  EXPECT_EQ(attention.keys, 77u);
  EXPECT_EQ(attention.block_owner, 3);
  EXPECT_EQ(attention.checksum, 0xFEDCBA9876543210);
  ASSERT_EQ(v.label_runs.size(), 2u);
  const LabelRunRow& labels = v.label_runs[0];
  EXPECT_EQ(labels.role, LabelRole::kApplied);
  EXPECT_EQ(std::tuple(labels.token_start, labels.count, labels.sample, labels.document), std::tuple(32u, 16u, 2u, 4u));
  EXPECT_EQ(v.label_runs[1].document, 0xFFFFFFFFu);
  EXPECT_EQ(std::tuple(labels.first_token, labels.last_token, labels.first_label, labels.last_label),
            std::tuple(65, -1, 66, -1));
  EXPECT_EQ(std::tuple(labels.counted, labels.pairs, labels.next, labels.same, labels.second),
            std::tuple(15u, 14u, 13u, 12u, 11u));
  EXPECT_EQ(labels.tokens_sum, 0x8000000000000001u);
  EXPECT_EQ(labels.labels_sum, 10u);
  ASSERT_EQ(v.tensor_stats.size(), 4u);
  EXPECT_TRUE(std::isnan(v.tensor_stats[0].projection)) << "not written";
  EXPECT_EQ(v.tensor_stats[1].projection, -0.5);
  ASSERT_EQ(v.step_values.size(), 2u);
  EXPECT_EQ(v.step_values[0].quantity, StepQuantity::kDivisor);
  EXPECT_EQ(v.step_values[0].axis, Axis::kCp);
  EXPECT_EQ(v.step_values[1].axis, Axis::kUnknown);
  EXPECT_EQ(v.step_values[0].value, 63.5);
  ASSERT_EQ(v.update_samples.size(), 2u);
  const UpdateSampleRow& update = v.update_samples[0];
  EXPECT_EQ(v.text(update.name), "embed.weight");
  EXPECT_EQ(update.part, 1);
  EXPECT_EQ(v.update_samples[1].part, -1);
  EXPECT_EQ(update.element, 5u);
  EXPECT_EQ((std::array{update.gradient, update.value_before, update.m_before, update.v_before, update.value_after,
                        update.m_after, update.v_after}),
            (std::array{0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5}));
  ASSERT_EQ(v.memory_samples.size(), 2u);
  EXPECT_EQ(v.memory_samples[0].bytes, 5u);
  EXPECT_EQ(v.memory_samples[0].peak_bytes, 9u);
  ASSERT_EQ(v.train_steps.size(), 2u);
  const TrainStepRow& step = v.train_steps[1];
  EXPECT_EQ(step.rank, 1);
  EXPECT_EQ(step.where.step, 3);
  EXPECT_EQ(step.loss_sum, 12.5);
  EXPECT_EQ(step.valid_tokens, 63u);
  EXPECT_EQ(step.tokens, 128u);
  EXPECT_EQ(step.grad_norm, 1.75);
  EXPECT_EQ(step.lr, 1e-3);
  EXPECT_EQ(step.peak_bytes, 1u << 20);
}

class RoundTrip : public testing::TestWithParam<int> {};

TEST_P(RoundTrip, EveryKindComesBack) {
  const Scratch scratch;
  const std::string spool = scratch / "t.db.spool", db = scratch / "t.db";
  {
    const Recording recording(spool, GetParam());
    write_everything();
    EXPECT_EQ(rs_count().dropped, 0u);
  }
  auto built = build_database(spool, db);
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_FALSE(std::filesystem::exists(db + "-wal"));
  auto store = Store::open(db);
  ASSERT_TRUE(store) << store.error().message;
  auto view = load_view(*store);
  ASSERT_TRUE(view) << view.error().message;
  expect_facts(*view);
  expect_ops(*view);
  expect_order(*view);
  expect_values(*view);
  // Derived rows and views.
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM p2p p JOIN op o ON o.op_id = p.match_op WHERE o.rank <> p.rank"), 4);
  EXPECT_EQ(scalar(*store, "SELECT from_stream FROM sync WHERE kind = 1 AND rank = 0"), 10);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM v_pending_ops"), 4);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM v_collective_order WHERE func = 'all_reduce' AND state = 'started'"),
            2);
  EXPECT_EQ(scalar(*store, "SELECT expected_steps FROM v_ring_timeline WHERE rank = 1 AND transfer_ns IS NOT NULL"), 2);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM v_exposed_comm"), 2);
  EXPECT_EQ(scalar(*store,
                   "SELECT count(*) FROM softmax_stat WHERE rows = 512 AND empty = 3 AND bad = rank AND method = 1 AND "
                   "parts = 2 AND lse_min = -1.25 AND lse_max = 7.5 AND lse_mean IS NULL AND layer = 1"),
            2);
  EXPECT_EQ(
      scalar(*store,
             "SELECT count(*) FROM tensor_stat t JOIN string s ON s.id = t.name WHERE s.value = 'embed.weight' AND "
             "part IS NULL AND count = 64 AND norm = 3.5 AND bad = 0 AND step = 3"),
      4);
  EXPECT_EQ(scalar(*store,
                   "SELECT count(*) FROM v_replica_mismatch WHERE tensor = 'embed.weight' AND role = 'parameter' AND "
                   "step = 3 AND ranks IN ('0', '1')"),
            2);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM v_replica_mismatch"), 2);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM probe WHERE ns_per_event > 0 AND ns_per_event < 10000"), 1);
  EXPECT_EQ(scalar(*store, "SELECT peak_bytes FROM v_memory WHERE rank = 0 AND category = 'activation'"), 9);
  EXPECT_EQ(scalar(*store, "SELECT free_stream FROM buffer WHERE rank = 1"), 11);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM thread WHERE clean = 1"), 5);
  EXPECT_TRUE(remove_spool(spool));
  EXPECT_FALSE(std::filesystem::exists(spool));
}
INSTANTIATE_TEST_SUITE_P(Modes, RoundTrip, testing::Values(int(RS_MODE_FLIGHT), int(RS_MODE_STREAM)),
                         [](const auto& info) { return info.param == RS_MODE_STREAM ? "stream" : "flight"; });

TEST(Recorder, OffDoesNothingAndReopensWithStableNames) {
  const Scratch scratch;
  EXPECT_EQ(rs_next_op(), 0u);
  emit(RecordKind::kMeta, MetaRecord{1, 1});
  auto named = [] { return RS_NAME("kept.over.runs"); };
  uint32_t id = 0;
  for (int run = 0; run < 3; ++run) {
    const std::string spool = scratch / ("run" + std::to_string(run) + ".spool");
    {
      const Recording recording(spool, RS_MODE_STREAM);
      EXPECT_TRUE(id == 0 || id == named());
      id = named();
      emit(RecordKind::kMeta, MetaRecord{id, rs_intern(std::to_string(run).c_str())});
    }
    auto view = load_paths({spool});
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->meta.at("kept.over.runs"), std::to_string(run));
  }
}

TEST(Recorder, RefusesWhatItCannotUse) {
  const Scratch scratch;
  rs_options options{};
  const std::string spool = scratch / "s";
  options.spool_dir = spool.c_str();
  options.ring_bytes = 1000;
  EXPECT_EQ(rs_open(&options), EINVAL);
  options.ring_bytes = 0;
  const Recording recording(spool, RS_MODE_FLIGHT);
  EXPECT_EQ(rs_open(&options), EBUSY);
  EXPECT_NE(std::string(rs_last_error()), "");
}

TEST(Recorder, FlightKeepsTheNewestAndCountsTheRest) {
  const Scratch scratch;
  const std::string spool = scratch / "s";
  {
    const Recording recording(spool, RS_MODE_FLIGHT, 16 * kRecordBytes);
    for (uint64_t i = 0; i < 100; ++i) emit(RecordKind::kTrainStep, TrainStepRecord{Where{}.pack(), 0, i});
    emit(RecordKind::kMemorySample, MemorySampleRecord{});
  }
  auto contents = read_spool(spool);
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->rings.size(), 1u);
  const RingReader& ring = contents->rings[0];
  // 16 slots: the memory sample, seven whole groups, and the second half of one that was overwritten.
  EXPECT_EQ(ring.loss().recovered, 8u);
  EXPECT_EQ(ring.loss().lost, 93u);
  EXPECT_EQ(ring.loss().torn, 0u);
  uint64_t first = 0;
  ring.for_each(1, [&](const Group& g) {
    if (!first) first = g.as<TrainStepRecord>().valid_tokens;
  });
  EXPECT_EQ(first, 93u);
  auto view = load_paths({spool});
  ASSERT_TRUE(view);
  EXPECT_FALSE(view->lossless(0));
  ASSERT_EQ(view->lost.size(), 1u);
  EXPECT_EQ(view->lost[0].records, 93u);
}

TEST(Recorder, RebindingStartsANewRingAndKeepsIssueOrder) {
  const Scratch scratch;
  const std::string spool = scratch / "s";
  {
    const Recording recording(spool, RS_MODE_STREAM);
    for (int part = 0; part < 3; ++part) {
      rs_thread_attach(0, "rank0.host");
      for (int i = 0; i < 4; ++i) enqueue(OpKind::kKernel, rs_intern(std::to_string(part * 4 + i).c_str()), 0, Where{});
    }
    rs_thread_detach();
  }
  auto view = load_paths({spool});
  ASSERT_TRUE(view) << view.error().message;
  ASSERT_EQ(view->ops.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(view->text(view->ops[i].name), std::to_string(i));
}

TEST(Recorder, ManyThreadsWriteAtOnce) {
  const Scratch scratch;
  const std::string spool = scratch / "s";
  constexpr int kThreads = 8, kRecords = 20000;
  uint64_t dropped = 0;
  {
    const Recording recording(spool, RS_MODE_STREAM);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([t] {
        rs_thread_attach(t, "writer");
        for (uint64_t i = 0; i < kRecords; ++i) emit(RecordKind::kMemorySample, MemorySampleRecord{0, 0, 0, i, 0});
      });
    for (auto& t : threads) t.join();
    dropped = rs_count().dropped;
    EXPECT_EQ(rs_count().written + dropped, uint64_t(kThreads) * kRecords);
  }
  auto view = load_paths({spool});
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->memory_samples.size() + dropped, size_t(kThreads) * kRecords);
  for (size_t i = 1; i < view->memory_samples.size(); ++i) {
    const auto &a = view->memory_samples[i - 1], &b = view->memory_samples[i];
    EXPECT_TRUE(a.rank < b.rank || a.bytes < b.bytes);
  }
}

TEST(ClockLine, IsContinuousAndFollowsTheSamples) {
  // 2 ticks/ns claimed, 2.5 and then 2.0 measured; the third sample is too close to count.
  const ClockLine line({{1'000'000'000'000, 5'000, 1'000},
                        {1'000'000'000'000 + 400'000'000, 5'000 + 400'000'000, 1'000 + 1'000'000'000},
                        {7, 5'000 + 400'000'050, 1'000 + 1'000'000'001},
                        {8, 5'000 + 900'000'000, 1'000 + 2'000'000'000}},
                       2.0);
  EXPECT_EQ(line.to_ns(1'000), 1'000'000'000'000);
  EXPECT_EQ(line.to_ns(1'000 + 500'000'000), 1'000'000'000'000 + 200'000'000);
  EXPECT_EQ(line.to_ns(1'000 + 1'000'000'000), 1'000'000'000'000 + 400'000'000);
  EXPECT_EQ(line.to_ns(1'000 + 2'000'000'000), 1'000'000'000'000 + 900'000'000);
  EXPECT_EQ(line.to_ns(1'000 + 3'000'000'000), 1'000'000'000'000 + 1'400'000'000);
  EXPECT_EQ(ClockLine({{1'000, 10, 100}}, 2.0).to_ns(300), 1'100);
  EXPECT_EQ(ClockLine({}, 1.0).to_ns(300), 0);
}

TEST(Import, ContinuesWhereItStopped) {
  const Scratch scratch;
  const std::string spool = scratch / "s", db = scratch / "t.db", fresh = scratch / "fresh.db";
  {
    const Recording recording(spool, RS_MODE_STREAM);
    rs_thread_attach(0, "rank0.host");
    const uint64_t early = enqueue(OpKind::kKernel, rs_intern("early"), 1, Where{});
    auto built = build_database(spool, db);  // the program still runs
    ASSERT_TRUE(built) << built.error().message;
    std::thread([&] {
      rs_thread_attach(0, "rank0.compute");
      start(early);
      end(early, 11);
    }).join();
    const uint64_t late = enqueue(OpKind::kKernel, rs_intern("late"), 1, Where{});
    start(late);
    rs_thread_detach();
  }
  ASSERT_TRUE(build_database(spool, db));
  ASSERT_TRUE(build_database(spool, fresh));
  auto resumed = Store::open(db), whole = Store::open(fresh);
  ASSERT_TRUE(resumed && whole);
  EXPECT_EQ(scalar(*resumed, "SELECT state FROM op WHERE id = 1"), 2);
  EXPECT_EQ(scalar(*resumed, "SELECT bytes_sent FROM op WHERE id = 1"), 11);
  EXPECT_EQ(dump(*resumed, false), dump(*whole, false));
}

TEST(Import, TwoDatabasesMerge) {
  const Scratch scratch;
  for (int rank : {1, 0}) {
    const std::string spool = scratch / ("r" + std::to_string(rank) + ".spool");
    {
      const Recording recording(spool, RS_MODE_STREAM);
      std::thread([&] {
        rs_thread_attach(rank, "host");
        enqueue(OpKind::kKernel, rs_intern(rank ? "b.only" : "a.only"), 1, Where{});
      }).join();
    }
    ASSERT_TRUE(build_database(spool, scratch / ("r" + std::to_string(rank) + ".db")));
  }
  auto view = load_paths({scratch / "r1.db", scratch / "r0.db"});
  ASSERT_TRUE(view) << view.error().message;
  ASSERT_EQ(view->ops.size(), 2u);
  EXPECT_EQ(view->ops[0].rank, 0);
  EXPECT_EQ(view->text(view->ops[0].name), "a.only");
  EXPECT_EQ(view->text(view->ops[1].name), "b.only");
  EXPECT_EQ(view->sources.size(), 2u);
}

}  // namespace
}  // namespace ringscope
