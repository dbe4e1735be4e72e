#include "comm/engine/inherited_modes.h"

#include <array>
#include <string>
#include <utility>

#include <ATen/ThreadLocalPythonObjects.h>

namespace tessera::detail::inline comm_layer {

std::atomic<uint32_t> modes_ever_on = 0;

namespace {

using LibTorchTable = at::impl::ThreadLocalPythonObjects;
using ModeTable = std::array<ModeValue, kModes>;

const std::string& key() {
  static const auto* name = new std::string("tessera.modes");
  return *name;
}

// Returns this thread's table, or nullptr.
const ModeTable* table() {
  return LibTorchTable::contains(key()) ? reinterpret_cast<const ModeTable*>(
                                              LibTorchTable::get(key()).get())
                                        : nullptr;
}

void install(const std::shared_ptr<ModeTable>& modes) {
  LibTorchTable::set(
      key(), std::shared_ptr<c10::SafePyObject>(
                 modes, reinterpret_cast<c10::SafePyObject*>(modes.get())));
}

// LibTorch 2.11 has no erase().
template <class Table>
void erase_or_empty(const std::string& name) {
  if constexpr (requires { Table::erase(name); }) {
    Table::erase(name);
  } else {
    static const auto empty = std::make_shared<ModeTable>();
    install(empty);
  }
}

}  // namespace

const ModeValue& find_mode(Mode mode) {
  static const ModeValue off;
  const ModeTable* modes = table();
  return modes != nullptr ? (*modes)[static_cast<size_t>(mode)] : off;
}

ModeValue exchange_mode(Mode mode, ModeValue value) {
  modes_ever_on |= 1U << static_cast<uint32_t>(mode);
  const ModeTable* before = table();
  auto modes = before != nullptr ? std::make_shared<ModeTable>(*before)
                                 : std::make_shared<ModeTable>();
  std::swap((*modes)[static_cast<size_t>(mode)], value);
  if (*modes == ModeTable()) {
    clear_modes();
  } else {
    install(modes);
  }
  return value;
}

void clear_modes() {
  if (LibTorchTable::contains(key())) {
    erase_or_empty<LibTorchTable>(key());
  }
}

}  // namespace tessera::detail::inline comm_layer
