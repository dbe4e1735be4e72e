// Agreement: ranks find out together, before data move, whether all of them can
// go on. Without it an error on one rank leaves the others waiting.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <tessera/comm/communicator.h>

#include "base/copy_bytes.h"

namespace tessera::detail::inline comm_layer {

/// Gathers `lengths[r]` bytes from the rank at place r of the group.
std::vector<std::string> gather_bytes(
    const Communicator& group, std::string_view mine,
    const std::vector<int64_t>& lengths);

/// Gathers the records of all ranks, equally many of each, in group order.
template <class Record>
std::vector<Record> gather_records(
    const Communicator& group, const std::vector<Record>& mine) {
  const std::string_view bytes(
      reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Record));
  const std::vector<int64_t> lengths(
      static_cast<size_t>(group.size()), static_cast<int64_t>(bytes.size()));
  std::vector<Record> all(mine.size() * lengths.size());
  auto* next = reinterpret_cast<char*>(all.data());
  for (const std::string& part : gather_bytes(group, bytes, lengths)) {
    base::copy_bytes(next, part.data(), part.size());
    next += part.size();
  }
  return all;
}

/// Two ranks of a group, by their global numbers, whose texts differ.
struct TextDifference {
  int64_t rank;
  std::string text;
  int64_t other_rank;
  std::string other_text;
};
/// Compares a text of any length on all ranks, each byte of it; returns the
/// first rank and the first one that differs from it, the same on all. Equal
/// texts cost one gather of 16 bytes.
std::optional<TextDifference> find_difference(
    const Communicator& group, const std::string& mine);

/// A type of error that can be thrown again on another rank.
struct ErrorType {
  bool (*matches)(const c10::Error& error);
  void (*raise)(const std::string& text, int64_t number);
  int64_t (*number)(const c10::Error& error);
};
/// An error may have an error_number(), which travels too: its constructor
/// takes that behind the text.
template <class Error>
constexpr ErrorType error_type() {
  constexpr bool has_number = requires(const Error& error) {
    error.error_number();
  };
  return {
      [](const c10::Error& error) {
        return dynamic_cast<const Error*>(&error) != nullptr;
      },
      [](const std::string& text, [[maybe_unused]] int64_t number) {
        const c10::SourceLocation here = {__func__, __FILE__, __LINE__};
        if constexpr (has_number) {
          throw Error(here, text, static_cast<int>(number));
        } else {
          throw Error(here, text);
        }
      },
      [](const c10::Error& error) -> int64_t {
        if constexpr (has_number) {
          return dynamic_cast<const Error&>(error).error_number();
        } else {
          return 0;
        }
      }};
}

/// One agreement of a group about one call. Example:
///   Agreement agreement("gather", group);
///   agreement.check([&] { check_output(out); });
///   agreement.equal("dst", std::to_string(dst));
///   agreement.reach();  // throws on all ranks or on none
class Agreement {
 public:
  /// `more` are types that errors may have beside LibTorch's, the same on all
  /// ranks; an error of any other type becomes a c10::Error.
  Agreement(
      std::string call, Communicator group,
      const std::vector<ErrorType>& more = {});

  /// Runs checks of this rank; what they throw is kept for reach(). After an
  /// error the rest is left out. An error that all ranks of this group have
  /// agreed on, in a call among the checks, is thrown at once.
  template <class F>
  void check(F f) {
    if (failed()) {
      return;
    }
    try {
      f();
    } catch (...) {
      keep(std::current_exception());
    }
  }
  /// Says a value that must be equal on all ranks.
  void equal(const std::string& what, const std::string& value);
  bool failed() const { return kind_ != 0; }

  /// Throws on every rank the error that the first failing rank kept, or a
  /// ValueError where calls or values differ. Collective: one gather of a few
  /// bytes, and the texts only where there is something to say.
  void reach() { collect({}); }
  /// The same, and returns what each rank of the group passed, in group order.
  std::vector<std::string> collect(const std::string& mine);

 private:
  struct Vote;
  void keep(const std::exception_ptr& error);
  std::vector<Vote> vote(size_t length) const;
  void compare(const std::vector<Vote>& votes) const;

  std::string call_;
  Communicator group_;
  std::vector<ErrorType> types_;
  int64_t kind_ = 0;    // 0: no error, 1: a c10::Error, 2 + i: types_[i]
  int64_t number_ = 0;  // of an error that has one
  std::string error_;
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace tessera::detail::inline comm_layer
