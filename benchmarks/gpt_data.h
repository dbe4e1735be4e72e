// Weights and batches of the training benchmarks, which benchmarks/gpt_model.py
// makes alike.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace tessera::cli {

/// Gives parameters their values.
void set_gpt_values(torch::nn::Module& model);

struct GptBatch {
  at::Tensor inputs;  // [rows, length]
  at::Tensor targets;
};

struct GptBatchSizes {
  int64_t batch;
  int64_t length;
  int64_t vocabulary;
};

/// Returns the rows of a batch that one of so many parts has.
GptBatch gpt_batch(
    const GptBatchSizes& sizes, int64_t number, int64_t parts, int64_t part);

}  // namespace tessera::cli
