#include <checkpoint/name_globs.h>

#include <algorithm>

namespace tessera::detail::inline checkpoint_layer {

// Goes back to the last star where the rest does not match: no more than
// pattern x name steps.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, begin = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      begin = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++begin;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool matches_any(
    const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(
      patterns.begin(), patterns.end(),
      [&](const std::string& pattern) { return matches(pattern, name); });
}

}  // namespace tessera::detail::inline checkpoint_layer
