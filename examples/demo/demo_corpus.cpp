#include "demo_corpus.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include "demo_text.h"
#include "demo_vocabulary.h"

namespace tessera::cli {

Corpus::Corpus(std::string_view text) : characters_(characters_of(text)) {
  codes_ = at::tensor(encode(text), at::kLong);
}

Corpus Corpus::shipped() {
  return Corpus(demo_text);
}

std::vector<int64_t> Corpus::encode(std::string_view text) const {
  std::vector<int64_t> codes;
  for (const char c : text) {
    const auto found =
        std::lower_bound(characters_.begin(), characters_.end(), c);
    TORCH_CHECK_VALUE(
        found != characters_.end() && *found == c,
        "demo: the text has no character '", c, "'");
    codes.push_back(found - characters_.begin());
  }
  return codes;
}

std::string Corpus::decode(const std::vector<int64_t>& codes) const {
  std::string text;
  for (const int64_t code : codes) {
    text += characters_.at(static_cast<size_t>(code));
  }
  return text;
}

Batch Corpus::batch(int step, int64_t windows, int64_t length) const {
  const at::Generator random =
      at::detail::createCPUGenerator(static_cast<uint64_t>(step));
  const at::Tensor begins =
      at::randint(size() - length, {windows, 1}, random, at::kLong);
  const at::Tensor places = begins.add(at::arange(length, at::kLong));
  return {codes_.take(places), codes_.take(places.add(1))};
}

}  // namespace tessera::cli
