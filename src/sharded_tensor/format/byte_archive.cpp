#include <c10/util/Exception.h>

#include "sharded_tensor/format/archive.h"
#include "sharded_tensor/format/text_archive.h"

namespace tessera::sharded_tensor::format {

void ByteEncoder::number(const char* /*name*/, int64_t value) {
  out_.i64(value);
}

void ByteEncoder::numbers(
    const char* /*name*/, const std::vector<int64_t>& values) {
  out_.ints(values);
}

void ByteEncoder::text(const char* /*name*/, const std::string& value) {
  out_.string(value);
}

void ByteEncoder::choice(
    const char* name, uint8_t code, const EnumCodec& codec) {
  choice_name(name, code, codec);
  out_.u8(code);
}

void ByteEncoder::count(const char* /*name*/, size_t elements) {
  out_.u64(elements);
}

void Decoder::fail(const std::string& problem) const {
  TORCH_CHECK_VALUE(
      false, "deserialize ", name_of(kind_), ": ", problem, "; at ",
      location());
}

namespace {

class ByteDecoder final : public Decoder {
 public:
  ByteDecoder(Kind kind, std::string_view bytes)
      : Decoder(kind), in_(unframe(kind, bytes), name_of(kind)) {}

  int64_t number(const char* /*name*/) override { return in_.i64(); }
  std::vector<int64_t> numbers(const char* /*name*/) override {
    return in_.ints();
  }
  std::string text(const char* /*name*/) override { return in_.string(); }

  uint8_t choice(const char* name, const EnumCodec& codec) override {
    const uint8_t code = in_.u8();
    if (code >= codec.count || codec.name(code).empty()) {
      fail(c10::str(static_cast<int>(code), " is no code of ", name));
    }
    return code;
  }

  size_t count(const char* /*name*/, size_t least_bytes) override {
    return in_.count(least_bytes);
  }
  void finish() override { in_.finish(); }
  std::string location() const override {
    return c10::str("byte ", in_.at(), " of the payload");
  }

 private:
  Reader in_;
};

}  // namespace

std::string write_value(
    Kind kind, Format format, const std::function<void(Encoder&)>& write) {
  if (format == Format::kText) {
    TextEncoder out(kind);
    write(out);
    return out.take();
  }
  ByteEncoder out;
  write(out);
  return frame(kind, out.take());
}

void read_value(
    Kind kind, std::string_view text,
    const std::function<void(Decoder&)>& read) {
  const auto read_all = [&](Decoder&& in) {
    read(in);
    in.finish();
  };
  if (is_framed(text)) {
    read_all(ByteDecoder(kind, text));
  } else {
    read_all(TextDecoder(kind, text));
  }
}

}  // namespace tessera::sharded_tensor::format
