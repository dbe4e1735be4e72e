#include "gpt_data.h"

#include <torch/torch.h>

namespace tessera::cli {

void set_gpt_values(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& parameter = item.value();
    const at::Tensor place = at::arange(parameter.numel(), at::kDouble);
    at::Tensor waves = at::sin((place + 1) * (place + 100 * number++)) * 0.05;
    if (item.key().find("norm") != std::string::npos &&
        item.key().ends_with("weight")) {
      waves += 1;
    }
    parameter.copy_(waves.view(parameter.sizes()));
  }
}

GptBatch gpt_batch(
    const GptBatchSizes& sizes, int64_t number, int64_t parts, int64_t part) {
  const at::Tensor place =
      at::arange(sizes.batch * (sizes.length + 1), at::kLong) + 1000 * number;
  const at::Tensor text =
      ((place * place).floor_divide(7) + 3 * place).remainder(sizes.vocabulary);
  const int64_t rows = sizes.batch / parts;
  const at::Tensor mine =
      text.view({sizes.batch, sizes.length + 1}).narrow(0, part * rows, rows);
  return {
      mine.narrow(1, 0, sizes.length).contiguous(),
      mine.narrow(1, 1, sizes.length).contiguous()};
}

}  // namespace tessera::cli
