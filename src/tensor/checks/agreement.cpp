#include <tensor/checks/agreement.h>

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <base/copy_bytes.h>
#include <base/hash.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <tensor/checks/replicas.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Gathers the same number of bytes from every rank.
std::vector<std::string> gather_bytes(
    const std::string& mine, const Communicator& all) {
  const auto bytes = static_cast<int64_t>(mine.size());
  const at::Tensor given = at::empty({bytes}, at::kByte);
  base::copy_bytes(given.mutable_data_ptr(), mine.data(), mine.size());
  const at::Tensor got = at::empty({all.size() * bytes}, at::kByte);
  all.all_gather(got, given);
  const auto* first = static_cast<const char*>(got.const_data_ptr());
  std::vector<std::string> parts;
  for (int64_t r = 0; r < all.size(); ++r) {
    parts.emplace_back(first + r * bytes, mine.size());
  }
  return parts;
}

struct TextDigest {
  uint64_t hash;
  uint64_t length;
};

// Gathers a text of any length from every rank; where all are equal, only their
// digests travel.
std::vector<std::string> gather_texts(
    const std::string& mine, const Communicator& all) {
  const TextDigest digest{base::hash_bytes(mine), mine.size()};
  std::string sent(sizeof(digest), '\0');
  std::memcpy(sent.data(), &digest, sizeof(digest));
  const std::vector<std::string> digests = gather_bytes(sent, all);
  if (std::count(digests.begin(), digests.end(), digests[0]) == all.size()) {
    return std::vector<std::string>(digests.size(), mine);
  }
  size_t longest = 0;
  for (const std::string& other : digests) {
    TextDigest its{};
    std::memcpy(&its, other.data(), sizeof(its));
    longest = std::max<size_t>(longest, its.length);
  }
  std::string padded = mine;
  padded.resize(longest, '\0');
  std::vector<std::string> texts = gather_bytes(padded, all);
  for (std::string& text : texts) {
    text.resize(std::min(text.size(), text.find('\0')));
  }
  return texts;
}

// What all ranks must mean alike.
std::string meaning(const at::Tensor& local, const DTensorSpec& spec) {
  return to_string(spec) + ", strides " + shape_to_string(spec.strides()) +
         (local.requires_grad() ? ", requires grad" : "");
}

}  // namespace

void check_agreement(const at::Tensor& local, const SpecPtr& of) {
  const DTensorSpec& spec = *of;
  const Communicator all = spec.mesh().whole();
  const auto texts = gather_texts(meaning(local, spec), all);
  for (size_t r = 1; r < texts.size(); ++r) {
    TORCH_CHECK_VALUE(
        texts[r] == texts[0], "from_local on ", to_string(spec.mesh()),
        ", rank ", spec.mesh().world().rank(),
        ": the ranks mean different tensors; rank ", all.ranks()[0], " has ",
        texts[0], ", rank ", all.ranks()[r], " has ", texts[r],
        "; pass the same shape, stride, dtype and requires_grad on all ranks");
  }
  const auto lines = replica_differences(
      {{"replicated shards differ", local.detach(), of}}, spec.mesh(),
      /*tolerance=*/0);
  TORCH_CHECK_VALUE(
      lines.empty(), "from_local(", to_string(spec), "), rank ",
      spec.mesh().world().rank(), ": ", base::join(lines, "; "),
      "; broadcast the data first, or use Shard or Partial");
}

}  // namespace tessera::detail::inline tensor_layer
