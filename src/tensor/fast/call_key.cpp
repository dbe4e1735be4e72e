#include <tensor/fast/call_key.h>

#include <algorithm>
#include <cstring>

#include <tensor/checks/replication_check.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

CallKey::CallKey(const OpCall& call, const OpTraits& traits) {
  add(reinterpret_cast<uintptr_t>(&call.schema()));
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call.argument(i);
    switch (traits.arguments[i].kind) {
      case ArgumentTraits::Kind::kTensor:
        if (value.isTensor()) {
          add_tensor(value.toTensor());
        } else {
          add(kNone);
        }
        break;
      case ArgumentTraits::Kind::kTensors:
        if (value.isNone()) {
          add(kNone);
          break;
        }
        add(kList);
        add(value.toListRef().size());
        for (const c10::IValue& element : value.toListRef()) {
          element.isTensor() ? add_tensor(element.toTensor()) : add(kNone);
        }
        break;
      case ArgumentTraits::Kind::kStatic:
        if (traits.arguments[i].keyed) {
          add_static(value);
        }
        break;
    }
  }
}

void CallKey::add_other(const at::Tensor& t) {
  const auto is_compared = [&] {
    return !t.unsafeGetTensorImpl()->is_wrapped_number() &&
           checks_replication();
  };
  if (!t.defined()) {
    add(kUndefined);
  } else if (t.dim() == 0 && !is_compared()) {
    add(kNumber | static_cast<uint64_t>(t.scalar_type()) << 8 |
        uint64_t{t.unsafeGetTensorImpl()->is_wrapped_number()} << 16 |
        static_cast<uint64_t>(t.device().type()) << 24);
  } else {
    simple_ = false;
    add_plain(t);
  }
}

void CallKey::add_plain(const at::Tensor& t) {
  add(kPlain | static_cast<uint64_t>(t.scalar_type()) << 8 |
      static_cast<uint64_t>(t.dim()) << 16);
  for (int64_t d = 0; d < t.dim(); ++d) {
    add(static_cast<uint64_t>(t.size(d)));
    add(static_cast<uint64_t>(t.stride(d)));
  }
}

void CallKey::add_static(const c10::IValue& value) {
  if (value.isInt()) {
    add_typed(value.toInt());
  } else if (value.isDouble()) {
    add_typed(value.toDouble());
  } else if (value.isBool()) {
    add_typed(value.toBool());
  } else if (value.isNone()) {
    add_none();
  } else if (value.isList()) {
    const auto list = value.toListRef();
    begin_list(list.size());
    for (const c10::IValue& element : list) {
      add_static(element);
    }
  } else if (value.isString()) {
    add_typed(std::string_view(value.toStringRef()));
  } else if (value.isDevice()) {
    add(kOther);
    add(static_cast<uint64_t>(value.toDevice().type()) << 8 |
        static_cast<uint8_t>(value.toDevice().index()));
  } else {
    complete_ = false;
  }
}

void CallKey::add_scalar(const at::Scalar& value) {
  if (value.isSymbolic()) {
    complete_ = false;
  } else if (value.isFloatingPoint()) {
    add_typed(value.toDouble());
  } else if (value.isBoolean()) {
    add_typed(value.toBool());
  } else if (value.type() == at::kLong) {
    add_typed(value.toLong());
  } else {
    complete_ = false;
  }
}

void CallKey::add_typed(std::string_view text) {
  add(kText | text.size() << 8);
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    add(word);
  }
}

std::vector<SpecPtr> CallKey::specs(const OpCall& call) const {
  std::vector<SpecPtr> specs;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (is_sharded(t)) {
      specs.push_back(meta_nowait(t).spec);
    }
  });
  return specs;
}

}  // namespace tessera::detail::inline tensor_layer
