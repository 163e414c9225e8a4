#!/usr/bin/env bash
# The device checks: builds the CUDA-only targets and runs them on this machine's GPU, then prints a short table.
# Exit 0: all passed on a GPU. 1: a check failed. 4: there is no GPU, so nothing was shown.
#
# A result counts only if the kernel ran: the test says when it could not, and that is an error here.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || { echo "no NVIDIA GPU answers (nvidia-smi); nothing was checked" >&2; exit 4; }

./dev build cuda || exit 1

failed=0
rows=()
check() {  # check WHAT PROGRAM [GTEST_FLAGS...]
  local what=$1 program=$2 log code=0 outcome
  shift 2
  log=$(mktemp)
  "$program" "$@" > "$log" 2>&1 || code=$?
  if [ $code -ne 0 ]; then
    outcome="FAILED (exit $code)"
  elif grep -q '\[  SKIPPED \]' "$log"; then
    outcome="FAILED: did not run on the GPU"
  else
    outcome=passed
  fi
  [ "$outcome" = passed ] || { failed=1; cat "$log" >&2; }
  rows+=("$(printf '%-46s %-32s %s' "$what" "$outcome" "$(grep -oE '\([0-9]+ ms total\)' "$log" | tail -n 1)")")
  rm -f "$log"
}

tests=build-cuda/tests
check "LSE merge on the GPU against the oracle" $tests/runtime/kernels/runtime_kernels_cuda_test
check "CUPTI and NCCL linked, versions agree" $tests/probes/gpu/cuda_link_test
check "CUPTI and NCCL by dlopen" $tests/probes/gpu/probes_gpu_test

printf '\n%s, %s, commit %s\n' "$gpu" "$(build-cuda/tests/probes/gpu/cuda_link_test 2>/dev/null | grep -E '^(CUPTI|NCCL) ' | paste -sd' ')" \
  "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
printf '%s\n' "${rows[@]}"
exit $failed
