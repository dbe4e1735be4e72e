#include <tensor/deferred/diagonals.h>

#include <cstdint>
#include <vector>

namespace tessera::detail::inline tensor_layer {

namespace {

// The diagonal runs through a box as many columns further to the right as the
// box begins further down than to the right.
int64_t diagonal_in(const Box& mine, int64_t diagonal) {
  return diagonal + mine.offsets[mine.offsets.size() - 2] - mine.offsets.back();
}

}  // namespace

bool is_triangle(const RecordedCall& call) {
  const std::string& name = call.op->operator_name().name;
  return (name == "aten::triu" || name == "aten::tril") &&
         call.tensors[0].version != nullptr;
}

at::Tensor triangle_of_box(
    const RecordedCall& call, const at::Tensor& values, const Box& mine) {
  const int64_t diagonal = diagonal_in(mine, call.arguments[1].toInt());
  return call.op->operator_name().name == "aten::triu" ? values.triu(diagonal)
                                                       : values.tril(diagonal);
}

bool is_eye(const RecordedCall& call) {
  if (!call.op || call.op->operator_name().name != "aten::eye") {
    return false;
  }
  if (call.tensors.empty()) {
    return true;
  }
  const int64_t rows = call.arguments[0].toInt();
  const int64_t columns =
      call.arguments[1].isInt() ? call.arguments[1].toInt() : rows;
  return call.tensors[0].version != nullptr &&
         call.tensors[0].geometry->sizes == std::vector<int64_t>{rows, columns};
}

void write_eye(const at::Tensor& values, const Box& mine) {
  values.zero_();
  values.diagonal(diagonal_in(mine, 0)).fill_(1);
}

}  // namespace tessera::detail::inline tensor_layer
