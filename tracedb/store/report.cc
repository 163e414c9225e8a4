#include "tracedb/base/rank_range.h"
#include "tracedb/store/statement.h"
#include "tracedb/store/store.h"

namespace ringscope {
namespace {

// NULL for unknown, so that SQL aggregates skip it.
void add_where(std::vector<Cell>& values, const Where& w) {
  auto add = [&](int64_t v, bool known) { known ? (void)values.emplace_back(v) : (void)values.emplace_back(); };
  add(w.step, w.step >= 0);
  add(w.layer, w.layer >= 0);
  add(w.microbatch, w.microbatch >= 0);
  add(w.ring_step, w.ring_step >= 0);
  add(int64_t(w.pass), w.pass != Pass::kNone);
}

Status save_finding(Store& store, const Finding& f, int64_t id) {
  std::vector<Cell> values;
  auto add = [&](auto value) { values.emplace_back(std::move(value)); };
  auto add_or_null = [&](const auto& value) {
    value ? (void)values.emplace_back(*value) : (void)values.emplace_back();
  };
  add(id);
  add(f.id);
  add(int64_t(f.root));
  add_or_null(f.caused_by ? std::optional<int64_t>(*f.caused_by) : std::nullopt);
  add(int64_t(f.severity));
  add(f.confidence);
  add(format_rank_range(f.ranks));
  add(format_rank_range(f.waiting));
  add_or_null(f.group ? std::optional(f.group->name) : std::nullopt);
  add_or_null(f.group ? std::optional(format_rank_range(f.group->ranks)) : std::nullopt);
  add_or_null(f.seq);
  add_or_null(f.op);
  add_where(values, f.where);
  for (const std::string* text : {&f.sentence, &f.fix, &f.would_raise_confidence}) add(*text);
  add(f.first_ns);
  if (auto ok = store.run("INSERT INTO finding VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", values); !ok)
    return ok;
  for (size_t n = 0; n < f.evidence.size(); ++n) {
    const Evidence& e = f.evidence[n];
    const Cell row[] = {id, int64_t(n), int64_t(e.source), e.table, e.row, e.text};
    if (auto ok = store.run("INSERT INTO evidence VALUES(?,?,?,?,?,?)", row); !ok) return ok;
  }
  return {};
}

Status save_all(Store& store, const Report& report) {
  if (auto ok = store.exec("DELETE FROM evidence; DELETE FROM finding;"); !ok) return ok;
  for (size_t i = 0; i < report.findings.size(); ++i)
    if (auto ok = save_finding(store, report.findings[i], int64_t(i)); !ok) return ok;
  return {};
}

}  // namespace

Status Store::save_report(const Report& report) {
  if (auto ok = begin(); !ok) return ok;
  auto status = save_all(*this, report);
  if (status) status = commit();
  if (!status) rollback();
  return status;
}

}  // namespace ringscope
