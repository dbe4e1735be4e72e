#include <tensor/fast/typed_kernel.h>

#include <array>
#include <functional>
#include <string>

#include <tensor/state/dispatch_keys.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using at::Scalar;
using at::ScalarType;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

template <class... Signature>
struct List {};

// The signatures of the operators that models call most; an operator of another
// one is boxed.
using Signatures = List<
    // relu, t, detach
    Tensor(const Tensor&),
    // relu_
    Tensor&(Tensor&),
    // mm, mul, tanh_backward
    Tensor(const Tensor&, const Tensor&),
    // add, sub, threshold_backward
    Tensor(const Tensor&, const Tensor&, const Scalar&),
    // mul_
    Tensor&(Tensor&, const Tensor&),
    // add_
    Tensor&(Tensor&, const Tensor&, const Scalar&),
    // mul by a number, pow
    Tensor(const Tensor&, const Scalar&), Tensor&(Tensor&, const Scalar&),
    // add a number
    Tensor(const Tensor&, const Scalar&, const Scalar&),
    Tensor&(Tensor&, const Scalar&, const Scalar&),
    // where
    Tensor(const Tensor&, const Tensor&, const Tensor&),
    // addcmul, lerp
    Tensor(const Tensor&, const Tensor&, const Tensor&, const Scalar&),
    Tensor&(Tensor&, const Tensor&, const Tensor&, const Scalar&),
    // addmm, baddbmm
    Tensor(
        const Tensor&, const Tensor&, const Tensor&, const Scalar&,
        const Scalar&),
    // transpose
    Tensor(const Tensor&, int64_t, int64_t),
    // unsqueeze, squeeze
    Tensor(const Tensor&, int64_t),
    // permute
    Tensor(const Tensor&, at::IntArrayRef),
    // view
    Tensor(const Tensor&, c10::SymIntArrayRef),
    // expand
    Tensor(const Tensor&, c10::SymIntArrayRef, bool),
    // select
    Tensor(const Tensor&, int64_t, c10::SymInt),
    // slice
    Tensor(
        const Tensor&, int64_t, std::optional<c10::SymInt>,
        std::optional<c10::SymInt>, c10::SymInt),
    // split
    std::vector<Tensor>(const Tensor&, c10::SymInt, int64_t),
    // _softmax and its backward
    Tensor(const Tensor&, int64_t, bool),
    Tensor(const Tensor&, const Tensor&, int64_t, ScalarType),
    // softmax
    Tensor(const Tensor&, int64_t, std::optional<ScalarType>),
    // sum, mean
    Tensor(const Tensor&, std::optional<ScalarType>),
    Tensor(
        const Tensor&, at::OptionalIntArrayRef, bool,
        std::optional<ScalarType>),
    // gelu and its backward, div with a rounding mode
    Tensor(const Tensor&, c10::string_view),
    Tensor(const Tensor&, const Tensor&, c10::string_view),
    // cat, stack
    Tensor(const at::ITensorListRef&, int64_t), Tensor(at::TensorList, int64_t),
    // layer_norm
    Triple(
        const Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
        const OptionalTensor&, double),
    Triple(
        const Tensor&, const Tensor&, c10::SymIntArrayRef, const Tensor&,
        const Tensor&, const OptionalTensor&, const OptionalTensor&,
        std::array<bool, 3>),
    Tensor(
        const Tensor&, c10::SymIntArrayRef, const OptionalTensor&,
        const OptionalTensor&, double, bool),
    // linear
    Tensor(const Tensor&, const Tensor&, const OptionalTensor&)>;

// What a schema calls a C++ type.
template <class T>
std::string text_of_type() {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<T, Tensor&>) {
    return "Tensor!";
  } else if constexpr (std::is_same_v<U, Tensor>) {
    return "Tensor";
  } else if constexpr (std::is_same_v<U, OptionalTensor>) {
    return "Tensor?";
  } else if constexpr (
      std::is_same_v<U, at::TensorList> ||
      std::is_same_v<U, at::ITensorListRef> ||
      std::is_same_v<U, std::vector<Tensor>>) {
    return "Tensor[]";
  } else if constexpr (std::is_same_v<U, Scalar>) {
    return "Scalar";
  } else if constexpr (std::is_same_v<U, int64_t>) {
    return "int";
  } else if constexpr (std::is_same_v<U, c10::SymInt>) {
    return "SymInt";
  } else if constexpr (std::is_same_v<U, std::optional<c10::SymInt>>) {
    return "SymInt?";
  } else if constexpr (std::is_same_v<U, double>) {
    return "float";
  } else if constexpr (std::is_same_v<U, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<U, std::array<bool, 3>>) {
    return "bool[3]";
  } else if constexpr (std::is_same_v<U, at::IntArrayRef>) {
    return "int[]";
  } else if constexpr (std::is_same_v<U, at::OptionalIntArrayRef>) {
    return "int[]?";
  } else if constexpr (std::is_same_v<U, c10::SymIntArrayRef>) {
    return "SymInt[]";
  } else if constexpr (std::is_same_v<U, c10::string_view>) {
    return "str";
  } else if constexpr (std::is_same_v<U, ScalarType>) {
    return "ScalarType";
  } else {
    static_assert(std::is_same_v<U, std::optional<ScalarType>>);
    return "ScalarType?";
  }
}

template <class R, class... A>
std::string text_of_result(std::type_identity<R(A...)>) {
  if constexpr (std::is_same_v<R, Triple>) {
    return "Tensor, Tensor, Tensor";
  } else {
    return text_of_type<R>();
  }
}
template <class R, class... A>
std::string text_of(std::type_identity<R(A...)> signature) {
  std::string text;
  ((text += text_of_type<A>() + ", "), ...);
  return text + "-> " + text_of_result(signature);
}

std::string text_of_type(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return "Tensor";
    case c10::TypeKind::NumberType:
      return "Scalar";
    case c10::TypeKind::IntType:
      return "int";
    case c10::TypeKind::SymIntType:
      return "SymInt";
    case c10::TypeKind::FloatType:
      return "float";
    case c10::TypeKind::BoolType:
      return "bool";
    case c10::TypeKind::StringType:
      return "str";
    case c10::TypeKind::ScalarTypeType:
      return "ScalarType";
    case c10::TypeKind::OptionalType:
      return text_of_type(*type.containedType(0)) + "?";
    case c10::TypeKind::ListType:
      return text_of_type(*type.containedType(0)) + "[]";
    default:
      return "other";
  }
}

std::string text_of(const c10::Argument& argument) {
  const auto* alias = argument.alias_info();
  std::string text = text_of_type(*argument.real_type());
  if (text == "Tensor" && alias != nullptr && alias->isWrite()) {
    text += "!";
  }
  return text == "bool[]" && argument.N()
             ? "bool[" + std::to_string(*argument.N()) + "]"
             : text;
}

std::string text_of(const c10::FunctionSchema& schema) {
  std::string text;
  for (const c10::Argument& argument : schema.arguments()) {
    text += text_of(argument) + ", ";
  }
  text += "-> ";
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    text += (i == 0 ? "" : ", ") + text_of(schema.returns()[i]);
  }
  return text;
}

// Only LibTorch's own operators never change. _reshape_alias takes strides,
// which every shard finds for itself.
bool may_be_typed(const c10::FunctionSchema& schema) {
  return schema.name().rfind("aten::", 0) == 0 &&
         !schema.argumentIndexWithName("stride");
}

template <template <class> class Kernel, class... S>
std::optional<c10::KernelFunction> make(
    const c10::OperatorHandle& op, const c10::BoxedKernel& boxed, List<S...>) {
  std::optional<c10::KernelFunction> kernel;
  if (!may_be_typed(op.schema())) {
    return kernel;
  }
  const std::string wanted = text_of(op.schema());
  const auto try_one = [&]<class One>(std::type_identity<One> signature) {
    static const auto* text = new std::string(text_of(signature));
    if (kernel || *text != wanted) {
      return;
    }
    try {
      kernel = c10::KernelFunction::makeFromUnboxedFunctor<
          /*AllowLegacyTypes=*/false, Kernel<One>>(
          std::make_unique<Kernel<One>>(op, boxed));
    } catch (const c10::Error&) {
      // One text may stand for several C++ types.
    }
  };
  (try_one(std::type_identity<S>{}), ...);
  return kernel;
}

}  // namespace

std::optional<c10::KernelFunction> typed_kernel(
    const c10::OperatorHandle& op, const c10::BoxedKernel& boxed) {
  return make<TypedKernel>(op, boxed, Signatures{});
}

std::optional<c10::KernelFunction> typed_composite(
    const c10::OperatorHandle& op, const c10::BoxedKernel& boxed) {
  using c10::DispatchKey;
  // Another kernel would stand in the entry of the unused key.
  for (const DispatchKey key :
       {kUnusedKey, DispatchKey::CompositeExplicitAutograd,
        DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) {
      return std::nullopt;
    }
  }
  return make<TypedComposite>(op, boxed, Signatures{});
}

}  // namespace tessera::detail::inline tensor_layer
