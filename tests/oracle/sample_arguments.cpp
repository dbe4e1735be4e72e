// The words of sample texts, made into arguments.
#include <cctype>
#include <cmath>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <oracle/samples.h>
#include <oracle/simulated_ranks.h>

namespace tessera::oracle {

namespace {

// By letter a, b, c, d, then again.
int64_t size_of(char letter, SizeClass sizes) {
  static constexpr int64_t kSizes[][4] = {{4, 6, 2, 4}, {5, 7, 3, 5},
                                          {1, 2, 3, 1}, {2, 1, 1, 3},
                                          {0, 3, 2, 4}, {3, 0, 2, 4}};
  return kSizes[static_cast<size_t>(sizes)][(letter - 'a') % 4];
}

// "2*a+1": sums of products.
class Expression {
 public:
  Expression(std::string_view text, SizeClass sizes)
      : text_(text), sizes_(sizes) {}

  int64_t take() {
    int64_t value = term();
    while (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) {
      const bool plus = text_[at_++] == '+';
      const int64_t next = term();
      value += plus ? next : -next;
    }
    TORCH_CHECK_VALUE(
        at_ == text_.size(), "sample: not an integer: '", text_, "'");
    return value;
  }

 private:
  int64_t term() {
    int64_t value = factor();
    while (at_ < text_.size() && (text_[at_] == '*' || text_[at_] == '/')) {
      const bool times = text_[at_++] == '*';
      const int64_t next = factor();
      value = times ? value * next : value / std::max<int64_t>(next, 1);
    }
    return value;
  }
  int64_t factor() {
    TORCH_CHECK_VALUE(
        at_ < text_.size(), "sample: an integer ends early: '", text_, "'");
    if (text_[at_] == '-') {
      ++at_;
      return -factor();
    }
    if (std::islower(text_[at_]) != 0) {
      return size_of(text_[at_++], sizes_);
    }
    int64_t value = 0;
    TORCH_CHECK_VALUE(
        std::isdigit(text_[at_]) != 0, "sample: not an integer: '", text_, "'");
    while (at_ < text_.size() && std::isdigit(text_[at_]) != 0) {
      value = value * 10 + (text_[at_++] - '0');
    }
    return value;
  }

  std::string_view text_;
  SizeClass sizes_;
  size_t at_ = 0;
};

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  const size_t end = text.find_last_not_of(' ');
  return begin == std::string_view::npos
             ? ""
             : std::string(text.substr(begin, end - begin + 1));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    depth += c == '(' || c == '[' || c == '{';
    depth -= c == ')' || c == ']' || c == '}';
    if (c == separator && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  part = trimmed(part);
  if (!part.empty() || !parts.empty()) {
    parts.push_back(part);
  }
  return parts;
}

// Fills tensors: the words before '['.
class Filler {
 public:
  Filler(SizeClass sizes, c10::ScalarType dtype, uint64_t seed)
      : sizes_(sizes), dtype_(dtype), seed_(seed) {}

  at::Tensor tensor(const std::string& word) {
    const size_t open = word.find('[');
    TORCH_CHECK_VALUE(
        open != std::string::npos && word.back() == ']',
        "sample: not a tensor: '", word, "'");
    const std::vector<int64_t> shape =
        integers(word.substr(open + 1, word.size() - open - 2));
    seed_ += 7919;
    const char kind = open == 0 ? ' ' : word[0];
    const auto limit = [&] {
      return Expression(word.substr(1, open - 1), sizes_).take();
    };
    switch (kind) {
      case 'i':
        return indices(shape, limit());
      case 'q':
        return permutation(shape, limit());
      case 'b':
        return random_integers(shape, 0, 1, seed_).to(at::kBool);
      case 'c':
        return at::complex(
            distinct(shape).to(at::kDouble),
            random_integers(shape, -9, 9, seed_).to(at::kDouble));
      case 'f':
        return distinct(shape).to(
            c10::isFloatingType(dtype_) ? dtype_ : at::kFloat);
      case 'L':
        return distinct(shape);
      case 'h':
        return distinct(shape).to(at::kChar);
      case 'e':
        return random_integers(shape, -8, 8, seed_).to(at::kFloat8_e4m3fn);
      case 'g':
        return random_integers(shape, 0, 2, seed_).to(at::kFloat).exp2();
      case 'j':
        return random_integers(shape, 1, limit(), seed_).to(at::kInt);
      case 't':
        return at::tensor(shape, at::kLong);  // the numbers themselves
      default:
        return values(kind, shape).to(dtype_);
    }
  }

  std::vector<int64_t> integers(const std::string& text) const {
    std::vector<int64_t> numbers;
    for (const std::string& part : split(text, ',')) {
      numbers.push_back(Expression(part, sizes_).take());
    }
    return numbers;
  }

 private:
  at::Tensor indices(const std::vector<int64_t>& shape, int64_t limit) const {
    TORCH_CHECK_VALUE(
        limit > 0 || c10::multiply_integers(shape) == 0,
        "sample: no index is below ", limit);
    return random_integers(shape, 0, std::max<int64_t>(limit - 1, 0), seed_);
  }

  at::Tensor shuffled(int64_t count) const {
    return random_integers({count}, 0, 1 << 30, seed_).argsort();
  }

  at::Tensor permutation(
      const std::vector<int64_t>& shape, int64_t limit) const {
    const int64_t count = c10::multiply_integers(shape);
    TORCH_CHECK_VALUE(
        count <= limit, "sample: ", count, " different indices below ", limit);
    return shuffled(limit).narrow(0, 0, count).reshape(shape).clone();
  }

  // -n/2 .. n/2 without 0, in a random order.
  at::Tensor distinct(const std::vector<int64_t>& shape) const {
    const int64_t count = c10::multiply_integers(shape);
    at::Tensor numbers = shuffled(count) - count / 2;
    return at::where(numbers >= 0, numbers + 1, numbers).reshape(shape);
  }

  at::Tensor values(char kind, const std::vector<int64_t>& shape) const {
    if (dtype_ == at::kBool) {
      return random_integers(shape, 0, 1, seed_);
    }
    const int64_t count = c10::multiply_integers(shape);
    switch (kind) {
      case 'u':
        return (shuffled(count) + 1).to(at::kDouble).reshape(shape) /
               (count < 60    ? 64
                : count < 120 ? 128
                              : 1024);
      case 'p':
        return (shuffled(count) + 1).reshape(shape);
      case 's':
        return random_integers(shape, 0, 1, seed_) * 3 - 1;  // -1 or 2
      case 'z':
        return random_integers(shape, -1, 1, seed_);
      case 'o':
        return std::get<0>(distinct(shape).sort(-1));
      case 'm':
        return positive_definite(shape);
      case 'l':
        return at::tril(small(shape)) + 4 * at::eye(shape.back(), at::kDouble);
      default:
        return distinct(shape);
    }
  }
  at::Tensor small(const std::vector<int64_t>& shape) const {
    return random_integers(shape, -2, 2, seed_).to(at::kDouble);
  }
  at::Tensor positive_definite(const std::vector<int64_t>& shape) const {
    const at::Tensor x = small(shape);
    return at::matmul(x, x.transpose(-2, -1)) +
           3 * at::eye(shape.back(), at::kDouble);
  }

  SizeClass sizes_;
  c10::ScalarType dtype_;
  uint64_t seed_;
};

bool is_number(const std::string& word) {
  return !word.empty() && (std::isdigit(word[0]) != 0 || word[0] == '-' ||
                           word == "inf" || word == "nan");
}

c10::Scalar scalar_of(const std::string& word) {
  if (word == "true" || word == "false") {
    return word == "true";
  }
  TORCH_CHECK_VALUE(is_number(word), "sample: not a number: '", word, "'");
  if (word.find_first_of(".en") == std::string::npos) {
    return static_cast<int64_t>(std::stoll(word));
  }
  return std::stod(word);
}

c10::ScalarType dtype_of(const std::string& word, c10::ScalarType same) {
  return word == "f64"    ? at::kDouble
         : word == "f32"  ? at::kFloat
         : word == "bf16" ? at::kBFloat16
         : word == "i64"  ? at::kLong
         : word == "i32"  ? at::kInt
         : word == "bool" ? at::kBool
                          : same;
}

class Parser {
 public:
  Parser(SizeClass sizes, c10::ScalarType dtype, uint64_t seed)
      : filler_(sizes, dtype, seed), sizes_(sizes), dtype_(dtype) {}

  c10::IValue value(const c10::Type& type, const std::string& word) {
    using Kind = c10::TypeKind;
    const Kind kind = type.kind();
    if (kind == Kind::OptionalType) {
      const auto inner = type.castRaw<c10::OptionalType>()->getElementType();
      return word == "-" ? c10::IValue() : value(*inner, word);
    }
    if (kind == Kind::TensorType) {
      return word == "-" ? at::Tensor() : filler_.tensor(word);
    }
    if (kind == Kind::ListType) {
      return list(*type.castRaw<c10::ListType>()->getElementType(), word);
    }
    if (kind == Kind::BoolType) {
      return word == "true";
    }
    if (kind == Kind::FloatType) {
      return scalar_of(word).toDouble();
    }
    if (kind == Kind::NumberType) {
      return scalar_of(word);
    }
    return kind == Kind::StringType ? c10::IValue(word) : integer(word);
  }

 private:
  c10::IValue integer(const std::string& word) {
    if (word == "same" || word == "f64" || word == "f32" || word == "bf16" ||
        word == "i64" || word == "i32" || word == "bool") {
      return static_cast<int64_t>(dtype_of(word, dtype_));
    }
    return Expression(word, sizes_).take();
  }

  c10::IValue list(const c10::Type& element, const std::string& word) {
    using Kind = c10::TypeKind;
    const Kind kind = element.kind();
    if (kind == Kind::TensorType) {
      c10::List<at::Tensor> tensors;
      for (const std::string& one : split(inside(word), ' ')) {
        tensors.push_back(filler_.tensor(one));
      }
      return tensors;
    }
    if (kind == Kind::OptionalType) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::string& one : split(inside(word), ' ')) {
        tensors.push_back(
            one == "-" ? std::nullopt
                       : std::optional<at::Tensor>(filler_.tensor(one)));
      }
      return tensors;
    }
    if (kind == Kind::BoolType) {
      c10::List<bool> values;
      for (const std::string& one : split(inside(word), ',')) {
        values.push_back(one == "true");
      }
      return values;
    }
    if (kind == Kind::FloatType) {
      c10::List<double> values;
      for (const std::string& one : split(inside(word), ',')) {
        values.push_back(scalar_of(one).toDouble());
      }
      return values;
    }
    if (kind == Kind::NumberType) {
      c10::impl::GenericList values(c10::NumberType::get());
      for (const std::string& one : split(inside(word), ',')) {
        values.push_back(scalar_of(one));
      }
      return values;
    }
    return filler_.integers(word[0] == '(' ? inside(word) : word);
  }

  static std::string inside(const std::string& word) {
    TORCH_CHECK_VALUE(word.size() >= 2, "sample: not a list: '", word, "'");
    return word.substr(1, word.size() - 2);
  }

  Filler filler_;
  SizeClass sizes_;
  c10::ScalarType dtype_;
};

}  // namespace

torch::jit::Stack parse_arguments(
    const c10::FunctionSchema& schema, const std::string& text, SizeClass sizes,
    c10::ScalarType dtype, uint64_t seed) {
  Parser parser(sizes, dtype, seed);
  const auto& arguments = schema.arguments();
  std::vector<std::optional<std::string>> words(arguments.size());
  size_t next = 0;
  const size_t begin =
      text.rfind("+ ", 0) == 0 || text.rfind("~ ", 0) == 0 ? 2 : 0;
  for (const std::string& part : split(text.substr(begin), ';')) {
    const size_t equal = part.find('=');
    if (equal == std::string::npos) {
      TORCH_CHECK_VALUE(
          next < words.size(), "sample: too many arguments for ", schema);
      words[next++] = part;
      continue;
    }
    const auto number = schema.argumentIndexWithName(part.substr(0, equal));
    TORCH_CHECK_VALUE(
        number, "sample: no argument '", part.substr(0, equal), "' in ",
        schema);
    words[static_cast<size_t>(*number)] = part.substr(equal + 1);
  }
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = arguments[i];
    if (argument.is_out()) {
      stack.emplace_back();
    } else if (words[i]) {
      stack.push_back(parser.value(*argument.real_type(), *words[i]));
    } else if (argument.default_value()) {
      stack.push_back(*argument.default_value());
    } else {
      TORCH_CHECK_VALUE(
          argument.type()->kind() == c10::TypeKind::OptionalType,
          "sample: the argument '", argument.name(), "' needs a value in ",
          schema);
      stack.emplace_back();
    }
  }
  return stack;
}

}  // namespace tessera::oracle
