// Named fields, written as bytes or as text: the description of a value
// (encode_types.h) is one for both.
//
// Bytes have no names. Text is a first line "tessera 1 KIND", then "NAME VALUE"
// per field; what is no printable ASCII stands as \xHH.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/sharded_tensor/serialize.h>

#include "base/escape.h"
#include "sharded_tensor/format/codec.h"
#include "sharded_tensor/spec/enum_codec.h"

namespace tessera::sharded_tensor::format {

/// Takes the fields of a value one after the other.
class Encoder {
 public:
  virtual ~Encoder() = default;
  virtual void number(const char* name, int64_t value) = 0;
  virtual void numbers(
      const char* name, const std::vector<int64_t>& values) = 0;
  virtual void text(const char* name, const std::string& value) = 0;
  /// A code of `codec`; throws for one that means nothing.
  virtual void choice(
      const char* name, uint8_t code, const EnumCodec& codec) = 0;
  /// How many elements follow.
  virtual void count(const char* name, size_t elements) = 0;
};

/// Gives the fields in the order in which they were written; throws ValueError
/// where something else stands there.
class Decoder {
 public:
  explicit Decoder(Kind kind) : kind_(kind) {}
  virtual ~Decoder() = default;
  virtual int64_t number(const char* name) = 0;
  virtual std::vector<int64_t> numbers(const char* name) = 0;
  virtual std::string text(const char* name) = 0;
  virtual uint8_t choice(const char* name, const EnumCodec& codec) = 0;
  /// Never more than what is left can hold, an element of `least_bytes` each.
  virtual size_t count(const char* name, size_t least_bytes) = 0;
  /// Throws where something is left.
  virtual void finish() = 0;
  /// Returns where reading has come to: "byte 12", "line 3".
  virtual std::string location() const = 0;
  /// Throws ValueError with the place.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  Kind kind_;
};

/// Fields as the payload of a frame.
class ByteEncoder final : public Encoder {
 public:
  void number(const char* name, int64_t value) override;
  void numbers(const char* name, const std::vector<int64_t>& values) override;
  void text(const char* name, const std::string& value) override;
  void choice(const char* name, uint8_t code, const EnumCodec& codec) override;
  void count(const char* name, size_t elements) override;
  std::string take() { return out_.take(); }

 private:
  Writer out_;
};

/// Calls `write` and returns a whole frame, or a whole text.
std::string write_value(
    Kind kind, Format format, const std::function<void(Encoder&)>& write);

/// Calls `read` on the fields of a whole frame or text, and checks that it took
/// them all.
void read_value(
    Kind kind, std::string_view text,
    const std::function<void(Decoder&)>& read);

using base::escape;

}  // namespace tessera::sharded_tensor::format
