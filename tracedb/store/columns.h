// The one description of every table of rows: which field of a row struct (tracedb/model/trace_view.h) stands in which
// column, and what is NULL there. Bulk inserts, load_view() and the column lists of SQL all follow from it, so that an
// importer fills row structs and nothing else, and a new column is one line here and one in schema/.
//
// column<&Row::field>("name")                 as it is; NULL reads as 0 (a real one as NaN)
// column<&Row::field, NullIf<v>>("name")      v is NULL in the file
// place<&Row::where, &Where::field>("name")   a part of a place; unknown is NULL
// Last argument: the schema version that brought the column; older files read as the struct's default.
#pragma once

#include <array>
#include <string>
#include <type_traits>

#include "tracedb/model/trace_view.h"
#include "tracedb/store/statement.h"
#include "tracedb/store/store.h"

namespace ringscope {

template <class Row>
struct Column {
  const char* name;
  RowSource::Value (*get)(const Row&);
  void (*set)(Row&, const Statement&, int column);
  int since;
};

// How one field and one cell become each other.
struct AsItIs {
  template <class T>
  static RowSource::Value out(const T& value) {
    if constexpr (std::is_floating_point_v<T>) return RowSource::Value::of(double(value));
    else if constexpr (std::is_same_v<T, std::string>) return RowSource::Value::of(std::string_view(value));
    else return RowSource::Value::of(int64_t(value));
  }
  template <class T>
  static void in(T& value, const Statement& s, int column) {
    if constexpr (std::is_floating_point_v<T>) value = T(s.real(column));
    else if constexpr (std::is_same_v<T, std::string>) value = s.text(column);
    else value = T(s.integer(column));
  }
};
template <auto kNull>
struct NullIf {
  template <class T>
  static RowSource::Value out(const T& value) {
    return value == T(kNull) ? RowSource::Value::null() : AsItIs::out(value);
  }
  template <class T>
  static void in(T& value, const Statement& s, int column) {
    value = T(s.integer(column, int64_t(kNull)));
  }
};
using Time = NullIf<int64_t(0)>;

template <class Owner, class Field>
Owner owner_of(Field Owner::*);

template <auto kMember, class Codec = AsItIs>
constexpr auto column(const char* name, int since = 1) {
  using Row = decltype(owner_of(kMember));
  return Column<Row>{name, [](const Row& row) { return Codec::out(row.*kMember); },
                     [](Row& row, const Statement& s, int c) { Codec::in(row.*kMember, s, c); }, since};
}
template <auto kWhere, auto kPart>
constexpr auto place(const char* name) {
  using Row = decltype(owner_of(kWhere));
  using Codec = std::conditional_t<std::is_same_v<decltype(kPart), Pass Where::*>, NullIf<Pass::kNone>, NullIf<-1>>;
  return Column<Row>{name, [](const Row& row) { return Codec::out((row.*kWhere).*kPart); },
                     [](Row& row, const Statement& s, int c) { Codec::in((row.*kWhere).*kPart, s, c); }, 1};
}
#define RINGSCOPE_PLACE(Row)                                                                                    \
  place<&Row::where, &Where::step>("step"), place<&Row::where, &Where::layer>("layer"),                         \
      place<&Row::where, &Where::microbatch>("microbatch"), place<&Row::where, &Where::ring_step>("ring_step"), \
      place<&Row::where, &Where::pass>("pass")

template <class Row>
struct Table;

template <>
struct Table<RankRow> {
  static constexpr const char* kName = "rank";
  static constexpr std::array kColumns = {
      column<&RankRow::rank>("rank"),       column<&RankRow::world>("world"),     column<&RankRow::tp>("tp"),
      column<&RankRow::cp>("cp"),           column<&RankRow::dp>("dp"),           column<&RankRow::pp>("pp"),
      column<&RankRow::tp_size>("tp_size"), column<&RankRow::cp_size>("cp_size"), column<&RankRow::dp_size>("dp_size"),
      column<&RankRow::pp_size>("pp_size"), column<&RankRow::pid>("pid"),         column<&RankRow::host>("host")};
};

template <>
struct Table<RankExitRow> {
  static constexpr const char* kName = "rank_exit";
  static constexpr TableId kId = TableId::kRankExit;
  static constexpr std::array kColumns = {column<&RankExitRow::rank>("rank"), column<&RankExitRow::status>("status"),
                                          column<&RankExitRow::time_ns, Time>("time_ns"),
                                          column<&RankExitRow::reason>("reason"), RINGSCOPE_PLACE(RankExitRow)};
};

template <>
struct Table<StreamRow> {
  static constexpr const char* kName = "stream";
  static constexpr std::array kColumns = {column<&StreamRow::stream>("stream"), column<&StreamRow::rank>("rank"),
                                          column<&StreamRow::name>("name")};
};

template <>
struct Table<OpRow> {
  static constexpr const char* kName = "op";
  static constexpr TableId kId = TableId::kOp;
  static constexpr std::array kColumns = {column<&OpRow::rank>("rank"),
                                          column<&OpRow::issue>("issue"),
                                          column<&OpRow::op>("op_id"),
                                          column<&OpRow::stream>("stream"),
                                          column<&OpRow::name>("name"),
                                          column<&OpRow::kind>("kind"),
                                          column<&OpRow::state>("state"),
                                          column<&OpRow::group>("group_op"),
                                          column<&OpRow::enqueue_ns, Time>("enqueue_ns"),
                                          column<&OpRow::start_ns, Time>("start_ns"),
                                          column<&OpRow::end_ns, Time>("end_ns"),
                                          column<&OpRow::bytes_sent>("bytes_sent"),
                                          RINGSCOPE_PLACE(OpRow),
                                          column<&OpRow::thread>("thread", 2)};
};

template <>
struct Table<CollRow> {
  static constexpr const char* kName = "coll";
  static constexpr TableId kId = TableId::kColl;
  static constexpr std::array kColumns = {column<&CollRow::rank>("rank"),   column<&CollRow::issue>("issue"),
                                          column<&CollRow::op_id>("op_id"), column<&CollRow::comm>("comm"),
                                          column<&CollRow::seq>("seq"),     column<&CollRow::func>("func"),
                                          column<&CollRow::count>("count"), column<&CollRow::dtype>("dtype"),
                                          column<&CollRow::redop>("redop"), column<&CollRow::root>("root")};
};

template <>
struct Table<P2pRow> {
  static constexpr const char* kName = "p2p";
  static constexpr TableId kId = TableId::kP2p;
  static constexpr std::array kColumns = {column<&P2pRow::rank>("rank"),   column<&P2pRow::issue>("issue"),
                                          column<&P2pRow::op_id>("op_id"), column<&P2pRow::comm>("comm"),
                                          column<&P2pRow::peer>("peer"),   column<&P2pRow::direction>("direction"),
                                          column<&P2pRow::seq>("seq"),     column<&P2pRow::bytes>("bytes"),
                                          column<&P2pRow::count>("count"), column<&P2pRow::dtype>("dtype")};
};

template <>
struct Table<AccessRow> {
  static constexpr const char* kName = "access";
  static constexpr TableId kId = TableId::kAccess;
  static constexpr std::array kColumns = {column<&AccessRow::rank>("rank"),        column<&AccessRow::issue>("issue"),
                                          column<&AccessRow::op_id>("op_id"),      column<&AccessRow::buffer>("buffer"),
                                          column<&AccessRow::begin>("begin_byte"), column<&AccessRow::end>("end_byte"),
                                          column<&AccessRow::mode>("mode")};
};

template <>
struct Table<SyncRow> {
  static constexpr const char* kName = "sync";
  static constexpr TableId kId = TableId::kSync;
  static constexpr std::array kColumns = {column<&SyncRow::rank>("rank"),   column<&SyncRow::issue>("issue"),
                                          column<&SyncRow::kind>("kind"),   column<&SyncRow::stream>("stream"),
                                          column<&SyncRow::event>("event"), column<&SyncRow::key>("key"),
                                          column<&SyncRow::name>("name"),   column<&SyncRow::time_ns, Time>("time_ns"),
                                          RINGSCOPE_PLACE(SyncRow),         column<&SyncRow::thread>("thread", 2)};
};

template <>
struct Table<BufferRow> {
  static constexpr const char* kName = "buffer";
  static constexpr TableId kId = TableId::kBuffer;
  static constexpr std::array kColumns = {column<&BufferRow::rank>("rank"),
                                          column<&BufferRow::issue>("issue"),
                                          column<&BufferRow::buffer>("buffer"),
                                          column<&BufferRow::base>("base"),
                                          column<&BufferRow::bytes>("bytes"),
                                          column<&BufferRow::category>("category"),
                                          column<&BufferRow::name>("name"),
                                          column<&BufferRow::alloc_ns, Time>("alloc_ns"),
                                          column<&BufferRow::free_ns, Time>("free_ns"),
                                          column<&BufferRow::free_stream, NullIf<kAnyStream>>("free_stream"),
                                          RINGSCOPE_PLACE(BufferRow)};
};

template <>
struct Table<RingPlanRow> {
  static constexpr const char* kName = "ring_plan";
  static constexpr TableId kId = TableId::kRingPlan;
  static constexpr std::array kColumns = {
      column<&RingPlanRow::rank>("rank"),           column<&RingPlanRow::issue>("issue"),
      column<&RingPlanRow::comm>("comm"),           column<&RingPlanRow::expected_steps>("expected_steps"),
      column<&RingPlanRow::run_steps>("run_steps"), RINGSCOPE_PLACE(RingPlanRow)};
};

template <>
struct Table<SoftmaxRow> {
  static constexpr const char* kName = "softmax_row";
  static constexpr TableId kId = TableId::kSoftmaxRow;
  static constexpr std::array kColumns = {column<&SoftmaxRow::rank>("rank"),
                                          column<&SoftmaxRow::issue>("issue"),
                                          column<&SoftmaxRow::position>("position"),
                                          column<&SoftmaxRow::head>("head"),
                                          column<&SoftmaxRow::kv_owner, NullIf<0xFFFF>>("kv_owner"),
                                          column<&SoftmaxRow::sample>("sample"),
                                          column<&SoftmaxRow::method>("method"),
                                          column<&SoftmaxRow::parts>("parts"),
                                          column<&SoftmaxRow::m_own>("m_own"),
                                          column<&SoftmaxRow::lse_own>("lse_own"),
                                          column<&SoftmaxRow::m_used>("m_used"),
                                          column<&SoftmaxRow::sum_used>("sum_used"),
                                          column<&SoftmaxRow::lse_result>("lse_result"),
                                          RINGSCOPE_PLACE(SoftmaxRow)};
};

template <>
struct Table<SoftmaxStatRow> {
  static constexpr const char* kName = "softmax_stat";
  static constexpr TableId kId = TableId::kSoftmaxStat;
  static constexpr std::array kColumns = {column<&SoftmaxStatRow::rank>("rank"),
                                          column<&SoftmaxStatRow::issue>("issue"),
                                          column<&SoftmaxStatRow::rows>("rows"),
                                          column<&SoftmaxStatRow::empty>("empty"),
                                          column<&SoftmaxStatRow::bad>("bad"),
                                          column<&SoftmaxStatRow::method>("method"),
                                          column<&SoftmaxStatRow::parts>("parts"),
                                          column<&SoftmaxStatRow::lse_min>("lse_min"),
                                          column<&SoftmaxStatRow::lse_max>("lse_max"),
                                          column<&SoftmaxStatRow::lse_mean>("lse_mean"),
                                          RINGSCOPE_PLACE(SoftmaxStatRow)};
};

template <>
struct Table<TensorStatRow> {
  static constexpr const char* kName = "tensor_stat";
  static constexpr TableId kId = TableId::kTensorStat;
  static constexpr std::array kColumns = {column<&TensorStatRow::rank>("rank"),
                                          column<&TensorStatRow::issue>("issue"),
                                          column<&TensorStatRow::name>("name"),
                                          column<&TensorStatRow::role>("role"),
                                          column<&TensorStatRow::part, NullIf<-1>>("part"),
                                          column<&TensorStatRow::count>("count"),
                                          column<&TensorStatRow::checksum>("checksum"),
                                          column<&TensorStatRow::norm>("norm"),
                                          column<&TensorStatRow::bad>("bad"),
                                          RINGSCOPE_PLACE(TensorStatRow),
                                          column<&TensorStatRow::projection>("projection", 3)};
};

template <>
struct Table<StepValueRow> {
  static constexpr const char* kName = "step_value";
  static constexpr TableId kId = TableId::kStepValue;
  static constexpr int kSince = 3;
  static constexpr std::array kColumns = {
      column<&StepValueRow::rank>("rank"),         column<&StepValueRow::issue>("issue"),
      column<&StepValueRow::quantity>("quantity"), column<&StepValueRow::axis, NullIf<Axis::kUnknown>>("axis"),
      column<&StepValueRow::value>("value"),       RINGSCOPE_PLACE(StepValueRow)};
};

template <>
struct Table<UpdateSampleRow> {
  static constexpr const char* kName = "update_sample";
  static constexpr TableId kId = TableId::kUpdateSample;
  static constexpr int kSince = 3;
  static constexpr std::array kColumns = {column<&UpdateSampleRow::rank>("rank"),
                                          column<&UpdateSampleRow::issue>("issue"),
                                          column<&UpdateSampleRow::name>("name"),
                                          column<&UpdateSampleRow::part, NullIf<-1>>("part"),
                                          column<&UpdateSampleRow::element>("element"),
                                          column<&UpdateSampleRow::gradient>("gradient"),
                                          column<&UpdateSampleRow::value_before>("value_before"),
                                          column<&UpdateSampleRow::m_before>("m_before"),
                                          column<&UpdateSampleRow::v_before>("v_before"),
                                          column<&UpdateSampleRow::value_after>("value_after"),
                                          column<&UpdateSampleRow::m_after>("m_after"),
                                          column<&UpdateSampleRow::v_after>("v_after"),
                                          RINGSCOPE_PLACE(UpdateSampleRow)};
};

template <>
struct Table<PositionRunRow> {
  static constexpr const char* kName = "position_run";
  static constexpr TableId kId = TableId::kPositionRun;
  static constexpr std::array kColumns = {column<&PositionRunRow::rank>("rank"),
                                          column<&PositionRunRow::issue>("issue"),
                                          column<&PositionRunRow::role>("role"),
                                          column<&PositionRunRow::token_start>("token_start"),
                                          column<&PositionRunRow::count>("count"),
                                          column<&PositionRunRow::pos_start>("pos_start"),
                                          column<&PositionRunRow::stride>("stride"),
                                          column<&PositionRunRow::document, NullIf<0xFFFFFFFF>>("document"),
                                          column<&PositionRunRow::sample>("sample"),
                                          column<&PositionRunRow::rope_base>("rope_base"),
                                          RINGSCOPE_PLACE(PositionRunRow)};
};

template <>
struct Table<AttentionRow> {
  static constexpr const char* kName = "attention_row";
  static constexpr TableId kId = TableId::kAttentionRow;
  static constexpr int kSince = 3;
  static constexpr std::array kColumns = {column<&AttentionRow::rank>("rank"),
                                          column<&AttentionRow::issue>("issue"),
                                          column<&AttentionRow::position>("position"),
                                          column<&AttentionRow::head>("head"),
                                          column<&AttentionRow::kv_owner, NullIf<0xFFFF>>("kv_owner"),
                                          column<&AttentionRow::sample>("sample"),
                                          column<&AttentionRow::maker>("maker"),
                                          column<&AttentionRow::dtype>("dtype"),
                                          column<&AttentionRow::method>("method"),
                                          column<&AttentionRow::parts>("parts"),
                                          column<&AttentionRow::m>("m"),
                                          column<&AttentionRow::lse>("lse"),
                                          column<&AttentionRow::out>("out"),
                                          column<&AttentionRow::out_size>("out_size"),
                                          column<&AttentionRow::score_noise>("score_noise"),
                                          column<&AttentionRow::keys>("keys"),
                                          column<&AttentionRow::block_owner>("block_owner"),
                                          column<&AttentionRow::checksum>("checksum"),
                                          RINGSCOPE_PLACE(AttentionRow)};
};

template <>
struct Table<LabelRunRow> {
  static constexpr const char* kName = "label_run";
  static constexpr TableId kId = TableId::kLabelRun;
  static constexpr int kSince = 3;
  static constexpr std::array kColumns = {column<&LabelRunRow::rank>("rank"),
                                          column<&LabelRunRow::issue>("issue"),
                                          column<&LabelRunRow::role>("role"),
                                          column<&LabelRunRow::token_start>("token_start"),
                                          column<&LabelRunRow::count>("count"),
                                          column<&LabelRunRow::sample>("sample"),
                                          column<&LabelRunRow::document, NullIf<0xFFFFFFFF>>("document"),
                                          column<&LabelRunRow::first_token, NullIf<-1>>("first_token"),
                                          column<&LabelRunRow::last_token, NullIf<-1>>("last_token"),
                                          column<&LabelRunRow::first_label, NullIf<-1>>("first_label"),
                                          column<&LabelRunRow::last_label, NullIf<-1>>("last_label"),
                                          column<&LabelRunRow::counted>("counted"),
                                          column<&LabelRunRow::pairs>("pairs"),
                                          column<&LabelRunRow::next>("next"),
                                          column<&LabelRunRow::same>("same"),
                                          column<&LabelRunRow::second>("second"),
                                          column<&LabelRunRow::tokens_sum>("tokens_sum"),
                                          column<&LabelRunRow::labels_sum>("labels_sum"),
                                          RINGSCOPE_PLACE(LabelRunRow)};
};

template <>
struct Table<MemorySampleRow> {
  static constexpr const char* kName = "memory_sample";
  static constexpr TableId kId = TableId::kMemorySample;
  static constexpr std::array kColumns = {column<&MemorySampleRow::rank>("rank"),
                                          column<&MemorySampleRow::issue>("issue"),
                                          column<&MemorySampleRow::category>("category"),
                                          column<&MemorySampleRow::bytes>("bytes"),
                                          column<&MemorySampleRow::peak_bytes>("peak_bytes"),
                                          column<&MemorySampleRow::time_ns, Time>("time_ns"),
                                          RINGSCOPE_PLACE(MemorySampleRow)};
};

template <>
struct Table<TrainStepRow> {
  static constexpr const char* kName = "train_step";
  static constexpr TableId kId = TableId::kTrainStep;
  static constexpr std::array kColumns = {column<&TrainStepRow::rank>("rank"),
                                          column<&TrainStepRow::issue>("issue"),
                                          column<&TrainStepRow::loss_sum>("loss_sum"),
                                          column<&TrainStepRow::valid_tokens>("valid_tokens"),
                                          column<&TrainStepRow::divisor>("divisor"),
                                          column<&TrainStepRow::loss>("loss"),
                                          column<&TrainStepRow::tokens>("tokens"),
                                          column<&TrainStepRow::seconds>("seconds"),
                                          column<&TrainStepRow::grad_norm>("grad_norm"),
                                          column<&TrainStepRow::lr>("lr"),
                                          column<&TrainStepRow::peak_bytes>("peak_bytes"),
                                          RINGSCOPE_PLACE(TrainStepRow)};
};
#undef RINGSCOPE_PLACE

// The schema version that brought a table; 1 unless its description says otherwise.
template <class Row>
constexpr int since() {
  if constexpr (requires { Table<Row>::kSince; }) return Table<Row>::kSince;
  else return 1;
}

// "a,b,c" of the columns that a file of this schema version has.
template <class Row>
std::string column_list(int version) {
  std::string list;
  for (const Column<Row>& c : Table<Row>::kColumns)
    if (c.since <= version) list += (list.empty() ? "" : ",") + std::string(c.name);
  return list;
}

}  // namespace ringscope
