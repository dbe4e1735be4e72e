#include <io/model/check_entry.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <unordered_set>

#include <base/escape.h>
#include <base/json.h>
#include <io/files/error.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

using io::throw_corrupt;

std::string quoted(std::string_view name) {
  return "'" + base::escape(name.substr(0, 200)) + "'";
}

// Note [Covers by random numbers]
// Give each (dim, index) a random number h(d, i) of a prime field. A box
// contributes the product over dims of h(d, end) - h(d, begin): multiplied out,
// the signed sum of its corners. Boxes cover a tensor, each element once, where
// their corners cancel but for those of the tensor, that is, where the sums are
// equal as polynomials in the h; and two polynomials of degree 64 that differ
// agree at a random point once in 2^55. So n chunks are checked in O(n dims)
// without memory, where comparing pairs takes O(n^2).
//   shape 4: chunks 0:3, 3:4   h3-h0 + h4-h3 = h4-h0   covers
//   shape 4: chunks 0:3, 2:4   h3-h0 + h4-h2           does not
// Numbers are drawn anew in each process, so that no file can be made to fit.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

uint64_t field_seed() {
  static const uint64_t seed = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) ^ random();
  }();
  return seed;
}

uint64_t field_number(size_t dim, int64_t index) {
  uint64_t x = field_seed() + dim * 0x9e3779b97f4a7c15 +
               static_cast<uint64_t>(index) * 0xbf58476d1ce4e5b9;
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
  }
  return x % kPrime;
}

uint64_t field_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b % kPrime);
}

uint64_t corner_sum(const io::Box& box) {
  uint64_t product = 1;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    const uint64_t begin = field_number(d, box.offsets[d]);
    const uint64_t end = field_number(d, box.offsets[d] + box.sizes[d]);
    product = field_product(product, (end + kPrime - begin) % kPrime);
  }
  return product;
}

// Names two chunks that overlap, where there are few enough to compare.
std::string describe_overlap(const std::vector<io::Chunk>& chunks) {
  const size_t few = std::min<size_t>(chunks.size(), 1000);
  for (size_t i = 0; i < few; ++i) {
    for (size_t j = i + 1; j < few; ++j) {
      if (io::intersect(chunks[i].box, chunks[j].box)) {
        return "chunks " + std::to_string(i) + " (" + print(chunks[i].box) +
               ") and " + std::to_string(j) + " (" + print(chunks[j].box) +
               ") overlap";
      }
    }
  }
  return "some elements are in no chunk, or in several";
}

void check_stored(
    const std::string& path, const std::string& name,
    const io::StoredBytes& stored, const std::vector<io::StoredFile>& files) {
  if (stored.file >= files.size()) {
    throw_corrupt(
        path, quoted(name) + " lies in file " + std::to_string(stored.file) +
                  "; there are " + std::to_string(files.size()));
  }
  const io::StoredFile& file = files[stored.file];
  if (stored.bytes > file.bytes || stored.offset > file.bytes - stored.bytes) {
    throw_corrupt(
        path, quoted(name) + " lies in bytes " + std::to_string(stored.offset) +
                  " to " + std::to_string(stored.offset) + " + " +
                  std::to_string(stored.bytes) + " of " +
                  base::escape(file.name) + ", which has " +
                  std::to_string(file.bytes));
  }
}

// Says why this is no name of an entry; "" where it is one.
std::string name_problem(const std::string& name) {
  const char* problem = name.empty() ? "empty"
                        : name.size() > kMostNameBytes
                            ? "longer than 4096 bytes"
                        : base::is_utf8(name) ? nullptr
                                              : "not UTF-8";
  return problem == nullptr
             ? ""
             : "the name " + quoted(name) + " of an entry is " + problem;
}

void check_tensor(
    const std::string& path, const io::Entry& entry,
    const std::vector<io::StoredFile>& files) {
  check_shape(path, entry.name, *entry.dtype, entry.shape);
  for (const io::Chunk& chunk : entry.chunks) {
    check_box(path, entry.name, chunk.box, entry.shape);
    check_stored(path, entry.name, chunk.stored, files);
  }
  check_cover(path, entry);
}

}  // namespace

void check_entry_name(const std::string& path, const std::string& name) {
  if (const std::string problem = name_problem(name); !problem.empty()) {
    throw_corrupt(path, problem);
  }
}

void check_name_to_save(
    const std::string& path, const std::string& name, const io::Path& parts) {
  if (const std::string problem = name_problem(name); !problem.empty()) {
    io::throw_usage(path, problem);
  }
  if (parts.size() > kMostPathParts) {
    io::throw_usage(
        path, quoted(name) + " is nested " + std::to_string(parts.size()) +
                  " deep; at most 64 can be read again");
  }
}

void check_shape(
    const std::string& path, const std::string& name, io::Dtype dtype,
    const std::vector<int64_t>& shape) {
  const bool is_negative =
      std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 0; });
  if (shape.size() > kMostDims || is_negative ||
      !io::byte_count(shape, dtype)) {
    throw_corrupt(
        path,
        "tensor " + quoted(name) + ": no tensor has the shape " +
            io::print(shape) +
            (shape.size() > kMostDims ? "; at most 64 dims are read" : ""));
  }
}

void check_box(
    const std::string& path, const std::string& name, const io::Box& box,
    const std::vector<int64_t>& shape) {
  bool fits =
      box.offsets.size() == shape.size() && box.sizes.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = box.offsets[d] >= 0 && box.sizes[d] >= 0 &&
           box.offsets[d] <= shape[d] &&
           box.sizes[d] <= shape[d] - box.offsets[d];
  }
  if (!fits) {
    throw_corrupt(
        path, "tensor " + quoted(name) + ": " + print(box) +
                  " is no part of the shape " + io::print(shape));
  }
}

void check_cover(const std::string& path, const io::Entry& tensor) {
  uint64_t sum = 0;
  for (const io::Chunk& chunk : tensor.chunks) {
    sum = (sum + corner_sum(chunk.box)) % kPrime;
  }
  if (sum != corner_sum(io::box_of(tensor.shape))) {
    throw_corrupt(
        path, "tensor " + quoted(tensor.name) + ": its " +
                  std::to_string(tensor.chunks.size()) +
                  " chunks do not cover its shape " + io::print(tensor.shape) +
                  " once; " + describe_overlap(tensor.chunks));
  }
}

void check_counts(const std::string& path, const io::Contents& contents) {
  size_t chunks = 0;
  for (const io::Entry& entry : contents.entries) {
    chunks += entry.chunks.size();
  }
  if (contents.entries.size() > kMostEntries || chunks > kMostChunks ||
      contents.files.size() > kMostFiles) {
    io::throw_unsupported(
        path, "has " + std::to_string(contents.entries.size()) +
                  " entries in " + std::to_string(chunks) + " parts and " +
                  std::to_string(contents.files.size()) +
                  " files; at most 1000000 entries, 4000000 parts and 100000 "
                  "files can be read again");
  }
}

void check_index_bytes(
    const std::string& path, uint64_t bytes, uint64_t most_bytes) {
  if (bytes > most_bytes) {
    io::throw_unsupported(
        path, "takes more than " + std::to_string(most_bytes) +
                  " bytes, which could not be read again; save from fewer "
                  "ranks, or parts of the state to checkpoints of their own");
  }
}

void check_contents(const std::string& path, const io::Contents& contents) {
  std::unordered_set<std::string_view> names;
  for (const io::Entry& entry : contents.entries) {
    check_entry_name(path, entry.name);
    if (!names.insert(entry.name).second) {
      throw_corrupt(path, "two entries have the name " + quoted(entry.name));
    }
    if (entry.is_tensor()) {
      check_tensor(path, entry, contents.files);
    } else if (entry.stored_value) {
      check_stored(path, entry.name, *entry.stored_value, contents.files);
    }
  }
}

}  // namespace tessera::detail::inline io_layer
