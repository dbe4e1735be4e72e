#include <tensor/checks/agreement.h>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <comm/agreement.h>
#include <tensor/checks/replicas.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// What all ranks must mean alike.
std::string meaning(const at::Tensor& local, const DTensorSpec& spec) {
  return to_string(spec) + ", strides " + shape_to_string(spec.strides()) +
         (local.requires_grad() ? ", requires grad" : "");
}

}  // namespace

void check_agreement(const at::Tensor& local, const SpecPtr& of) {
  const DTensorSpec& spec = *of;
  const auto different =
      find_difference(spec.mesh().whole(), meaning(local, spec));
  TORCH_CHECK_VALUE(
      !different, "from_local on ", to_string(spec.mesh()), ", rank ",
      spec.mesh().world().rank(), ": the ranks mean different tensors; rank ",
      different->rank, " has ", different->text, ", rank ",
      different->other_rank, " has ", different->other_text,
      "; pass the same shape, stride, dtype and requires_grad on all ranks");
  const auto lines = replica_differences(
      {{"replicated shards differ", local.detach(), of}}, spec.mesh(),
      /*tolerance=*/0);
  TORCH_CHECK_VALUE(
      lines.empty(), "from_local(", to_string(spec), "), rank ",
      spec.mesh().world().rank(), ": ", base::join(lines, "; "),
      "; broadcast the data first, or use Shard or Partial");
}

}  // namespace tessera::detail::inline tensor_layer
