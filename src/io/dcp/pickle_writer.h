// Writing pickles of protocol 2, which every version of Python and LibTorch
// reads.
//
//   PickleWriter out;
//   out.begin_tuple();
//   out.integer(1).string("x");
//   out.end_tuple();
//   out.take()
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <io/model/value.h>

namespace tessera::detail::inline io_layer {

class PickleWriter {
 public:
  PickleWriter();

  PickleWriter& none();
  PickleWriter& boolean(bool value);
  PickleWriter& integer(int64_t value);
  PickleWriter& number(double value);
  /// UTF-8. A text that comes again is a reference to the first one.
  PickleWriter& string(std::string_view text);
  PickleWriter& bytes(std::string_view bytes);
  /// A class or function, by name; later ones are references.
  PickleWriter& global(std::string_view module, std::string_view name);

  PickleWriter& begin_tuple();
  PickleWriter& end_tuple();
  PickleWriter& empty_tuple();
  PickleWriter& begin_list();
  PickleWriter& end_list();
  /// Keys and values in turn.
  PickleWriter& begin_dict();
  PickleWriter& end_dict();

  /// Calls the global below the tuple on the stack with it.
  PickleWriter& reduce();
  /// Makes an object of the class on the stack, without arguments.
  PickleWriter& new_object();
  /// Gives the value on the stack to the object below it.
  PickleWriter& build();
  /// Makes the tuple on the stack a persistent id.
  PickleWriter& persistent();

  /// torch.Size(values).
  PickleWriter& torch_size(const std::vector<int64_t>& values);
  PickleWriter& integer_tuple(const std::vector<int64_t>& values);
  /// Throws io::Error for an opaque value.
  PickleWriter& value(const io::Value& value);

  /// Returns the pickle, ended; the writer is empty afterwards.
  std::string take();

 private:
  PickleWriter& op(uint8_t opcode);
  void little_endian(uint64_t value, size_t bytes);
  bool recall(const std::string& key);
  void memorize(std::string key);
  void write_text(const std::string& text);
  void write_nested(const io::Value& value, size_t depth);

  std::string text_;
  std::unordered_map<std::string, uint32_t> memo_;
};

}  // namespace tessera::detail::inline io_layer
