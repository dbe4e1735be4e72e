// Samples that a schema suggests, so that a new rule is tried at once.
#include <algorithm>
#include <map>

#include <oracle/samples.h>

namespace tessera::oracle {

namespace {

using Words = std::vector<std::string>;

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == c10::TypeKind::OptionalType
             ? type->castRaw<c10::OptionalType>()->getElementType()
             : type;
}

bool is_tensor(const c10::Argument& argument) {
  return without_optional(argument.real_type())->kind() ==
         c10::TypeKind::TensorType;
}

bool is_tensor_list(const c10::Argument& argument) {
  const auto type = without_optional(argument.real_type());
  return type->kind() == c10::TypeKind::ListType &&
         without_optional(type->castRaw<c10::ListType>()->getElementType())
                 ->kind() == c10::TypeKind::TensorType;
}

bool is_optional(const c10::Argument& argument) {
  return argument.real_type()->kind() == c10::TypeKind::OptionalType;
}

// Shapes of the first, second and third tensor of a call.
struct Shapes {
  const char* first;
  const char* second;
  const char* third;
};

std::vector<Shapes> shapes_of(bool is_pointwise, size_t tensors) {
  std::vector<Shapes> shapes = {
      {"[a,b]", "[a,b]", "[a,b]"},
      {"[a,b,c]", "[a,b,c]", "[a,b,c]"},
      {"[a]", "[a]", "[a]"},
      {"[]", "[]", "[]"}};
  if (!is_pointwise) {
    shapes.push_back({"[d,a,b,c]", "[d,a,b,c]", "[d,a,b,c]"});
  } else if (tensors > 1) {
    for (const Shapes& more :
         {Shapes{"[a,b]", "[b]", "[a,1]"},
          {"[a,b]", "[]", "[a,b]"},
          {"[a,1]", "[1,b]", "[a,b]"},
          {"[b]", "[a,b]", "[1]"},
          {"[a,b,c]", "[b,1]", "[]"},
          {"[a,b]", "[a,1]", "[b]"},
          {"[]", "[a]", "[a]"},
          {"[1,b]", "[a,1,1]", "[b]"}}) {
      shapes.push_back(more);
    }
  }
  return shapes;
}

// What stands before the shape of a tensor argument.
Words kinds_of(const c10::Argument& argument, bool is_first) {
  const std::string& name = argument.name();
  if (name == "condition" || name == "mask") {
    return {"b"};
  }
  return is_first ? Words{"", "u", "z"} : Words{"", "p", "z"};
}

Words words_by_name(const std::string& name, bool is_list) {
  static const std::map<std::string, Words> kWords = {
      {"dim", {"0", "-1", "1"}},
      {"dims", {"0", "-1", "1"}},
      {"axis", {"0", "-1"}},
      {"keepdim", {"false", "true"}},
      {"unbiased", {"true", "false"}},
      {"descending", {"false", "true"}},
      {"largest", {"true", "false"}},
      {"approximate", {"none", "tanh"}},
      {"correction", {"1", "0"}},
      {"p", {"2", "1", "0", "inf", "3"}},
      {"ord", {"2", "1", "0", "inf", "-inf"}},
      {"min", {"-2", "-"}},
      {"max", {"3"}},
      {"threshold", {"1", "0"}},
      {"value", {"0", "2"}},
      {"alpha", {"1", "2"}},
      {"lambd", {"0.5", "2"}},
      {"eps", {"0.0001"}},
      {"weight", {"0.5"}},
      {"k", {"2", "1"}},
      {"diagonal", {"0", "1", "-1"}},
      {"rounding_mode", {"-", "floor", "trunc"}},
      {"upper", {"false", "true"}},
      {"log_target", {"false", "true"}},
      {"reduction", {"0", "2", "1"}}};
  const auto found = kWords.find(name);
  if (found == kWords.end()) {
    return {};
  }
  Words words = found->second;
  if (is_list && name == "weight") {
    return {"(0.5,2,1)"};
  }
  if (is_list && (name == "dim" || name == "dims")) {
    words.emplace_back("(0,1)");
    words.emplace_back("()");
    words.emplace_back("(0,-1)");
  }
  return words;
}

// The words of an argument that is no tensor; none where its default will do.
Words words_of(const c10::Argument& argument) {
  const auto type = without_optional(argument.real_type());
  Words words =
      words_by_name(argument.name(), type->kind() == c10::TypeKind::ListType);
  const bool wants_default =
      argument.default_value().has_value() || is_optional(argument);
  if (!words.empty() || wants_default) {
    if (argument.name() == "dim" && is_optional(argument)) {
      words.emplace_back("-");
    }
    return words;
  }
  const c10::TypeKind kind = type->kind();
  return kind == c10::TypeKind::BoolType     ? Words{"false", "true"}
         : kind == c10::TypeKind::FloatType  ? Words{"0.5"}
         : kind == c10::TypeKind::NumberType ? Words{"2", "-3"}
         : kind == c10::TypeKind::ListType
             ? Words{"(2,3,4)", "(0)", "()", "(1,2)"}
             : Words{"1", "2", "0"};
}

bool takes_kind(const c10::FunctionSchema& schema) {
  return std::any_of(
      schema.arguments().begin(), schema.arguments().end(), is_tensor);
}

// One text: choice `n` among the words of every argument, counted like digits.
std::string text_of(
    const c10::FunctionSchema& schema, const Shapes& shapes, size_t n) {
  std::string text;
  size_t tensors = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.is_out()) {
      continue;
    }
    std::string word;
    const auto choose = [&](const Words& words) {
      const std::string& chosen = words[n % words.size()];
      n /= words.size();
      return chosen;
    };
    if (is_tensor(argument)) {
      const char* shape = tensors == 0   ? shapes.first
                          : tensors == 1 ? shapes.second
                                         : shapes.third;
      word = choose(kinds_of(argument, tensors == 0));
      word.append(shape);
      if (is_optional(argument)) {
        word = choose({word, "-"});
      }
      ++tensors;
    } else if (is_tensor_list(argument)) {
      const char* shape = tensors == 0 ? shapes.first : shapes.second;
      word.append("{").append(shape).append(" u").append(shape).append(" [b]}");
      ++tensors;
    } else if (const Words words = words_of(argument); !words.empty()) {
      word = choose(words);
    } else {
      continue;
    }
    text.append(text.empty() ? "" : "; ");
    text.append(argument.name()).append("=").append(word);
  }
  return text;
}

}  // namespace

std::vector<std::string> suggested_texts(
    const c10::FunctionSchema& schema, bool is_pointwise) {
  size_t tensors = 0;
  size_t combinations = 1;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.is_out()) {
      continue;
    }
    if (is_tensor(argument) || is_tensor_list(argument)) {
      combinations *= kinds_of(argument, tensors == 0).size();
      ++tensors;
    } else {
      combinations *= std::max<size_t>(words_of(argument).size(), 1);
    }
  }
  std::vector<std::string> texts;
  const size_t most = takes_kind(schema) ? 18 : 6;
  for (const Shapes& shapes : shapes_of(is_pointwise, tensors)) {
    for (size_t n = 0; n < std::min(combinations, most); ++n) {
      // A stride that meets all words of all arguments.
      const size_t step = combinations > most ? combinations / most * 2 + 1 : 1;
      texts.push_back(text_of(schema, shapes, n * step % combinations));
    }
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

std::string reason_for_no_case(const std::vector<std::string>& texts) {
  const bool given = texts.size() == 1 && texts[0].rfind("! ", 0) == 0;
  return given ? texts[0].substr(2) : "";
}

std::vector<std::string> texts_of(
    const c10::FunctionSchema& schema, const detail::Rule& rule) {
  // "squeeze_copy.dim_out" is a variant of "squeeze.dim".
  std::vector<std::string> overloads{schema.overload_name()};
  if (const size_t out = overloads[0].rfind("_out"); out != std::string::npos) {
    overloads.push_back(overloads[0].substr(0, out));
  }
  overloads.emplace_back("");
  std::vector<std::string> bases{schema.name()};
  for (const std::string end : {"_", "_copy"}) {
    const std::string& base = schema.name();
    if (base.size() > end.size() &&
        base.compare(base.size() - end.size(), end.size(), end) == 0) {
      bases.push_back(base.substr(0, base.size() - end.size()));
    }
  }
  for (const std::string& base : bases) {
    for (const std::string& overload : overloads) {
      if (const auto* texts =
              listed_texts(overload.empty() ? base : base + "." + overload)) {
        return *texts;
      }
    }
  }
  return suggested_texts(schema, rule.is_pointwise);
}

}  // namespace tessera::oracle
