// Faults that scripts/tidy.py must find before it believes clang-tidy:
// bugprone-use-after-move, performance-unnecessary-value-param,
// readability-identifier-naming, readability-braces-around-statements.
#include <string>
#include <utility>

namespace tessera::planted {

std::string take(std::string text) {
  const std::string taken = std::move(text);
  return text + taken;
}

size_t CountOf(const std::string text) {
  if (text.empty()) return 0;
  return text.size();
}

}  // namespace tessera::planted
