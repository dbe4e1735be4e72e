// Fields as lines of text. A line that serialize() would have written otherwise
// is refused, so that equal values are equal texts.
#pragma once

#include "sharded_tensor/format/archive.h"

namespace tessera::sharded_tensor::format {

/// Returns the word of a code; throws for one that means nothing.
std::string choice_name(const char* name, uint8_t code, const EnumCodec& codec);

class TextEncoder final : public Encoder {
 public:
  explicit TextEncoder(Kind kind);
  void number(const char* name, int64_t value) override;
  void numbers(const char* name, const std::vector<int64_t>& values) override;
  void text(const char* name, const std::string& value) override;
  void choice(const char* name, uint8_t code, const EnumCodec& codec) override;
  void count(const char* name, size_t elements) override;
  std::string take() { return std::move(out_); }

 private:
  void line(std::string_view name, std::string_view value);
  std::string out_;
};

class TextDecoder final : public Decoder {
 public:
  TextDecoder(Kind kind, std::string_view text);
  int64_t number(const char* name) override;
  std::vector<int64_t> numbers(const char* name) override;
  std::string text(const char* name) override;
  uint8_t choice(const char* name, const EnumCodec& codec) override;
  size_t count(const char* name, size_t least_bytes) override;
  void finish() override;
  std::string location() const override;

 private:
  std::string_view take_line();
  std::string_view take_value(const char* name);
  int64_t parse_number(std::string_view digits) const;

  std::string_view left_;
  int64_t line_ = 0;
};

}  // namespace tessera::sharded_tensor::format
