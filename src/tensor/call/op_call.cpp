#include <tensor/call/op_call.h>

#include <sstream>

#include <c10/util/Exception.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/plain_is_replicated.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

void print_tensor(std::ostream& out, const at::Tensor& t) {
  if (!t.defined()) {
    out << "undefined";
  } else if (is_sharded(t)) {
    out << dtype_name(t.scalar_type()) << shape_to_string(t.sizes().vec())
        << ' ' << to_string(spec_of(t).placements());
  } else {
    out << dtype_name(t.scalar_type()) << shape_to_string(t.sizes().vec())
        << " plain";
  }
}

bool is_list_of_tensors(const c10::IValue& value) {
  bool found = false;
  if (!value.isTensor()) {
    for_each_tensor(value, [&](const at::Tensor&) { found = true; });
  }
  return found;
}

void print_value(std::ostream& out, const c10::IValue& value) {
  if (value.isTensor()) {
    print_tensor(out, value.toTensor());
  } else if (is_list_of_tensors(value)) {
    const char* separator = "";
    out << '[';
    for (const c10::IValue& element : value.toListRef()) {
      out << separator;
      print_value(out, element);
      separator = "; ";
    }
    out << ']';
  } else {
    out << value;
  }
}

}  // namespace

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

const DeviceMesh* OpCall::mesh() const {
  const DeviceMesh* mesh = nullptr;
  for_each_argument_tensor([&](const at::Tensor& t) {
    if (mesh == nullptr && is_sharded(t)) {
      mesh = &spec_of(t).mesh();
    }
  });
  return mesh;
}

void OpCall::check_one_mesh() const {
  const DeviceMesh* first = mesh();
  for_each_argument_tensor([&](const at::Tensor& t) {
    if (!is_sharded(t)) {
      return;
    }
    const DeviceMesh& other = spec_of(t).mesh();
    if (&other == first) {
      return;
    }
    TORCH_CHECK_VALUE(
        other.world().rank() == first->world().rank(), describe(),
        ": the tensors belong to different ranks, ", first->world().rank(),
        " and ", other.world().rank(),
        "; every rank needs tensors and modules of its own");
    TORCH_CHECK_VALUE(
        other == *first, describe(),
        ": the tensors live on different meshes; got ", to_string(*first),
        " and ", to_string(other), "; redistribute one of them first");
  });
}

void OpCall::check_no_mix() const {
  if (PlainIsReplicated::active()) {
    return;
  }
  const bool lists = count_ > 0 && is_list_of_tensors(argument(0));
  bool sharded = false;
  bool plain = false;
  for (size_t i = 0; i < count_; ++i) {
    // The rate of an optimizer's step is a number, with dims or not.
    const bool may_be_number = lists && argument(i).isTensor() && !writes(i);
    for_each_tensor(argument(i), [&](const at::Tensor& t) {
      if (is_sharded(t)) {
        sharded = true;
      } else if (t.defined() && t.dim() > 0) {
        plain = plain || !may_be_number || t.numel() != 1;
      }
    });
  }
  TORCH_CHECK_VALUE(
      !(sharded && plain), describe(),
      ": plain and sharded tensors are mixed; distribute_tensor() the plain "
      "one, or hold a tessera::ImplicitReplication where it is equal on all "
      "ranks (for an optimizer that ran before its parameters were sharded, "
      "call distribute_optimizer())");
}

std::string OpCall::describe() const {
  std::ostringstream out;
  out << full_name(op_.operator_name()) << '(';
  for (size_t i = 0; i < count_; ++i) {
    out << (i == 0 ? "" : ", ");
    print_value(out, argument(i));
  }
  out << ')';
  if (const DeviceMesh* on = mesh()) {
    out << " on " << to_string(*on) << ", rank " << on->world().rank();
  }
  return out.str();
}

}  // namespace tessera::detail::inline tensor_layer
