// The writers against CLI.md's shape, and the catalogue against the pages and the faults.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/train_program.h"
#include "tools/analyze/analyze.h"
#include "tools/report/playbook.h"
#include "tools/report/report.h"

#ifdef RINGSCOPE_HAS_FAULTS
#include "runtime/fault/fault.h"
#endif

namespace ringscope {
namespace {

using Json = nlohmann::json;

Report stalled_report() {
  testing::Job job{1, 4, 1};
  job.wrong.leave_ring_early = [](int r, const Where& w) { return r == 1 && w.step == 1 && w.layer == 0; };
  TraceView view = testing::build(job).finish();
  view.import_stats.push_back({"torn group", "data_loss", 2, "a record was cut"});
  return analyze(view);
}

TEST(Json, HasTheDocumentedShape) {
  const Json json = Json::parse(to_json(stalled_report(), "1.2.3"));
  EXPECT_EQ(json["schema"], "ringscope.report/1");
  EXPECT_EQ(json["tool"]["version"], "1.2.3");
  EXPECT_EQ(json["verdict"], "findings");
  for (const char* key : {"sources", "findings", "missing_evidence", "import_stats"}) EXPECT_TRUE(json[key].is_array());
  EXPECT_EQ(json["sources"][0]["rank"], nullptr);
  const Json& f = json["findings"][0];
  EXPECT_EQ(f["id"], "hang.ring_break");
  EXPECT_EQ(f["root"], true);
  EXPECT_TRUE(f["caused_by"].is_null());
  EXPECT_EQ(f["severity"], "error");
  EXPECT_EQ(f["ranks"], Json({1}));
  EXPECT_EQ(f["waiting"], "0,2-3");
  EXPECT_EQ(f["group"]["name"], "cp");
  EXPECT_EQ(f["group"]["ranks"], Json({0, 1, 2, 3}));
  EXPECT_EQ(f["where"], Json({{"step", 1}, {"layer", 0}, {"ring_step", 2}, {"microbatch", 0}, {"pass", "forward"}}));
  EXPECT_EQ(f["playbook"], "playbooks/hang.ring_break.md");
  EXPECT_TRUE(f["would_raise_confidence"].is_null());
  EXPECT_TRUE(f["evidence"][0].contains("table") && f["evidence"][0]["row"].is_number());
  EXPECT_EQ(json["findings"][1]["caused_by"], 0);
  EXPECT_EQ(json["findings"][1]["root"], false);
  EXPECT_EQ(json["import_stats"][0]["severity"], "data_loss");
}

TEST(Json, CleanAndBytesThatAreNotText) {
  Report report;
  report.sources.push_back({"\xff.db", "spool", 0, 1, 0});
  const Json json = Json::parse(to_json(report, "1"));
  EXPECT_EQ(json["verdict"], "clean");
  EXPECT_EQ(json["findings"].size(), 0u);
  EXPECT_EQ(json["sources"][0]["rank"], 0);
}

TEST(Text, FourLinesAVerdict) {
  const std::string text = to_text(stalled_report());
  EXPECT_NE(text.find("1 finding\n1. hang.ring_break"), std::string::npos) << text;
  EXPECT_NE(text.find("3 other ranks wait for this (0,2-3)"), std::string::npos) << text;
  for (const char* line : {"\n   evidence: ", "\n   fix: ", "\n   confidence: ", "\n   follows:    ring.step_count"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
  EXPECT_NE(text.find("missing evidence: a record was cut (2 x torn group)\n"), std::string::npos);
  EXPECT_EQ(text.find("import: "), std::string::npos) << "said twice";
  EXPECT_EQ(to_text(Report{}), "clean: nothing found\n");
}

TEST(Text, TheFirstLineSaysWhatIsMissing) {
  Report report;
  report.verdict = Verdict::kIncomplete;
  report.missing_evidence = {"the trace of rank 3"};
  EXPECT_EQ(to_text(report),
            "incomplete: nothing found, but this is missing: the trace of rank 3\n"
            "missing evidence: the trace of rank 3\n");
  report.missing_evidence.push_back("how rank 2 ended");
  EXPECT_EQ(to_text(report).substr(0, to_text(report).find('\n')),
            "incomplete: nothing found, but this is missing: the trace of rank 3 (and 1 more, below)");
}

TEST(Text, EvidenceOfSeveralSourcesNamesItsOwn) {
  Report report = stalled_report();
  report.findings[0].evidence[0] = {1, "op", 17, "text"};
  EXPECT_NE(to_text(report).find("text [op id 17]"), std::string::npos);
  report.sources = {{"runs/a.db", "ringscope.db"}, {"runs/b.db", "ringscope.db"}};
  EXPECT_NE(to_text(report).find("text [b.db op id 17]"), std::string::npos);
  report.sources[0].path = "other/b.db";  // the last part alone would not tell
  EXPECT_NE(to_text(report).find("text [runs/b.db op id 17]"), std::string::npos);
}

TEST(Several, OneDocumentWithTheWorstVerdict) {
  Report clean, incomplete, unreadable;
  clean.sources = {{"a.db", "ringscope.db"}};
  incomplete.verdict = Verdict::kIncomplete;
  unreadable.verdict = Verdict::kUnreadable;
  const std::vector<Report> both = {clean, stalled_report()};
  const Json json = Json::parse(to_json(both, "1"));
  EXPECT_EQ(json["schema"], "ringscope.report/1");
  EXPECT_EQ(json["verdict"], "findings");
  ASSERT_EQ(json["reports"].size(), 2u);
  EXPECT_EQ(json["reports"][0]["verdict"], "clean");
  EXPECT_EQ(json["reports"][1], Json::parse(to_json(both[1], "1")));
  EXPECT_EQ(to_text(both).rfind("== a.db\nclean: nothing found\n\n== ", 0), 0u);
  const std::vector<Report> one = {clean};
  EXPECT_EQ(to_json(one, "1"), to_json(clean, "1"));
  EXPECT_EQ(to_text(one), to_text(clean));
  EXPECT_EQ(worst_verdict(std::vector<Report>{clean, clean}), Verdict::kClean);
  EXPECT_EQ(worst_verdict(std::vector<Report>{clean, incomplete}), Verdict::kIncomplete);
  EXPECT_EQ(worst_verdict(std::vector<Report>{clean, unreadable}), Verdict::kIncomplete);
  EXPECT_EQ(worst_verdict(std::vector<Report>{unreadable, unreadable}), Verdict::kUnreadable);
}

TEST(Catalogue, EveryFindingHasAPageAndEveryPageAFinding) {
  std::set<std::string_view> ids;
  for (const CatalogueRow& row : catalogue()) {
    ids.insert(row.id);
    const auto page = playbook_page(row.id);
    ASSERT_TRUE(page) << row.id;
    EXPECT_EQ(page->rfind("# " + std::string(row.id) + ": ", 0), 0u) << row.id;
    for (const char* section : {"## What it means", "## How it looks", "## Why it happens", "https://github.com/",
                                "## Confirm it by hand", "ringscope query", "## Fix", "## Practise"})
      EXPECT_NE(page->find(section), std::string::npos) << row.id << " lacks " << section;
    EXPECT_NE(playbook_page("index")->find(std::string(row.id) + ".md"), std::string::npos) << row.id;
  }
  for (const PlaybookPage& page : playbook_pages()) {
    const bool about_pages = page.id == "index" || page.id == "_template";
    EXPECT_TRUE(about_pages || ids.contains(page.id)) << page.id;
  }
  EXPECT_FALSE(playbook_page("hang.nothing"));
}

#ifdef RINGSCOPE_HAS_FAULTS
TEST(Catalogue, EveryFindingHasAFaultOrSaysThatItHasNone) {
  std::set<std::string_view> planted, implied;
  for (const FaultRow& fault : fault_rows()) {
    if (fault.finding.empty()) continue;
    planted.insert(fault.finding);
    EXPECT_NE(find_in_catalogue(fault.finding), nullptr) << fault.name;
    for (std::string_view rest = fault.implied; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      implied.insert(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    EXPECT_NE(playbook_page(fault.finding)->find("--fault " + std::string(fault.name)), std::string::npos)
        << fault.name << " is not on the page of " << fault.finding;
  }
  for (std::string_view id : implied) EXPECT_NE(find_in_catalogue(id), nullptr) << id;
  for (const CatalogueRow& row : catalogue()) {
    if (row.follows_only || row.id == "hang.undecided") continue;
    const bool says_so = playbook_page(row.id)->find("o fault is planted") != std::string::npos;
    EXPECT_NE(planted.contains(row.id) || implied.contains(row.id), says_so)
        << row.id << " has no fault and its page does not say so, or has one and says it has none";
  }
}
#endif

}  // namespace
}  // namespace ringscope
