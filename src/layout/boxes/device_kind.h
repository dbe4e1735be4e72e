// The kind of a tile's device.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <tessera/layout/box_layout.h>

namespace tessera::detail::inline layout_layer {

/// Returns "cuda" for "cuda:1".
inline std::string device_kind(const std::string& device) {
  return device.substr(0, device.find(':'));
}

/// Returns the kinds of devices that tiles are on.
inline std::set<std::string> device_kinds(const std::vector<Tile>& tiles) {
  std::set<std::string> kinds;
  for (const Tile& tile : tiles) {
    kinds.insert(device_kind(tile.device));
  }
  return kinds;
}

}  // namespace tessera::detail::inline layout_layer
