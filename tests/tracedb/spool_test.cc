// What a ring's files give back: definitions after the ring wrapped, nothing false after damage, and where losses lie.
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "tests/tracedb/scratch.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

constexpr uint64_t kToken = 77;

std::unique_ptr<Ring> make_ring(const Scratch& scratch, SpoolMode mode, uint64_t capacity, uint32_t id = 1) {
  RingOptions options;
  options.dir = scratch.dir();
  options.mode = mode;
  options.capacity = capacity;
  options.rank = 3;
  options.thread_name = "rank3.host";
  options.process_token = kToken;
  options.first_id = id;
  int error = 0;
  return std::unique_ptr<Ring>(Ring::create(options, &error));
}

std::string file_of(const Scratch& scratch, const std::string& suffix, int id = 1) {
  return scratch / ("ring-00000" + std::to_string(id) + "." + suffix);
}

// A record of its own number and time: 100 ticks apart.
bool write_one(Ring& ring, uint64_t n, bool two_slots = false) {
  const uint64_t words[2 * kPayloadWords] = {n, n * n, ~n, 4, 5, n + 6, 7, 8, 9, n};
  return ring.emit(100 * n, uint16_t(two_slots ? RecordKind::kTrainStep : RecordKind::kMemorySample), 0, 2, words,
                   two_slots ? 10 : 5);
}
bool define_one(Ring& ring, uint64_t n) {
  return ring.define(100 * n, uint16_t(RecordKind::kStream), 0, uint16_t(n), &n, 1);
}

std::vector<Group> groups_of(const RingReader& ring) {
  std::vector<Group> groups;
  ring.for_each(1, [&](const Group& g) { groups.push_back(g); });
  return groups;
}

bool same(const Group& a, const Group& b) {
  return a.seq == b.seq && a.ticks == b.ticks && a.kind == b.kind && a.flags == b.flags && a.lane == b.lane &&
         a.n_words == b.n_words && a.payload == b.payload;
}

uint64_t all_of(const RingLoss& loss) { return loss.recovered + loss.lost + loss.torn; }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void overwrite(const std::string& path, const std::string& bytes) {  // of the same size
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
}

TEST(Definitions, OutliveARingThatWrappedManyTimes) {
  const Scratch scratch;
  uint64_t made = 0, written = 0;
  {
    const auto ring = make_ring(scratch, SpoolMode::kFlight, 64);
    ASSERT_TRUE(ring);
    while (written < 10'000) {
      const bool define = written < 5 || written % 1000 == 0;
      EXPECT_TRUE(define ? define_one(*ring, ++written) : write_one(*ring, ++written));
      made += define;
    }
  }
  auto ring = RingReader::open(file_of(scratch, "ring"));
  ASSERT_TRUE(ring) << ring.error().message;
  uint64_t definitions = 0, last_seq = 0, first_left = 0;
  for (const Group& g : groups_of(*ring)) {
    EXPECT_GT(g.seq, last_seq);
    last_seq = g.seq;
    const bool is_one = is_definition(uint16_t(g.kind));
    definitions += is_one;
    EXPECT_EQ(g.payload[0] * 100, g.ticks);
    if (!is_one && first_left == 0) first_left = g.ticks;
  }
  EXPECT_EQ(definitions, made);
  EXPECT_EQ(all_of(ring->loss()), written);
  EXPECT_EQ(ring->loss().torn, 0u);
  ASSERT_EQ(ring->loss().spans.size(), 1u);
  const LossSpan span = ring->loss().spans[0];
  EXPECT_EQ(span.lost, ring->loss().lost);
  EXPECT_EQ(span.from_ticks, 0u);
  EXPECT_EQ(span.to_ticks, first_left);  // nothing is missing behind it
}

TEST(Definitions, FindAPlaceWhenTheRingIsFullAndAreImportedOnce) {
  const Scratch scratch;
  const std::string db = scratch / "t.db";
  int error = 0;
  const std::unique_ptr<NamesWriter> names(NamesWriter::create(scratch.dir(), kToken, &error));
  const auto ring = make_ring(scratch, SpoolMode::kStream, 16);
  ASSERT_TRUE(names && ring);
  for (uint64_t n = 1; n <= 16; ++n) EXPECT_TRUE(write_one(*ring, n));
  EXPECT_TRUE(define_one(*ring, 17));
  EXPECT_FALSE(write_one(*ring, 18));
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_TRUE(build_database(scratch.dir(), db));
    auto store = Store::open(db);
    ASSERT_TRUE(store);
    EXPECT_EQ(scalar(*store, "SELECT count(*) FROM stream WHERE stream = 17"), 1);
    EXPECT_EQ(scalar(*store, "SELECT count(*) FROM memory_sample"), 16);
    EXPECT_EQ(scalar(*store, "SELECT records FROM lost"), 1);
  }
}

TEST(Definitions, AreInTheRingWhenTheirFileCannotBe) {
  const Scratch scratch;
  std::filesystem::create_directory(file_of(scratch, "def"));
  {
    const auto ring = make_ring(scratch, SpoolMode::kFlight, 64);
    ASSERT_TRUE(ring);
    EXPECT_TRUE(define_one(*ring, 1));
    EXPECT_EQ(ring->header().unsaved, 1u);
  }
  auto ring = RingReader::open(file_of(scratch, "ring"));
  ASSERT_TRUE(ring);
  EXPECT_EQ(ring->unsaved(), 1u);
  EXPECT_EQ(groups_of(*ring).size(), 1u);
  EXPECT_EQ(ring->loss().lost, 0u);
}

TEST(Definitions, ATornOneIsLostAlone) {
  const Scratch scratch;
  {
    const auto ring = make_ring(scratch, SpoolMode::kFlight, 16);
    ASSERT_TRUE(ring);
    for (uint64_t n = 1; n <= 8; ++n) define_one(*ring, n);
    for (uint64_t n = 9; n <= 100; ++n) write_one(*ring, n);
  }
  std::filesystem::resize_file(file_of(scratch, "def"), 7 * kRecordBytes + 10);
  auto ring = RingReader::open(file_of(scratch, "ring"));
  ASSERT_TRUE(ring);
  EXPECT_EQ(ring->loss().recovered, 16u + 7u);
  EXPECT_EQ(all_of(ring->loss()), 100u);
}

// --- damage -----------------------------------------------------------------------------------------------

struct Recorded {
  std::map<std::string, std::string> files;  // by suffix
  std::map<uint64_t, Group> groups;          // by seq
  uint64_t written = 0;
};

// A ring of which a part lies in the segment (stream) or is overwritten (flight).
Recorded record(const Scratch& scratch, SpoolMode mode, bool two_slots) {
  Recorded recorded;
  {
    const auto ring = make_ring(scratch, mode, 64);
    EXPECT_TRUE(ring);
    while (recorded.written < 200) {
      const uint64_t n = ++recorded.written;
      n % 20 == 1 ? define_one(*ring, n) : write_one(*ring, n, two_slots && n % 3 == 0);
      uint64_t moved = 0;
      if (n % 30 == 0 && n < 180) ring->drain(&moved);
    }
  }
  auto ring = RingReader::open(file_of(scratch, "ring"));
  EXPECT_TRUE(ring);
  for (const Group& g : groups_of(*ring)) recorded.groups[g.seq] = g;
  EXPECT_EQ(all_of(ring->loss()), recorded.written);
  for (const char* suffix : {"ring", "seg", "def"})
    if (std::filesystem::exists(file_of(scratch, suffix))) recorded.files[suffix] = read_file(file_of(scratch, suffix));
  return recorded;
}

void expect_nothing_false(const RingReader& ring, const Recorded& recorded) {
  size_t there = 0;
  for (const Group& g : groups_of(ring)) {
    const auto original = recorded.groups.find(g.seq);
    ASSERT_NE(original, recorded.groups.end()) << g.seq;
    EXPECT_TRUE(same(g, original->second)) << g.seq;
    ++there;
  }
  EXPECT_EQ(ring.loss().recovered, there);
  if (there < recorded.groups.size()) {
    EXPECT_FALSE(ring.loss().spans.empty());
  }
}

// Every group that is not there any more must lie in a span that tells so.
void expect_told(const RingReader& ring, const Recorded& recorded) {
  std::map<uint64_t, bool> there;
  for (const Group& g : groups_of(ring)) there[g.seq] = true;
  for (const auto& [seq, group] : recorded.groups) {
    if (there.contains(seq)) continue;
    bool told = false;
    for (const LossSpan& s : ring.loss().spans)
      told |= s.from_ticks <= group.ticks && (s.to_ticks == 0 || group.ticks <= s.to_ticks);
    EXPECT_TRUE(told) << seq;
  }
}

class Damage : public testing::TestWithParam<SpoolMode> {};

TEST_P(Damage, OfRecordsIsNeverReadAndAlwaysCounted) {
  for (const bool two_slots : {false, true}) {
    const Scratch scratch;
    const Recorded recorded = record(scratch, GetParam(), two_slots);
    uint64_t missing = 0;
    for (uint32_t seed = 0; seed < 200; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937 random(seed);
      for (auto [suffix, bytes] : recorded.files) {
        const size_t from = suffix == "ring" ? kSpoolHeaderBytes : 0;
        for (uint32_t flips = 1 + random() % 20; flips > 0; --flips) {
          char& byte = bytes[from + random() % (bytes.size() - from)];
          byte = char(seed % 2 ? byte ^ (1 << random() % 8) : random());
        }
        overwrite(file_of(scratch, suffix), bytes);
      }
      auto ring = RingReader::open(file_of(scratch, "ring"));
      ASSERT_TRUE(ring) << ring.error().message;
      expect_nothing_false(*ring, recorded);
      expect_told(*ring, recorded);
      EXPECT_GE(all_of(ring->loss()), recorded.written);
      if (!two_slots) {  // damage to both halves of a group may count as two
        EXPECT_EQ(all_of(ring->loss()), recorded.written);
      }
      missing += recorded.groups.size() - ring->loss().recovered;
    }
    EXPECT_GT(missing, 500u);
  }
}

TEST_P(Damage, OfTheHeaderIsRefusedOrChangesNoRecord) {
  const Scratch scratch;
  const Recorded recorded = record(scratch, GetParam(), false);
  std::string bytes = recorded.files.at("ring");
  for (size_t at = 0; at < sizeof(RingHeader); ++at)
    for (const int flip : {1, 0x80}) {
      SCOPED_TRACE("byte " + std::to_string(at));
      bytes[at] = char(bytes[at] ^ flip);
      overwrite(file_of(scratch, "ring"), bytes);
      bytes[at] = char(bytes[at] ^ flip);
      auto ring = RingReader::open(file_of(scratch, "ring"));
      if (at < offsetof(RingHeader, emits)) {
        EXPECT_FALSE(ring);
      }
      if (!ring) continue;
      expect_nothing_false(*ring, recorded);
      EXPECT_EQ(ring->loss().recovered, recorded.groups.size());
      for (const ClockLine::Sample& s : ring->clock()) EXPECT_GT(s.realtime_ns, 1'500'000'000'000'000'000);
    }
}

TEST_P(Damage, OfAVersion1RingIsSeenByNumbersAndKinds) {
  const Scratch scratch;
  const Recorded recorded = record(scratch, GetParam(), true);
  for (const char* suffix : {"ring", "seg"}) {  // word 0 was the number alone
    if (!recorded.files.contains(suffix)) continue;
    std::string bytes = recorded.files.at(suffix);
    const size_t from = std::string(suffix) == "ring" ? kSpoolHeaderBytes : 0;
    for (size_t at = from; at + kRecordBytes <= bytes.size(); at += kRecordBytes) std::memset(&bytes[at + 4], 0, 4);
    const uint32_t version = 1;
    if (from > 0) std::memcpy(&bytes[offsetof(RingHeader, version)], &version, sizeof version);
    if (from > 0)
      std::memset(&bytes[offsetof(RingHeader, unsaved)], 0xEE, kSpoolHeaderBytes - offsetof(RingHeader, unsaved));
    overwrite(file_of(scratch, suffix), bytes);
  }
  std::filesystem::remove(file_of(scratch, "def"));
  auto ring = RingReader::open(file_of(scratch, "ring"));
  ASSERT_TRUE(ring) << ring.error().message;
  expect_nothing_false(*ring, recorded);
  EXPECT_EQ(all_of(ring->loss()), recorded.written);
  EXPECT_GT(ring->loss().recovered, 40u);
  EXPECT_EQ(ring->unsaved(), 0u);
  EXPECT_FALSE(ring->clock().empty());

  std::string bytes = read_file(file_of(scratch, "ring"));
  for (size_t slot = 0; slot < 64; slot += 4) bytes[kSpoolHeaderBytes + slot * kRecordBytes + 17] = char(0x77);  // kind
  overwrite(file_of(scratch, "ring"), bytes);
  ring = RingReader::open(file_of(scratch, "ring"));
  ASSERT_TRUE(ring);
  expect_nothing_false(*ring, recorded);
}

INSTANTIATE_TEST_SUITE_P(Modes, Damage, testing::Values(SpoolMode::kFlight, SpoolMode::kStream),
                         [](const auto& info) { return info.param == SpoolMode::kStream ? "stream" : "flight"; });

TEST(Damage, ARecordOfAnotherRingIsNone) {
  const Scratch scratch;
  for (uint32_t id : {1u, 2u}) {
    const auto ring = make_ring(scratch, SpoolMode::kFlight, 16, id);
    ASSERT_TRUE(ring);
    for (uint64_t n = 1; n <= 16; ++n) write_one(*ring, n);
  }
  const std::string other = read_file(file_of(scratch, "ring", 2));
  std::string bytes = read_file(file_of(scratch, "ring", 1));
  bytes.replace(kSpoolHeaderBytes + 4 * kRecordBytes, 2 * kRecordBytes, other, kSpoolHeaderBytes + 4 * kRecordBytes,
                2 * kRecordBytes);
  overwrite(file_of(scratch, "ring", 1), bytes);
  auto ring = RingReader::open(file_of(scratch, "ring", 1));
  ASSERT_TRUE(ring);
  EXPECT_EQ(ring->loss().recovered, 14u);
  EXPECT_EQ(ring->loss().torn, 2u);
  ASSERT_EQ(ring->loss().spans.size(), 1u);
  EXPECT_EQ(ring->loss().spans[0].from_ticks, 400u);
  EXPECT_EQ(ring->loss().spans[0].to_ticks, 700u);
}

TEST(Damage, ANameBehindADamagedOneIsFound) {
  const Scratch scratch;
  int error = 0;
  const std::unique_ptr<NamesWriter> names(NamesWriter::create(scratch.dir(), kToken, &error));
  ASSERT_TRUE(names);
  for (uint32_t id = 1; id <= 5; ++id) names->add(id, "a name of " + std::to_string(id));
  for (const auto& entry : std::filesystem::directory_iterator(scratch.dir())) {
    std::string bytes = read_file(entry.path().string());
    bytes[bytes.find("name of 2")] = 'X';
    overwrite(entry.path().string(), bytes);
  }
  auto contents = read_spool(scratch.dir());
  ASSERT_TRUE(contents) << contents.error().message;
  ASSERT_EQ(contents->processes.size(), 1u);
  EXPECT_EQ(contents->processes[0].names.size(), 4u);
  EXPECT_EQ(contents->processes[0].names.at(5), "a name of 5");
  EXPECT_EQ(contents->processes[0].names_damaged, 1u);
  EXPECT_FALSE(contents->processes[0].torn_tail);
}

TEST(Loss, OfDropsHasTheirTimes) {
  const Scratch scratch;
  const auto writer = make_ring(scratch, SpoolMode::kStream, 16);
  ASSERT_TRUE(writer);
  for (uint64_t n = 1; n <= 20; ++n) EXPECT_EQ(write_one(*writer, n), n <= 16);
  uint64_t moved = 0;
  EXPECT_EQ(writer->drain(&moved), 0);
  for (uint64_t n = 21; n <= 24; ++n) EXPECT_TRUE(write_one(*writer, n));
  auto ring = RingReader::open(file_of(scratch, "ring"));
  ASSERT_TRUE(ring);
  ASSERT_EQ(ring->loss().spans.size(), 1u);
  const LossSpan span = ring->loss().hull();
  EXPECT_EQ(span.lost, 4u);
  EXPECT_EQ(span.from_ticks, 1700u);
  EXPECT_EQ(span.to_ticks, 2000u);
}

}  // namespace
}  // namespace ringscope
