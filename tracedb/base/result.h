// Result<T>: the return type of everything the world can get wrong.
//
// Libraries return errors; only tools/cli prints them and turns them into exit codes. Our own broken
// invariants are not errors: they use RS_CHECK (check.h).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace ringscope {

// The kinds map one to one to the exit codes of the command line (ARCHITECTURE.md, "Exit codes").
enum class ErrorKind {
  kUsage,      // exit 2: wrong flag, unknown key, a layout that cannot be
  kData,       // exit 3: unreadable, inconsistent or unwritable file
  kUndecided,  // exit 4: evidence is missing
  kInternal,   // exit 5: our own bug
};

// message: one line that says what, where and what to try; no trailing full stop or newline.
struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> usage_error(std::string message) {
  return tl::unexpected<Error>(Error{ErrorKind::kUsage, std::move(message)});
}
inline tl::unexpected<Error> data_error(std::string message) {
  return tl::unexpected<Error>(Error{ErrorKind::kData, std::move(message)});
}
inline tl::unexpected<Error> internal_error(std::string message) {
  return tl::unexpected<Error>(Error{ErrorKind::kInternal, std::move(message)});
}

}  // namespace ringscope
