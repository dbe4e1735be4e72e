#include "comm/engine/process/peer_events.h"

#include <iterator>
#include <sstream>

namespace tessera::detail {

// "RANK WORLD GROUP LANES lane calls lane calls text"
std::string to_bytes(const News& news) {
  std::ostringstream out;
  out << news.rank << ' ' << news.world << ' ' << news.group << ' '
      << news.calls.size() << ' ';
  for (const auto& [lane, calls] : news.calls) {
    out << lane << ' ' << calls << ' ';
  }
  out << news.text;
  return out.str();
}

News news_from(const std::string& bytes) {
  std::istringstream in(bytes);
  News news;
  size_t lanes = 0;
  in >> news.rank >> news.world >> news.group >> lanes;
  for (size_t i = 0; i < lanes && in; ++i) {
    uint64_t lane = 0;
    uint64_t calls = 0;
    in >> lane >> calls;
    news.calls[lane] = calls;
  }
  in.get();
  news.text.assign(std::istreambuf_iterator<char>(in), {});
  return news;
}

}  // namespace tessera::detail
