// What becomes of a kernel's output: the function that runs on the stream, changed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/fault/mutation.h"

namespace ringscope {

// The output of one run of a kernel, kept on the stream for a later one.
using KeptOutput = std::shared_ptr<std::vector<std::vector<std::byte>>>;

// What a kernel writes, as a site describes it.
std::vector<Site::Output> outputs_of(const Launch& launch);

// After `launch.fn`: scale, shift, nan (floating outputs), zero (the first half of the rows of every output), input
// (every output that has a like-shaped input takes its values).
std::function<void()> with_changed_output(const Launch& launch, MutationOp op, double value);

// Runs `launch.fn` and keeps what it wrote.
std::function<void()> with_kept_output(const Launch& launch, KeptOutput keep);
// Runs `launch.fn`, then writes what `kept` holds.
std::function<void()> with_previous_output(const Launch& launch, KeptOutput kept);

}  // namespace ringscope
