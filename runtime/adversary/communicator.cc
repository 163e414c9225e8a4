// The decorator of a communicator: every call becomes a value and goes by the rank's adversary.
#include "runtime/adversary/adversary.h"

namespace ringscope {

class AdversaryCommunicator : public Communicator {
 public:
  AdversaryCommunicator(RankAdversary& adversary, std::unique_ptr<Communicator> comm)
      : adversary_(adversary), comm_(std::move(comm)) {}

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  const std::vector<int>& ranks() const override { return comm_->ranks(); }
  uint32_t id() const override { return comm_->id(); }
  Axis axis() const override { return comm_->axis(); }

  void all_reduce(Stream& stream, const Tensor& in, const Tensor& out, RedOp op, const char* name) override {
    pass(stream, CollFunc::kAllReduce, in, out, op, -1, -1, name);
  }
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out, const char* name) override {
    pass(stream, CollFunc::kAllGather, in, out, RedOp::kNone, -1, -1, name);
  }
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out, RedOp op, const char* name) override {
    pass(stream, CollFunc::kReduceScatter, in, out, op, -1, -1, name);
  }
  void broadcast(Stream& stream, const Tensor& buffer, int root, const char* name) override {
    pass(stream, CollFunc::kBroadcast, buffer, buffer, RedOp::kNone, root, -1, name);
  }
  void all_to_all(Stream& stream, const Tensor& in, const Tensor& out, const char* name) override {
    pass(stream, CollFunc::kAllToAll, in, out, RedOp::kNone, -1, -1, name);
  }
  void send(Stream& stream, const Tensor& t, int peer, const char* name) override {
    pass(stream, CollFunc::kSend, t, t, RedOp::kNone, -1, peer, name);
  }
  void recv(Stream& stream, const Tensor& t, int peer, const char* name) override {
    pass(stream, CollFunc::kRecv, t, t, RedOp::kNone, -1, peer, name);
  }

  void group_start() override {
    if (depth_++ > 0) return;
    group_ = adversary_.next_site();
    apart_ = adversary_.begin_group();
    if (!apart_) comm_->group_start();
  }
  void group_end() override {
    if (--depth_ > 0) return;
    group_ = kNoGroup;
    if (!apart_ && !adversary_.over()) comm_->group_end();
  }

  std::unique_ptr<Communicator> split(int color, int key, Axis axis, const char* name) override {
    return comm_->split(color, key, axis, name);
  }
  void abort() override { comm_->abort(); }
  std::optional<Error> async_error() const override { return comm_->async_error(); }
  TrafficCounter traffic() const override { return comm_->traffic(); }

 private:
  void pass(Stream& stream, CollFunc func, const Tensor& in, const Tensor& out, RedOp op, int root, int peer,
            const char* name) {
    Site site;
    site.func = func, site.redop = op, site.root = root, site.peer = peer, site.dtype = in.dtype();
    site.axis = axis(), site.size = size(), site.group_rank = rank();
    site.in_count = in.count(), site.out_count = out.count();
    adversary_.call({shape_of(site), &stream, in, out, name}, group_);
  }

  RankAdversary& adversary_;
  std::unique_ptr<Communicator> comm_;
  int depth_ = 0;
  uint32_t group_ = kNoGroup;
  bool apart_ = false;
};

std::unique_ptr<Communicator> make_adversary_communicator(RankAdversary& adversary,
                                                          std::unique_ptr<Communicator> comm) {
  return std::make_unique<AdversaryCommunicator>(adversary, std::move(comm));
}

}  // namespace ringscope
