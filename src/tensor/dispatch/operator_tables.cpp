// Who fills the registry of operators.
#include <string>

#include <tensor/call/op_registry.h>
#include <tensor/decompositions/table.h>
#include <tensor/random/ops/table.h>
#include <tensor/run/custom_kernels.h>
#include <tensor/run/local_kernels.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/uses/cross_entropy.h>
#include <tensor/uses/parameter_use.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Kernels of batch norms write their running statistics, and say so nowhere.
void add_unsaid_writes(OpRegistry& ops) {
  for (const std::string name :
       {"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm",
        "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"}) {
    for (const char* overload : {"", ".out"}) {
      ops.at("aten::" + name + overload).written = {
          "running_mean", "running_var"};
    }
  }
}

void add_reads_of_values(OpRegistry& ops) {
  ops.at("aten::tensor_split.tensor_indices_or_sections").read = {
      "tensor_indices_or_sections"};
  ops.at("aten::ctc_loss.Tensor").read = {"input_lengths", "target_lengths"};
  for (const char* name :
       {"aten::_pad_packed_sequence", "aten::lstm.data", "aten::gru.data",
        "aten::rnn_tanh.data", "aten::rnn_relu.data",
        "aten::quantized_lstm.data", "aten::quantized_gru.data"}) {
    ops.at(name).read = {"batch_sizes"};
  }
}

}  // namespace

void fill(OpRegistry& ops) {
  add_unsaid_writes(ops);
  add_reads_of_values(ops);
  for (const char* name :
       {"aten::expand_as", "aten::view_as", "aten::reshape_as",
        "aten::type_as"}) {
    ops.at(name).reads_metadata_only = true;
  }
  add_local_kernels(ops);
  add_custom_kernels(ops);
  add_meta_results(ops);
  add_decompositions(ops);
  add_random_operators(ops);
  add_parameter_uses(ops);
  add_cross_entropy(ops);
}

}  // namespace tessera::detail::inline tensor_layer
