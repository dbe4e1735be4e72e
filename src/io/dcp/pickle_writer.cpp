#include <io/dcp/pickle_writer.h>

#include <bit>
#include <utility>

#include <base/json.h>
#include <io/dcp/pickle_opcodes.h>
#include <io/files/error.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

PickleWriter::PickleWriter() {
  op(pickle_op::kProto);
  little_endian(2, 1);
}

PickleWriter& PickleWriter::op(uint8_t opcode) {
  text_.push_back(static_cast<char>(opcode));
  return *this;
}

void PickleWriter::little_endian(uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i, value >>= 8) {
    text_.push_back(static_cast<char>(value & 255));
  }
}

bool PickleWriter::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) {
    return false;
  }
  const bool is_short = found->second < 256;
  op(is_short ? pickle_op::kBinGet : pickle_op::kLongBinGet);
  little_endian(found->second, is_short ? 1 : 4);
  return true;
}

void PickleWriter::memorize(std::string key) {
  const auto index = static_cast<uint32_t>(memo_.size());
  memo_.emplace(std::move(key), index);
  const bool is_short = index < 256;
  op(is_short ? pickle_op::kBinPut : pickle_op::kLongBinPut);
  little_endian(index, is_short ? 1 : 4);
}

PickleWriter& PickleWriter::none() {
  return op(pickle_op::kNone);
}

PickleWriter& PickleWriter::boolean(bool value) {
  return op(value ? pickle_op::kNewTrue : pickle_op::kNewFalse);
}

PickleWriter& PickleWriter::integer(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    op(pickle_op::kBinInt);
    little_endian(static_cast<uint64_t>(value), 4);
  } else {
    // LibTorch's own reader takes long integers of 8 bytes only.
    op(pickle_op::kLong1);
    little_endian(8, 1);
    little_endian(static_cast<uint64_t>(value), 8);
  }
  return *this;
}

PickleWriter& PickleWriter::number(double value) {
  op(pickle_op::kBinFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) {
    text_.push_back(static_cast<char>(bits >> shift & 255));
  }
  return *this;
}

PickleWriter& PickleWriter::string(std::string_view text) {
  std::string key = "s" + std::string(text);
  if (recall(key)) {
    return *this;
  }
  op(pickle_op::kBinUnicode);
  little_endian(text.size(), 4);
  text_.append(text);
  memorize(std::move(key));
  return *this;
}

PickleWriter& PickleWriter::bytes(std::string_view bytes) {
  std::string latin1;
  for (const char c : bytes) {
    base::append_utf8(latin1, static_cast<uint8_t>(c));
  }
  global("_codecs", "encode").begin_tuple();
  string(latin1).string("latin1");
  return end_tuple().reduce();
}

PickleWriter& PickleWriter::global(
    std::string_view module, std::string_view name) {
  std::string key = "g" + std::string(module) + "\n" + std::string(name) + "\n";
  if (recall(key)) {
    return *this;
  }
  op(pickle_op::kGlobal);
  text_.append(key.substr(1));
  memorize(std::move(key));
  return *this;
}

PickleWriter& PickleWriter::begin_tuple() {
  return op(pickle_op::kMark);
}
PickleWriter& PickleWriter::end_tuple() {
  return op(pickle_op::kTuple);
}
PickleWriter& PickleWriter::empty_tuple() {
  return op(pickle_op::kEmptyTuple);
}
PickleWriter& PickleWriter::begin_list() {
  return op(pickle_op::kEmptyList).op(pickle_op::kMark);
}
PickleWriter& PickleWriter::end_list() {
  return op(pickle_op::kAppends);
}
PickleWriter& PickleWriter::begin_dict() {
  return op(pickle_op::kEmptyDict).op(pickle_op::kMark);
}
PickleWriter& PickleWriter::end_dict() {
  return op(pickle_op::kSetItems);
}
PickleWriter& PickleWriter::reduce() {
  return op(pickle_op::kReduce);
}
PickleWriter& PickleWriter::new_object() {
  return op(pickle_op::kEmptyTuple).op(pickle_op::kNewObj);
}
PickleWriter& PickleWriter::build() {
  return op(pickle_op::kBuild);
}
PickleWriter& PickleWriter::persistent() {
  return op(pickle_op::kBinPersId);
}

PickleWriter& PickleWriter::integer_tuple(const std::vector<int64_t>& values) {
  begin_tuple();
  for (const int64_t value : values) {
    integer(value);
  }
  return end_tuple();
}

PickleWriter& PickleWriter::torch_size(const std::vector<int64_t>& values) {
  global("torch", "Size").begin_tuple();
  return integer_tuple(values).end_tuple().reduce();
}

PickleWriter& PickleWriter::value(const io::Value& value) {
  write_nested(value, 0);
  return *this;
}

void PickleWriter::write_text(const std::string& text) {
  if (!base::is_utf8(text) || text.size() > UINT32_MAX) {
    io::throw_usage(
        "value",
        "a string is not UTF-8, or longer than 4 GiB; save it as "
        "bytes in the format tessera");
  }
  string(text);
}

void PickleWriter::write_nested(const io::Value& value, size_t depth) {
  if (depth > kMostValueDepth) {
    io::throw_usage(
        "value", "nested deeper than " + std::to_string(kMostValueDepth));
  }
  const auto write_all = [&](const std::vector<io::Value>& values) {
    for (const io::Value& item : values) {
      write_nested(item, depth + 1);
    }
  };
  switch (value.kind()) {
    case io::Value::Kind::kNone:
      none();
      return;
    case io::Value::Kind::kBool:
      boolean(value.as_bool());
      return;
    case io::Value::Kind::kInteger:
      integer(value.as_integer());
      return;
    case io::Value::Kind::kFloat:
      number(value.as_float());
      return;
    case io::Value::Kind::kString:
      write_text(value.as_string());
      return;
    case io::Value::Kind::kBytes:
      bytes(value.as_bytes());
      return;
    case io::Value::Kind::kList:
      begin_list();
      write_all(value.items());
      end_list();
      return;
    case io::Value::Kind::kTuple:
      begin_tuple();
      write_all(value.items());
      end_tuple();
      return;
    case io::Value::Kind::kDict:
      begin_dict();
      write_all(value.pairs());
      end_dict();
      return;
    case io::Value::Kind::kOpaque:
      break;
  }
  io::throw_unsupported(
      "value", "an object of Python cannot be saved: " + value.opaque_text());
}

std::string PickleWriter::take() {
  op(pickle_op::kStop);
  memo_.clear();
  return std::exchange(text_, {});
}

}  // namespace tessera::detail::inline io_layer
