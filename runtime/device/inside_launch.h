// The mark that a thread is inside a kernel, a transfer or a read-back point: values may be looked at.
#pragma once

namespace ringscope {

inline thread_local bool inside_launch = false;

class InsideLaunch {
 public:
  InsideLaunch() : before_(inside_launch) { inside_launch = true; }
  ~InsideLaunch() { inside_launch = before_; }
  InsideLaunch(const InsideLaunch&) = delete;

 private:
  bool before_;
};

}  // namespace ringscope
