// Entries of a checkpoint, as users list them, and values of a state that only
// they can name.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <io/model/reader.h>
#include <tessera/checkpoint/checkpoint.h>

namespace tessera::detail::inline checkpoint_layer {

/// Returns what users see of an entry; values are read for their text.
checkpoint::Entry entry_of(const io::Reader& reader, const io::Entry& stored);

/// Values of StateValue::on_open() in a state: open() puts what their functions
/// make in their places, and the destructor puts them back, unless keep() was
/// called.
class OpenedValues {
 public:
  OpenedValues() = default;
  OpenedValues(const OpenedValues&) = delete;
  OpenedValues& operator=(const OpenedValues&) = delete;
  ~OpenedValues();

  /// Only entries whose names are asked for count.
  void open(
      checkpoint::StateDict& state, const io::Reader& reader,
      const std::function<bool(const std::string&)>& is_asked_for);
  void keep() { replaced_.clear(); }

 private:
  std::vector<std::pair<checkpoint::StateValue*, checkpoint::StateValue>>
      replaced_;
};

}  // namespace tessera::detail::inline checkpoint_layer
