// JSON, written and read without a tree in memory.
//
//   JsonWriter out;                       JsonReader in(text);
//   out.begin_object();                   in.begin_object();
//   out.key("step").integer(3);           while (in.next_key()) {
//   out.end_object();                       if (in.key() == "step") step =
//   out.take()  // {"step":3}                   in.read_integer();
//                                           else in.skip_value();
//                                         }
//                                         in.finish();
//
// The writer prints one text per content: no spaces, keys in the order given,
// numbers in their shortest form that reads back as the same number. The reader
// takes RFC 8259 and nothing beside it, is not recursive, and needs memory for
// the keys of open objects only (8 bytes each), so that a text of a stranger
// costs no more than a fixed multiple of its length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::base {

/// Says what is wrong with a JSON text, and at which byte.
class JsonError : public std::runtime_error {
 public:
  JsonError(const std::string& problem, size_t byte)
      : std::runtime_error(problem + " at byte " + std::to_string(byte)),
        byte_(byte) {}
  size_t byte() const { return byte_; }

 private:
  size_t byte_;
};

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  /// Writes the key of the value that comes next.
  JsonWriter& key(std::string_view text);
  /// Writes UTF-8 text; control characters, quotes and backslashes are escaped.
  JsonWriter& string(std::string_view text);
  JsonWriter& integer(int64_t value);
  JsonWriter& unsigned_integer(uint64_t value);
  /// Writes a double so that it reads back bit for bit, always with a point or
  /// an exponent; JSON has no infinities, so those throw std::invalid_argument.
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();

  JsonWriter& integers(const std::vector<int64_t>& values);

  /// Returns the text; the writer is empty again.
  std::string take();
  /// The text so far; clear() empties it and keeps its memory.
  const std::string& text() const { return text_; }
  void clear();

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& raw(std::string_view text);
  void separate();

  std::string text_;
  bool needs_comma_ = false;
};

/// What kind of value comes next.
enum class JsonKind {
  kObject,
  kArray,
  kString,
  kInteger,
  kNumber,
  kBool,
  kNull
};

class JsonReader {
 public:
  /// Objects and arrays may be nested up to `most_depth`. The text must outlive
  /// the reader.
  explicit JsonReader(std::string_view text, size_t most_depth = 64);

  /// Tells the kind of the next value, which is not read.
  JsonKind peek();

  void begin_object();
  /// Goes on to the next key of the open object; false at its end, which is
  /// then read. Two equal keys are an error.
  bool next_key();
  const std::string& key() const { return key_; }

  void begin_array();
  /// Tells whether one more element follows in the open array; reads its end
  /// where none does.
  bool next_element();

  std::string read_string();
  int64_t read_integer();
  uint64_t read_unsigned();
  /// Reads any number.
  double read_number();
  bool read_bool();
  void read_null();
  std::vector<int64_t> read_integers();
  /// Reads a value of any kind and forgets it.
  void skip_value();
  /// Throws unless only white space is left.
  void finish();

  size_t byte() const { return at_; }
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  struct Level {
    bool is_object = false;
    bool is_first = true;
    size_t first_key_hash = 0;  // where its keys begin in key_hashes_
  };

  void skip_space();
  char next_char();
  void expect(char c);
  void expect_word(std::string_view word);
  void open(char bracket, bool is_object);
  void close(char bracket);
  bool next_member(char bracket);
  void refuse_twin_keys();
  std::string_view number_token(bool* is_integer);
  uint32_t read_hex4();
  void read_escape(std::string& out);
  void copy_utf8(std::string& out);
  JsonKind kind_at(char c);

  std::string_view text_;
  size_t most_depth_;
  size_t at_ = 0;
  std::string key_;
  std::vector<Level> levels_;
  std::vector<uint64_t> key_hashes_;
};

/// Tells whether bytes are well-formed UTF-8: no overlong forms, no surrogates.
bool is_utf8(std::string_view bytes);

/// Appends a code point as UTF-8.
void append_utf8(std::string& out, uint32_t code_point);

}  // namespace tessera::base
