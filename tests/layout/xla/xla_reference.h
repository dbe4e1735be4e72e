// Who holds what according to a sharding text, straight from the definition:
// reshape, transpose and look. Reads what the library prints, no more, and
// shares no code with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "layout/reference.h"

namespace tessera::reference {

/// What a device holds: indices per tensor dim, and a number that is equal for
/// devices with the same addend.
struct XlaShard {
  std::vector<List> indices;
  int64_t addend = 0;
  friend bool operator==(const XlaShard&, const XlaShard&) = default;
};
using XlaShards = std::map<int64_t, XlaShard>;  // by device

/// Returns the numbers between the character after `open` and `close`.
inline List numbers_after(
    const std::string& text, const std::string& open, char close) {
  const size_t found = text.find(open);
  List list;
  if (found == std::string::npos) {
    return list;
  }
  std::string digits;
  for (size_t i = found + open.size();; ++i) {
    const char c = i < text.size() ? text[i] : close;
    if (c >= '0' && c <= '9') {
      digits += c;
      continue;
    }
    if (!digits.empty()) {
      list.push_back(std::stoll(digits));
      digits.clear();
    }
    if (c == close || (c != ',' && c != ' ')) {
      return list;
    }
  }
}

/// Returns tile number `tile` of `count` of the indices 0 .. size-1.
inline List xla_tile(int64_t size, int64_t count, int64_t tile) {
  List list;
  for (int64_t i = 0; i < size; ++i) {
    list.push_back(i);
  }
  return chunks(list, count)[static_cast<size_t>(tile)];
}

/// Lists devices in tile order: iota of `sizes`, axes permuted by `order`.
inline List transposed_iota(const List& sizes, const List& order) {
  List device_at, permuted;
  const std::vector<List> all = coordinates(sizes);
  for (const int64_t axis : order) {
    permuted.push_back(sizes[static_cast<size_t>(axis)]);
  }
  for (const List& index : coordinates(permuted)) {
    List original(sizes.size());
    for (size_t i = 0; i < order.size(); ++i) {
      original[static_cast<size_t>(order[i])] = index[i];
    }
    device_at.push_back(
        std::find(all.begin(), all.end(), original) - all.begin());
  }
  return device_at;
}

inline XlaShards shards_of_hlo(
    const std::string& text, const List& shape, const List& mesh_ranks) {
  XlaShards shards;
  List tiles = numbers_after(text, "devices=[", ']');
  List devices;
  int64_t addends = 1;
  if (tiles.empty()) {  // all hold everything
    tiles.assign(shape.size(), 1);
    const auto count = static_cast<int64_t>(mesh_ranks.size());
    const bool unreduced = text.find("unreduced") != std::string::npos;
    tiles.push_back(count);
    devices = mesh_ranks;
    addends = unreduced ? count : 1;
  } else {
    const List sizes = numbers_after(text, "<=[", ']');
    List order = numbers_after(text, "T(", ')');
    if (order.empty()) {
      order = {0};
    }
    devices = sizes.empty() ? numbers_after(text, "]", ' ')
                            : transposed_iota(sizes, order);
    if (text.find("unreduced") != std::string::npos) {
      addends = tiles[shape.size()];
    }
  }
  const std::vector<List> indices = coordinates(tiles);
  for (size_t i = 0; i < devices.size(); ++i) {
    XlaShard shard;
    for (size_t d = 0; d < shape.size(); ++d) {
      shard.indices.push_back(xla_tile(shape[d], tiles[d], indices[i][d]));
    }
    shard.addend = addends > 1 ? indices[i][shape.size()] : 0;
    shards[devices[i]] = shard;
  }
  return shards;
}

/// Returns the quoted names of each {...} from `begin` to `end`.
inline std::vector<std::vector<std::string>> quoted_lists(
    const std::string& text, size_t begin, size_t end) {
  std::vector<std::vector<std::string>> lists;
  for (size_t i = begin; i < end; ++i) {
    if (text[i] == '{') {
      lists.emplace_back();
    } else if (text[i] == '"') {
      const size_t close = text.find('"', i + 1);
      lists.back().push_back(text.substr(i + 1, close - i - 1));
      i = close;
    }
  }
  return lists;
}

inline XlaShards shards_of_shardy(const std::string& text, const List& shape) {
  List sizes;
  std::vector<std::string> names;
  const size_t line = text.find('\n');
  for (size_t i = text.find('"'); i < line; i = text.find('"', i)) {
    const size_t close = text.find('"', i + 1);
    names.push_back(text.substr(i + 1, close - i - 1));
    sizes.push_back(std::stoll(text.substr(close + 2)));
    i = close + 1;
    if (text.find('"', i) == std::string::npos) {
      break;
    }
  }
  List devices = numbers_after(text.substr(0, line), "device_ids=[", ']');
  const std::vector<List> all = coordinates(sizes);
  for (size_t i = 0; devices.size() < all.size(); ++i) {
    devices.push_back(static_cast<int64_t>(i));
  }
  const size_t group = text.find("], unreduced=", line);
  const size_t end = text.size();
  const auto dims = quoted_lists(text, line, std::min(group, end));
  const auto addends = quoted_lists(text, std::min(group, end), end);
  const auto number = [&](const List& at, const auto& axes) {
    int64_t place = 0, count = 1;
    for (const std::string& axis : axes) {
      const auto m = static_cast<size_t>(
          std::find(names.begin(), names.end(), axis) - names.begin());
      place = place * sizes[m] + at[m];
      count *= sizes[m];
    }
    return std::pair(place, count);
  };
  XlaShards shards;
  for (size_t i = 0; i < all.size(); ++i) {
    XlaShard shard;
    for (size_t d = 0; d < shape.size(); ++d) {
      const auto [tile, count] = d < dims.size()
                                     ? number(all[i], dims[d])
                                     : std::pair<int64_t, int64_t>(0, 1);
      shard.indices.push_back(xla_tile(shape[d], count, tile));
    }
    shard.addend = addends.empty() ? 0 : number(all[i], addends[0]).first;
    shards[devices[i]] = shard;
  }
  return shards;
}

/// Returns the same of a layout, by the definition of its placements.
inline XlaShards shards_of_layout(const Layout& layout) {
  const List sizes = layout.mesh().sizes();
  XlaShards shards;
  for (const List& at : coordinates(sizes)) {
    XlaShard shard;
    for (size_t d = 0; d < layout.shape().size(); ++d) {
      List indices = held(
          layout.shape()[d], static_cast<int64_t>(d), sizes,
          layout.placements(), at);
      std::sort(indices.begin(), indices.end());
      shard.indices.push_back(indices);
    }
    for (size_t m = 0; m < sizes.size(); ++m) {
      if (layout.placements()[m].is_partial()) {
        shard.addend = shard.addend * sizes[m] + at[m];
      }
    }
    shards[layout.mesh().rank_at(at)] = shard;
  }
  return shards;
}

}  // namespace tessera::reference
