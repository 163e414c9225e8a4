// A campaign of the size that the numbers are stated for: mutants enough for 600 decidable hangs, 1,000 visible wrong
// numbers and 400 needed edges, and 1,000 twins. Arguments: [mutants = 4500] [seed = 1].
#include <string>
#include <vector>

#include "tools/cli/command.h"

int main(int argc, char** argv) {
  const bool numbers = argc > 1 && argv[1][0] != '-';  // ./dev bench hands flags of Google Benchmark to all
  const std::string count = numbers ? argv[1] : "4500", seed = numbers && argc > 2 ? argv[2] : "1";
  return ringscope::cli::run_command_line({"faults", "campaign", "--seed", seed, "--count", count});
}
