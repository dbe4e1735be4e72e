#include <tensor/agreement.h>

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <tensor/replicas.h>

namespace tessera::detail {

namespace {

constexpr int64_t kTextBytes = 512;

// Gathers one line of text from every rank of the mesh.
std::vector<std::string> gather_text(
    const std::string& mine, const Communicator& all) {
  at::Tensor text = at::zeros({kTextBytes}, at::kByte);
  std::memcpy(
      text.mutable_data_ptr<uint8_t>(), mine.data(),
      std::min(mine.size(), static_cast<size_t>(kTextBytes - 1)));
  at::Tensor texts = at::empty({all.size() * kTextBytes}, at::kByte);
  all.all_gather(texts, text);
  std::vector<std::string> lines;
  const auto* bytes =
      reinterpret_cast<const char*>(texts.const_data_ptr<uint8_t>());
  for (int64_t r = 0; r < all.size(); ++r) {
    lines.emplace_back(bytes + r * kTextBytes);
  }
  return lines;
}

}  // namespace

void check_agreement(const at::Tensor& local, const SpecPtr& of) {
  const DTensorSpec& spec = *of;
  const Communicator all = spec.mesh().whole();
  const std::string mine = to_string(spec);
  const auto texts = gather_text(mine, all);
  for (size_t r = 1; r < texts.size(); ++r) {
    TORCH_CHECK_VALUE(
        texts[r] == texts[0], "from_local on ", to_string(spec.mesh()),
        ", rank ", spec.mesh().world().rank(),
        ": the ranks mean different tensors; rank ", all.ranks()[0], " has ",
        texts[0], ", rank ", all.ranks()[r], " has ", texts[r],
        "; pass the same shape and dtype on all ranks");
  }
  const auto lines = replica_differences(
      {{"replicated shards differ", local, of}}, spec.mesh(),
      /*tolerance=*/0);
  TORCH_CHECK_VALUE(
      lines.empty(), "from_local(", mine, "), rank ",
      spec.mesh().world().rank(), ": ", base::join(lines, "; "),
      "; broadcast the data first, or use Shard or Partial");
}

}  // namespace tessera::detail
