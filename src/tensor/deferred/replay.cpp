#include <tensor/deferred/replay.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>
#include <tensor/call/op_call.h>
#include <tensor/call/op_registry.h>
#include <tensor/deferred/diagonals.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/thread_state.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Gives a call the draws that were noted when it was recorded.
class GivenDraws {
 public:
  explicit GivenDraws(const std::vector<RandomOffset>& offsets)
      : draws_{.offsets = offsets},
        outer_(std::exchange(ThreadState::here().draws, &draws_)) {}
  ~GivenDraws() { ThreadState::here().draws = outer_; }
  GivenDraws(const GivenDraws&) = delete;
  GivenDraws& operator=(const GivenDraws&) = delete;
  bool are_used() const { return draws_.next == draws_.offsets.size(); }

 private:
  Draws draws_;
  Draws* outer_;
};

void check_unwritten(
    const RecordedCall& call, const RecordedArgument& argument,
    const at::Tensor& t) {
  TORCH_CHECK_VALUE(
      !t.defined() || argument.writes < 0 || t._version() == argument.writes,
      "DeferredInit: ", call.name(), " was given a plain tensor of shape ",
      t.sizes(), ", which has been written since; give it a clone()");
}

// The calls that a version depends on, in the order in which they were made.
std::vector<const RecordedCall*> calls_before(const VersionPtr& last) {
  std::vector<const StorageVersion*> open{last.get()};
  std::unordered_set<const RecordedCall*> seen;
  std::vector<const RecordedCall*> calls;
  while (!open.empty()) {
    const RecordedCall* call = open.back()->call.get();
    open.pop_back();
    if (!seen.insert(call).second) {
      continue;
    }
    calls.push_back(call);
    const bool forgets = is_overwrite(*call);
    for (const RecordedArgument& argument : call->tensors) {
      if (argument.version && !(forgets && argument.is_written)) {
        open.push_back(argument.version.get());
      }
    }
  }
  std::sort(calls.begin(), calls.end(), [](const auto* a, const auto* b) {
    return a->sequence < b->sequence;
  });
  return calls;
}

at::Tensor result_of(
    const torch::jit::Stack& results, const RecordedResult& which) {
  at::Tensor found;
  size_t element = 0;
  for_each_tensor(results[which.result], [&](const at::Tensor& t) {
    found = element++ == which.element ? t : found;
  });
  return found;
}

// The storages of a replay.
class Storages {
 public:
  explicit Storages(const std::vector<const RecordedCall*>& calls) {
    for (size_t i = 0; i < calls.size(); ++i) {
      for_each_storage(
          *calls[i], [&](uint64_t storage) { last_use_[storage] = i; });
    }
  }
  void keep(uint64_t storage) { last_use_.erase(storage); }

  const at::Tensor& find_or_make(
      const RecordedCall& call, const RecordedArgument& argument) {
    at::Tensor& t = storages_[argument.version->storage];
    if (!t.defined()) {
      TORCH_INTERNAL_ASSERT(is_overwrite(call), call.name());
      t = empty_like_geometry(*argument.geometry, call.device);
    }
    return t;
  }
  const at::Tensor& at(uint64_t storage) const { return storages_.at(storage); }
  void put(uint64_t storage, at::Tensor t) {
    storages_[storage] = std::move(t);
  }
  // Frees what no call after this one needs.
  void end_call(const RecordedCall& call, size_t position) {
    for_each_storage(call, [&](uint64_t storage) {
      const auto last = last_use_.find(storage);
      if (last != last_use_.end() && last->second == position) {
        storages_.erase(storage);
      }
    });
  }

 private:
  template <class F>
  static void for_each_storage(const RecordedCall& call, F f) {
    for (const RecordedArgument& argument : call.tensors) {
      if (argument.version) {
        f(argument.version->storage);
      }
    }
    for (const RecordedResult& result : call.results) {
      f(result.storage);
    }
  }

  std::unordered_map<uint64_t, at::Tensor> storages_;
  std::unordered_map<uint64_t, size_t> last_use_;
};

// Kernels may choose other strides than those for Meta said.
at::Tensor in_geometry(const at::Tensor& t, const Geometry& geometry) {
  if (Geometry(t) == geometry) {
    return t;
  }
  const at::Tensor copy = empty_like_geometry(geometry, t.device());
  copy.copy_(t);
  return copy;
}

void run_call(const RecordedCall& call, Storages& storages) {
  if (!call.op) {
    const RecordedResult& made = call.results.at(0);
    return storages.put(
        made.storage, empty_like_geometry(made.geometry, call.device));
  }
  const torch::jit::Stack results = run_recorded(
      call, [&](const RecordedArgument& argument, const at::Tensor& t) {
        return argument.version ? tensor_over(
                                      storages.find_or_make(call, argument),
                                      *argument.geometry)
                                : t;
      });
  for (const RecordedResult& result : call.results) {
    storages.put(
        result.storage,
        in_geometry(result_of(results, result), result.geometry));
  }
}

}  // namespace

Replaying::Replaying() : off_(kUseKey), draws_(init().random_counters()) {}

torch::jit::Stack run_recorded(
    const RecordedCall& call, const SubstituteFn& substitute,
    std::optional<c10::Device> device) {
  torch::jit::Stack stack = call.arguments;
  size_t next = 0;
  for (c10::IValue& value : stack) {
    if (value.isDevice() && device) {
      value = *device;
    }
    map_tensors(value, [&](const at::Tensor& t) {
      const RecordedArgument& argument = call.tensors.at(next++);
      if (!argument.version) {
        check_unwritten(call, argument, t);
      }
      return substitute(argument, t);
    });
  }
  const GivenDraws draws(call.offsets);
  call.op->callBoxed(&stack);
  TORCH_INTERNAL_ASSERT(
      draws.are_used(), call.name(),
      ": draws less often than when it was recorded");
  return stack;
}

at::Tensor tensor_over(const at::Tensor& storage, const Geometry& geometry) {
  at::Tensor t = at::empty({0}, storage.options().dtype(geometry.dtype));
  t.set_(storage.storage(), geometry.offset, geometry.sizes, geometry.strides);
  t.unsafeGetTensorImpl()->_set_conj(geometry.is_conjugated);
  t.unsafeGetTensorImpl()->_set_neg(geometry.is_negated);
  return t;
}

at::Tensor empty_like_geometry(
    const Geometry& geometry, const c10::Device& device) {
  const auto options = at::TensorOptions(geometry.dtype).device(device);
  if (geometry.offset == 0) {
    return at::empty_strided(geometry.sizes, geometry.strides, options);
  }
  int64_t last = geometry.offset;
  for (size_t d = 0; d < geometry.sizes.size(); ++d) {
    last += (geometry.sizes[d] - 1) * geometry.strides[d];
  }
  return tensor_over(at::empty({last + 1}, options), geometry);
}

bool is_fill(const RecordedCall& call) {
  const std::string& name = call.op->operator_name().name;
  return name == "aten::fill_" || name == "aten::zero_";
}

bool is_draw(const RecordedCall& call) {
  const c10::OperatorName& name = call.op->operator_name();
  const OpEntry* entry = op_registry().find(name);
  return entry != nullptr && entry->is_drawn && name.name.ends_with('_');
}

bool is_overwrite(const RecordedCall& call) {
  // With a second tensor values may depend on the storage.
  return call.op && call.tensors.size() == 1 && call.tensors[0].is_written &&
         call.tensors[0].covers_storage &&
         (is_fill(call) || is_draw(call) || is_eye(call));
}

at::Tensor replay(const VersionPtr& version, const Geometry& geometry) {
  const std::vector<const RecordedCall*> calls = calls_before(version);
  Storages storages(calls);
  storages.keep(version->storage);
  for (size_t i = 0; i < calls.size(); ++i) {
    run_call(*calls[i], storages);
    storages.end_call(*calls[i], i);
  }
  return tensor_over(storages.at(version->storage), geometry);
}

}  // namespace tessera::detail::inline tensor_layer
