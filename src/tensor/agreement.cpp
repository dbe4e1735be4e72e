#include <tensor/agreement.h>

#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

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

// Returns the bytes of the shard that the first coordinate of every replicated
// mesh dim holds.
at::Tensor first_replica(const at::Tensor& local, const DTensorSpec& spec) {
  at::Tensor first = local.clone(at::MemoryFormat::Contiguous);
  for (int64_t m = 0; m < spec.mesh().ndim(); ++m) {
    if (spec.placements()[static_cast<size_t>(m)].is_replicate()) {
      spec.mesh().communicator(m).broadcast(first, 0);
    }
  }
  return first;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu().contiguous();
  const at::Tensor y = b.cpu().contiguous();
  return x.nbytes() == y.nbytes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

}  // namespace

void check_agreement(const at::Tensor& local, const DTensorSpec& spec) {
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
  const bool same = same_bytes(local, first_replica(local, spec));
  const auto verdicts = gather_text(same ? "same" : "different", all);
  for (size_t r = 0; r < verdicts.size(); ++r) {
    TORCH_CHECK_VALUE(
        verdicts[r] == "same", "from_local(", mine, "), rank ",
        spec.mesh().world().rank(), ": replicated shards differ; rank ",
        all.ranks()[r],
        " differs from the first of its replicas; broadcast the data first, or "
        "use Shard or Partial");
  }
}

}  // namespace tessera::detail
