#include <tensor/deferred/recorded_run.h>

#include <string>
#include <utility>

#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <tensor/call/op_traits.h>
#include <tensor/deferred/memory_now.h>
#include <tensor/deferred/tape.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/draws.h>
#include <tensor/state/thread_state.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using torch::jit::Stack;

// Notes down what calls draw, to give it to them again.
class NotedDraws {
 public:
  NotedDraws() : outer_(std::exchange(ThreadState::here().draws, &draws_)) {}
  ~NotedDraws() { ThreadState::here().draws = outer_; }
  const std::vector<RandomOffset>& offsets() const { return draws_.offsets; }
  NotedDraws(const NotedDraws&) = delete;
  NotedDraws& operator=(const NotedDraws&) = delete;

 private:
  Draws draws_{.is_recording = true};
  Draws* outer_;
};

// One call while it is recorded.
class Recording {
 public:
  Recording(const OperatorHandle& op, Stack* stack, const c10::Device& device)
      : call_(op, stack), recorded_(std::make_shared<RecordedCall>()) {
    recorded_->op = op;
    recorded_->device = device;
    note_arguments();
  }

  void run() {
    // Python has kernels for Meta that say so otherwise, or guess a shape.
    TORCH_CHECK_NOT_IMPLEMENTED(
        !call_.op().hasTag(at::Tag::data_dependent_output) &&
            !call_.op().hasTag(at::Tag::dynamic_output_shape),
        needs_values());
    const std::vector<int64_t> sizes = storage_sizes();
    if (!run_on_meta()) {
      return call_.op().callBoxedForDispatchKey(
          DispatchKey::CompositeExplicitAutograd, *call_.stack());
    }
    note_results();
    const bool moves_only =
        call_.op().hasTag(at::Tag::inplace_view) && sizes == storage_sizes();
    const bool writes = !written_.empty() && !moves_only;
    if (writes || !recorded_->results.empty()) {
      finish(writes);
    }
  }

 private:
  void note_arguments() {
    for (size_t i = 0; i < call_.size(); ++i) {
      c10::IValue value = call_.argument(i);
      const bool is_written =
          traits_of(call_.op()).arguments[i].written || call_.writes(i);
      map_tensors(value, [&](const at::Tensor& t) {
        return note_tensor(t, is_written);
      });
      if (value.isDevice() && value.toDevice().is_meta()) {
        value = recorded_->device;
      }
      recorded_->arguments.push_back(std::move(value));
    }
  }

  at::Tensor note_tensor(const at::Tensor& t, bool is_written) {
    RecordedArgument argument;
    const DeferredStorage* storage = deferred_storage(t);
    argument.is_written = is_written;
    if (storage != nullptr) {
      argument.version = storage->version;
      argument.geometry.emplace(t);
      argument.covers_storage = t.is_non_overlapping_and_dense() &&
                                t.storage_offset() == 0 &&
                                t.nbytes() == t.storage().nbytes();
      deferred_.push_back(t);
      if (is_written) {
        written_.push_back(t);
      }
    } else if (t.defined()) {
      check_plain_argument(t, is_written);
      argument.writes = t.is_inference() ? -1 : t._version();
    }
    recorded_->tensors.push_back(std::move(argument));
    return storage != nullptr ? empty_tensor() : t;
  }

  void check_plain_argument(const at::Tensor& t, bool is_written) const {
    TORCH_CHECK_VALUE(
        !is_sharded(t), "DeferredInit: ", full_name(call_.op().operator_name()),
        ": a deferred tensor meets a sharded one, ", to_string(spec_of(t)),
        "; put the module in its place first, or end the guard before");
    TORCH_CHECK_VALUE(
        !is_written, "DeferredInit: ", full_name(call_.op().operator_name()),
        " writes values that do not exist yet into a tensor that was made "
        "outside of the guard, ",
        dtype_name(t.scalar_type()), shape_to_string(t.sizes().vec()),
        "; write it after materialize()");
  }

  static const at::Tensor& empty_tensor() {
    static const auto* empty = [] {
      const MemoryNow memory;
      return new at::Tensor(at::empty({0}));
    }();
    return *empty;
  }

  std::vector<int64_t> storage_sizes() const {
    std::vector<int64_t> sizes;
    for (const at::Tensor& t : written_) {
      sizes.push_back(static_cast<int64_t>(t.storage().nbytes()));
    }
    return sizes;
  }

  // Plain tensors with dims would meet Meta tensors.
  void move_arguments_to_meta() const {
    call_.map_argument_tensors([](const at::Tensor& t) {
      if (!t.defined() || t.is_meta() || t.dim() == 0) {
        return t;
      }
      return at::empty_strided(
          t.sizes(), t.strides(), t.options().device(c10::kMeta));
    });
  }

  // Returns false, and leaves the arguments, where LibTorch has no kernel for
  // Meta, but one that is made of other operators.
  bool run_on_meta() {
    const auto arguments =
        call_.stack()->end() - static_cast<std::ptrdiff_t>(call_.size());
    const Stack before(arguments, call_.stack()->end());
    const size_t begin = call_.stack()->size() - call_.size();
    const OnMeta on_meta(deferred_);
    const NotedDraws draws;
    const c10::impl::ExcludeDispatchKeyGuard off(kUseKey);
    try {
      ask_for_meta(call_);
      move_arguments_to_meta();
      if (const auto meta_result = traits_of(call_.op()).meta_result) {
        call_.finish(meta_result(call_));
      } else {
        call_.op().callBoxed(call_.stack());
      }
      recorded_->offsets = draws.offsets();
      return true;
    } catch (const c10::NotImplementedError&) {
      call_.stack()->resize(begin);
      if (is_in_place()) {
        recorded_->offsets = draws.offsets();
        call_.stack()->push_back(before[0]);
        return true;
      }
      call_.stack()->insert(call_.stack()->end(), before.begin(), before.end());
      TORCH_CHECK_NOT_IMPLEMENTED(
          draws.offsets().empty() &&
              call_.op().hasKernelForDispatchKey(
                  DispatchKey::CompositeExplicitAutograd),
          needs_values());
      return false;
    }
  }

  std::string needs_values() const {
    return "DeferredInit: " + full_name(call_.op().operator_name()) +
           " needs values, which a deferred tensor has not yet, or has no "
           "kernel for tensors without; call it after materialize(), or before "
           "the guard";
  }

  // A method whose result is its first argument, unchanged in shape.
  bool is_in_place() const {
    const auto& schema = call_.schema();
    return schema.name().ends_with('_') && schema.returns().size() == 1 &&
           call_.returns_written(0);
  }

  void note_results() {
    const size_t count = call_.schema().returns().size();
    const size_t begin = call_.stack()->size() - count;
    for (size_t i = 0; i < count; ++i) {
      size_t element = 0;
      for_each_tensor((*call_.stack())[begin + i], [&](const at::Tensor& t) {
        const size_t e = element++;
        if (deferred_storage(t) != nullptr) {
          mark_deferred(t);
        } else if (t.defined() && t.is_meta() && t.has_storage()) {
          recorded_->results.push_back({i, e, next_sequence(), Geometry(t)});
          made_.push_back(t);
        }
      });
    }
  }

  // What draws otherwise than through the operators that we know would draw
  // other numbers when it is run.
  void check_draws() const {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !call_.op().hasTag(at::Tag::nondeterministic_seeded) ||
            !recorded_->offsets.empty(),
        "DeferredInit: ", recorded_->name(),
        " draws numbers by itself; call it after materialize(), or before the "
        "guard");
  }

  void finish(bool writes) {
    check_draws();
    recorded_->sequence = next_sequence();
    for (size_t i = 0; i < made_.size(); ++i) {
      defer(
          made_[i],
          std::make_shared<StorageVersion>(
              recorded_->results[i].storage, recorded_, nullptr),
          recorded_->device);
    }
    for (size_t i = 0; writes && i < written_.size(); ++i) {
      DeferredStorage* storage = deferred_storage(written_[i]);
      TORCH_CHECK_NOT_IMPLEMENTED(
          storage != nullptr, "DeferredInit: ", recorded_->name(),
          " gives a deferred tensor the memory of one with values; call it "
          "after materialize()");
      if (storage->version->call != recorded_) {
        storage->version = std::make_shared<StorageVersion>(
            storage->version->storage, recorded_, storage->version);
      }
    }
  }

  OpCall call_;
  std::shared_ptr<RecordedCall> recorded_;
  std::vector<at::Tensor> deferred_;  // among the arguments
  std::vector<at::Tensor> written_;   // of those
  std::vector<at::Tensor> made_;      // results, as in recorded_
};

}  // namespace

void ask_for_meta(const OpCall& call) {
  for (size_t i = 0; i < call.size(); ++i) {
    const std::string& name = call.schema().arguments()[i].name();
    if (name == "device" || call.argument(i).isDevice()) {
      call.argument(i) = c10::Device(c10::kMeta);
    } else if (name == "pin_memory") {
      call.argument(i) = c10::IValue();
    }
  }
}

void run_recorded_on_meta(const OpCall& call, const c10::Device& device) {
  Recording(call.op(), call.stack(), device).run();
}

}  // namespace tessera::detail::inline tensor_layer
