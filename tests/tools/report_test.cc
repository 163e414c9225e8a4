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
  EXPECT_NE(text.find("import: 2 x torn group"), std::string::npos);
  EXPECT_EQ(to_text(Report{}), "clean: nothing found\n");
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
TEST(Catalogue, EveryFindingHasAFaultAndEveryFaultAFinding) {
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
  // No fault plants these: their pairs are composed traces (tests/tools).
  const std::set<std::string_view> composed = {"race.send_before_ready", "ring.wrong_neighbour"};
  for (const CatalogueRow& row : catalogue()) {
    if (row.follows_only || row.id == "hang.undecided" || composed.contains(row.id)) continue;
    EXPECT_TRUE(planted.contains(row.id) || implied.contains(row.id)) << row.id << " has no fault";
  }
}
#endif

}  // namespace
}  // namespace ringscope
