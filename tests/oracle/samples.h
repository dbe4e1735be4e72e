// Sample calls of operators, written as text and filled with data.
//
// A text lists the arguments of a schema: "[a,b]; [b]; alpha=2". Letters are
// sizes that a SizeClass gives a value; arguments that are left out have their
// default. The words:
//
//   [a,b]      a tensor of the case's dtype, a distinct value per element
//   u p s z    before it: in (0, 1); positive; few small values; with zeros
//   o          before it: ascending along the last dim
//   m l        before it: matrices that are positive definite; lower triangular
//   i4 q4      before it: indices below 4; indices that do not repeat
//   b c f L    before it: bool; complex; float whatever the case; int64
//   h j4 t     before it: int8; int32 in 1..4; int64 with these very elements
//   e g        before it: small integers as 8-bit floats; f32 powers of two
//   {[a] [b]}  a list of tensors, `-` for None
//   (0,a)      a list of numbers
//   +          first of all: LibTorch crashes or gives no value where a size
//              is 0
//   ~          first of all: LibTorch's result in bfloat16 depends on how many
//              elements a call has
//   2*a+1      an integer; 0.5, true, mean: a number, a bool, a string
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <rules/rule_entry.h>

namespace tessera::oracle {

/// What sizes the letters of a text have.
enum class SizeClass : uint8_t {
  kEven,
  kUneven,
  kSmall,
  kSmaller,
  kEmpty,
  kEmptyLater
};
constexpr SizeClass kSizeClasses[] = {
    SizeClass::kEven,    SizeClass::kUneven, SizeClass::kSmall,
    SizeClass::kSmaller, SizeClass::kEmpty,  SizeClass::kEmptyLater};
const char* to_string(SizeClass sizes);

/// A call and what it gives on one device.
struct Sample {
  c10::OperatorHandle op;
  torch::jit::Stack arguments;
  torch::jit::Stack results;
  /// The arguments after the call, since some are written.
  torch::jit::Stack arguments_after;
  c10::ScalarType dtype;
  uint64_t seed;
  std::string text;
};

/// Returns a copy of arguments whose tensors share no memory with them.
torch::jit::Stack copy_of(const torch::jit::Stack& arguments);

/// Returns the arguments that a call writes, where it returns nothing: they
/// stand for its results.
torch::jit::Stack written_arguments(
    const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

/// Returns the schemas of all overloads of a name: "aten::add".
std::vector<const c10::FunctionSchema*> overloads_of(const std::string& name);

/// Makes the arguments that a text describes; throws where it does not fit the
/// schema.
torch::jit::Stack parse_arguments(
    const c10::FunctionSchema& schema, const std::string& text, SizeClass sizes,
    c10::ScalarType dtype, uint64_t seed);

/// Makes a sample; nothing where the operator refuses the arguments, and says
/// why in `refusal`.
std::optional<Sample> make_sample(
    const c10::OperatorHandle& op, const std::string& text, SizeClass sizes,
    c10::ScalarType dtype, uint64_t seed, std::string& refusal);

/// Returns the texts of an operator: those that are listed for it or for the
/// operator of which it is a variant, else those that its schema suggests.
std::vector<std::string> texts_of(
    const c10::FunctionSchema& schema, const detail::Rule& rule);

/// Returns why an operator has no case, or "": "needs a GPU".
std::string reason_for_no_case(const std::vector<std::string>& texts);

/// Returns the texts that are listed for a name, "aten::mm" or
/// "aten::sum.dim_IntList"; nullptr where none are.
const std::vector<std::string>* listed_texts(const std::string& name);

/// Returns the texts that a schema suggests: arguments by name and type.
std::vector<std::string> suggested_texts(
    const c10::FunctionSchema& schema, bool is_pointwise);

}  // namespace tessera::oracle
