// Reading a checkpoint of any format. open_checkpoint.h opens one.
//
//   auto reader = io::open_checkpoint("runs/step_000000000100");
//   const io::Entry* w = reader->find("model.w");
//   std::vector<float> rows(2 * 6);
//   reader->read(*w, {{2, 0}, {2, 6}}, {rows.data()});  // rows 2 and 3 of w
//
// Bytes are verified as they are copied, where the format has checksums. All
// functions may be called by several threads at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <io/model/entry.h>
#include <io/model/payload.h>

namespace tessera::io {

enum class Format { kTessera, kDcp, kSafetensors };
/// Returns "tessera", "dcp", "safetensors".
std::string_view name_of(Format format);
/// Returns what verify() cannot find in a format, for want of checksums; ""
/// where it finds everything.
std::string_view unchecked_in(Format format);
/// Finds a format by that name; throws Error (kUsage) for another one.
Format format_named(std::string_view name);

class Reader {
 public:
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  virtual ~Reader() = default;

  Format format() const { return format_; }
  const std::string& path() const { return path_; }
  const std::vector<StoredFile>& files() const { return contents_.files; }
  const std::vector<Entry>& entries() const { return contents_.entries; }
  /// Returns the entry of a name; null where there is none.
  const Entry* find(std::string_view name) const;

  /// Reads the elements of a box of a tensor, from as many chunks as hold some
  /// of it. Only bytes of the windows that it touches are read, but for DCP,
  /// whose checksums speak for whole chunks; see TensorReader for many boxes.
  void read(const Entry& tensor, const Box& box, const Target& target) const;
  /// Reads a part of one chunk; `part` lies inside the chunk's box, in indices
  /// of the tensor.
  void read_chunk(
      const Entry& tensor, size_t chunk, const Box& part,
      const Target& target) const;
  /// Returns the value of an entry that is no tensor.
  Value read_value(const Entry& entry) const;
  /// Reads everything, for its checksums and rules; throws at the first thing
  /// that is wrong.
  void verify() const;
  /// The parts of that: one entry, and what lies between the chunks.
  void verify(const Entry& entry) const;
  virtual void verify_files() const {}

  /// Opens the bytes of a chunk, for TensorReader.
  virtual std::unique_ptr<detail::Payload> open_payload(
      const Entry& tensor, size_t chunk) const = 0;

 protected:
  /// Takes contents that check_contents() has let pass.
  Reader(Format format, std::string path, Contents contents);

 private:
  virtual Value load_value(const Entry& entry) const = 0;

  Format format_;
  std::string path_;
  Contents contents_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace tessera::io
