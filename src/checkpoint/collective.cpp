#include <checkpoint/collective.h>

#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <comm/agreement.h>

namespace tessera::detail::inline checkpoint_layer {

std::vector<std::string> gather_texts(
    const Communicator& group, const std::string& mine) {
  const std::vector<int64_t> counts =
      gather_records<int64_t>(group, {static_cast<int64_t>(mine.size())});
  int64_t total = 0;
  for (const int64_t count : counts) {
    total += count;
  }
  const bool is_root = group.rank() == 0;
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor output = is_root ? at::empty({total}, bytes) : at::Tensor();
  const at::Tensor input = at::from_blob(
      const_cast<char*>(mine.data()), {static_cast<int64_t>(mine.size())},
      bytes);
  group.gather_v(output, input, counts, 0);
  std::vector<std::string> texts;
  if (is_root) {
    const char* next = static_cast<const char*>(output.const_data_ptr());
    for (const int64_t count : counts) {
      texts.emplace_back(next, static_cast<size_t>(count));
      next += count;
    }
  }
  return texts;
}

void require_equal_lines(
    const std::string& call, const Communicator& group, const std::string& what,
    const std::string& mine) {
  const std::optional<TextDifference> found = find_difference(group, mine);
  if (!found) {
    return;
  }
  std::istringstream one(found->text), other(found->other_text);
  std::string line, other_line;
  bool has_line = true, has_other = true;
  do {
    has_line = static_cast<bool>(std::getline(one, line));
    has_other = static_cast<bool>(std::getline(other, other_line));
  } while (has_line && has_other && line == other_line);
  TORCH_CHECK_VALUE(
      false, call, ": ", what, " differ between ranks: rank ", found->rank,
      " has ", has_line ? line : "nothing more", ", rank ", found->other_rank,
      " has ", has_other ? other_line : "nothing more",
      "; all ranks must pass the same");
}

}  // namespace tessera::detail::inline checkpoint_layer
