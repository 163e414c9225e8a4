#include "runtime/device/device.h"

#include <chrono>
#include <cmath>
#include <thread>

#include "job.h"

namespace ringscope {
namespace {

using testing::HostRank;
using testing::Job;
using testing::under_all_runners;

TEST(Tensor, ViewsShareTheBufferAndKnowTheirPlace) {
  Job job(Sched::turns(1), 1);
  Tensor t = job.ranks[0]->device->allocate(DType::kF64, {4, 3, 2}, MemCategory::kInput, "t");
  EXPECT_EQ(t.bytes(), 192);
  Tensor rows = t.rows(1, 3);
  EXPECT_EQ(rows.dim(0), 2);
  EXPECT_EQ(rows.offset_bytes(), 48);
  EXPECT_EQ(rows.buffer(), t.buffer());
  Tensor row = rows[1];
  EXPECT_EQ(row.rank(), 2);
  EXPECT_EQ(row.offset_bytes(), 96);
  EXPECT_EQ(row.reshape({6}).dim(-1), 6);
  EXPECT_EQ(t.rows(2, 2).count(), 0);
  EXPECT_DEATH((void)t.rows(1, 5), "rows outside");
  EXPECT_DEATH((void)t.reshape({5}), "number of elements");
  EXPECT_DEATH((void)t.data<double>(), "outside a launch");
  t = Tensor();
  rows = Tensor(), row = Tensor();
}

TEST(DeviceRunners, AStreamRunsInOrderAndMemoryStartsAsNan) {
  under_all_runners([](auto make) {
    Job job(make(), 2);
    EXPECT_EQ(job.run([](HostRank& r) {
      Tensor t = r.make(3);
      for (double v : r.values(t)) EXPECT_TRUE(std::isnan(v));
      for (int step = 0; step < 50; ++step)
        r.device->launch(*r.stream, "step", {t}, {t}, [t, step] {
          float* x = t.data<float>();
          x[0] = step == 0 ? 1 : x[0] * 1.01f + float(step);
        });
      float expected = 1;
      for (int step = 1; step < 50; ++step) expected = expected * 1.01f + float(step);
      EXPECT_EQ(r.values(t)[0], double(expected));
    }),
              RunEnd::kCompleted);
  });
}

// A later record of the same event must not move a wait that was enqueued before it, and a wait on an event that
// was never recorded waits for nothing.
TEST(DeviceRunners, AWaitBindsTheRecordBeforeIt) {
  under_all_runners([](auto make) {
    Job job(make(), 1);
    EXPECT_EQ(job.run([&](HostRank& r) {
      Device& d = *r.device;
      Stream& other = d.create_stream("other");
      Tensor t = r.make(2);
      Channel gate_channel;
      bool open = false;
      Event never = d.create_event("never");
      EXPECT_FALSE(never.recorded());
      d.wait(other, never);

      Event event = d.create_event("event");
      d.launch(*r.stream, "first", {}, {t}, [t] { t.data<float>()[0] = 5; });
      d.record(event, *r.stream);
      d.wait(other, event);
      // From here the stream is shut until the other one has passed its wait: a wait that had slipped to the second
      // record would never end.
      StreamOp gate;
      gate.counts_as_kernel = false;
      gate.run = [&] { return d.sched().block_until(gate_channel, [&] { return open; }, {"the gate"}); };
      d.enqueue(*r.stream, std::move(gate));
      d.record(event, *r.stream);
      d.launch(other, "second", {t}, {t}, [t] { t.data<float>()[1] = t.data<float>()[0] + 1; });
      EXPECT_TRUE(d.synchronize(other));
      d.sched().update(gate_channel, [&] { open = true; });
      EXPECT_EQ(r.values(t), (std::vector<double>{5, 6}));
    }),
              RunEnd::kCompleted);
  });
}

TEST(DeviceRunners, AnEventOrdersTwoStreams) {
  under_all_runners([](auto make) {
    Job job(make(), 2);
    EXPECT_EQ(job.run([](HostRank& r) {
      Device& d = *r.device;
      Stream& other = d.create_stream("other");
      Tensor t = r.make(1);
      d.launch(*r.stream, "zero", {}, {t}, [t] { *t.data<float>() = 0; });
      Stream* streams[2] = {r.stream, &other};
      for (int i = 0; i < 40; ++i) {
        Event e = d.create_event("turn");
        d.record(e, *streams[i % 2]);
        d.wait(*streams[(i + 1) % 2], e);
        d.launch(*streams[(i + 1) % 2], "add", {t}, {t}, [t] { *t.data<float>() += 1; });
      }
      EXPECT_EQ(r.values(t)[0], 40);
    }),
              RunEnd::kCompleted);
  });
}

TEST(DeviceRunners, MemoryIsCountedInHostOrder) {
  under_all_runners([](auto make) {
    Job job(make(), 1);
    EXPECT_EQ(job.run([](HostRank& r) {
      Device& d = *r.device;
      for (int i = 0; i < 20; ++i) {  // each block is let go while operations that name it are queued
        Tensor t = d.allocate(DType::kF32, {256}, MemCategory::kKvRing, "block");
        Tensor view = t.rows(0, 10);
        d.launch(*r.stream, "use", {}, {t}, [t, view, list = std::vector<Tensor>{t}] {
          t.data<float>()[0] = 1;
          EXPECT_EQ(list[0].data<float>()[0], 1);
        });
        EXPECT_EQ(d.memory(MemCategory::kKvRing).live, 1024);
      }
      EXPECT_EQ(d.memory(MemCategory::kKvRing).live, 0);
      EXPECT_EQ(d.memory(MemCategory::kKvRing).peak, 1024);
      Tensor a = d.allocate(DType::kF64, {8}, MemCategory::kWorkspace, "a");
      Tensor b = d.allocate(DType::kF64, {8}, MemCategory::kWorkspace, "b");
      EXPECT_NE(a.buffer()->id(), b.buffer()->id());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(a.buffer()->base()) % 64, 0u);
      EXPECT_EQ(d.memory_total().live, 128);
      EXPECT_EQ(d.memory_total().peak, 1024);
      d.reset_peak();
      EXPECT_EQ(d.memory_total().peak, 128);
      EXPECT_TRUE(d.synchronize(*r.stream));
    }),
              RunEnd::kCompleted);
  });
}

TEST(DeviceRunners, KilledWorkersStopBeforeTheirNextOperation) {
  under_all_runners([](auto make) {
    Job job(make(), 1);
    int ran = 0;
    EXPECT_EQ(job.run([&](HostRank& r) {
      Device& d = *r.device;
      Channel channel;
      bool inside = false, go_on = false;
      StreamOp op;
      op.counts_as_kernel = false;
      op.run = [&] {
        d.sched().update(channel, [&] { inside = true; });
        return d.sched().block_until(channel, [&] { return go_on; }, {"the host"});
      };
      d.enqueue(*r.stream, std::move(op));
      d.launch(*r.stream, "after", {}, {}, [&] { ++ran; });
      EXPECT_TRUE(d.sched().block_until(channel, [&] { return inside; }, {"the worker"}));
      d.kill_workers();
      d.sched().update(channel, [&] { go_on = true; });
      EXPECT_FALSE(d.synchronize(*r.stream));
    }),
              RunEnd::kCompleted);
    EXPECT_EQ(ran, 0);
  });
}

TEST(DeviceRunners, PlacesAreScoped) {
  Job job(Sched::turns(1), 1);
  Device& d = *job.ranks[0]->device;
  {
    ScopedWhere outer(d, [](Where& p) { p.step = 4; });
    ScopedWhere inner(d, [](Where& p) { p.layer = 2; });
    EXPECT_EQ(d.where().step, 4);
    EXPECT_EQ(d.where().layer, 2);
  }
  EXPECT_EQ(d.where(), Where{});
}

}  // namespace
}  // namespace ringscope
