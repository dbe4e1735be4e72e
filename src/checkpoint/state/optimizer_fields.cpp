#include <checkpoint/state/optimizer_fields.h>

#include <typeinfo>

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::StateDict;
using checkpoint::StateValue;

namespace {

[[noreturn]] void throw_unknown(const std::type_info& type) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "checkpoint::state_dict: what an optimizer keeps in ", type.name(),
      " is not known; Adam, AdamW, SGD, RMSprop, Adagrad and LBFGS are");
}

template <class State>
ParameterFields adam_fields(State& s) {
  return {
      {{"exp_avg", &s.exp_avg()},
       {"exp_avg_sq", &s.exp_avg_sq()},
       {"max_exp_avg_sq", &s.max_exp_avg_sq()}},
      &s.step()};
}

at::Tensor zeros(const at::Tensor& like) {
  return at::zeros_like(like, {}, at::MemoryFormat::Preserve);
}

template <class State, class Options>
std::unique_ptr<torch::optim::OptimizerParamState> make_adam(
    const Options& options, const at::Tensor& parameter) {
  auto state = std::make_unique<State>();
  state->step(0);
  state->exp_avg(zeros(parameter));
  state->exp_avg_sq(zeros(parameter));
  if (options.amsgrad()) {
    state->max_exp_avg_sq(zeros(parameter));
  }
  return state;
}

// Adds the options of a group to a dict; what load() reads goes back to them,
// which live as long as the optimizer.
class OptionsDict {
 public:
  OptionsDict& add(const char* name, double& value) {
    dict.set(name, StateValue(value).on_load([&value](const StateValue& read) {
      value = read.to_double();
    }));
    return *this;
  }
  OptionsDict& add(const char* name, bool& value) {
    dict.set(name, StateValue(value).on_load([&value](const StateValue& read) {
      value = read.to_bool();
    }));
    return *this;
  }
  OptionsDict& add(const char* name, int64_t& value) {
    dict.set(name, StateValue(value).on_load([&value](const StateValue& read) {
      value = read.to_int();
    }));
    return *this;
  }
  OptionsDict& add(const char* name, std::optional<int64_t>& value) {
    return add_optional(name, value, &StateValue::to_int);
  }
  OptionsDict& add(const char* name, std::optional<std::string>& value) {
    return add_optional(name, value, &StateValue::to_string);
  }
  OptionsDict& add(const char* name, std::tuple<double, double>& value) {
    const StateValue pair =
        StateValue::tuple({std::get<0>(value), std::get<1>(value)});
    dict.set(name, pair.on_load([&value](const StateValue& read) {
      value = {
          read.to_list().at(0).to_double(), read.to_list().at(1).to_double()};
    }));
    return *this;
  }
  template <class Options>
  OptionsDict& add_adam(Options& o) {
    return add("lr", o.lr())
        .add("betas", o.betas())
        .add("eps", o.eps())
        .add("weight_decay", o.weight_decay())
        .add("amsgrad", o.amsgrad());
  }

  StateDict dict;

 private:
  // What was read may be nothing where there is something, and the other way.
  template <class T, class Result>
  OptionsDict& add_optional(
      const char* name, std::optional<T>& value,
      Result (StateValue::*get)() const) {
    const auto receive = [&value, get](const StateValue& read) {
      value = read.kind() == StateValue::Kind::kNone
                  ? std::nullopt
                  : std::optional<T>((read.*get)());
    };
    dict.set(
        name, (value ? StateValue(*value) : StateValue())
                  .on_load(receive)
                  .on_open([](const auto&) { return StateValue(); }));
    return *this;
  }
};

}  // namespace

ParameterFields fields_of(torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  if (auto* s = dynamic_cast<AdamWParamState*>(&state)) {
    return adam_fields(*s);
  }
  if (auto* s = dynamic_cast<AdamParamState*>(&state)) {
    return adam_fields(*s);
  }
  if (auto* s = dynamic_cast<SGDParamState*>(&state)) {
    return {{{"momentum_buffer", &s->momentum_buffer()}}, nullptr};
  }
  if (auto* s = dynamic_cast<RMSpropParamState*>(&state)) {
    return {
        {{"square_avg", &s->square_avg()},
         {"momentum_buffer", &s->momentum_buffer()},
         {"grad_avg", &s->grad_avg()}},
        &s->step()};
  }
  if (auto* s = dynamic_cast<AdagradParamState*>(&state)) {
    return {{{"sum", &s->sum()}}, &s->step()};
  }
  throw_unknown(typeid(state));
}

std::unique_ptr<torch::optim::OptimizerParamState> make_state(
    torch::optim::OptimizerOptions& options, const at::Tensor& parameter) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  const at::NoGradGuard no_grad;
  if (auto* o = dynamic_cast<AdamWOptions*>(&options)) {
    return make_adam<AdamWParamState>(*o, parameter);
  }
  if (auto* o = dynamic_cast<AdamOptions*>(&options)) {
    return make_adam<AdamParamState>(*o, parameter);
  }
  if (auto* o = dynamic_cast<SGDOptions*>(&options)) {
    if (o->momentum() == 0) {
      return nullptr;
    }
    auto state = std::make_unique<SGDParamState>();
    state->momentum_buffer(zeros(parameter));
    return state;
  }
  if (auto* o = dynamic_cast<RMSpropOptions*>(&options)) {
    auto state = std::make_unique<RMSpropParamState>();
    state->step(0);
    state->square_avg(zeros(parameter));
    if (o->momentum() > 0) {
      state->momentum_buffer(zeros(parameter));
    }
    if (o->centered()) {
      state->grad_avg(zeros(parameter));
    }
    return state;
  }
  if (auto* o = dynamic_cast<AdagradOptions*>(&options)) {
    auto state = std::make_unique<AdagradParamState>();
    state->step(0);
    state->sum(at::full_like(
        parameter, o->initial_accumulator_value(), {},
        at::MemoryFormat::Preserve));
    return state;
  }
  throw_unknown(typeid(options));
}

bool is_lbfgs(const torch::optim::OptimizerOptions& options) {
  return dynamic_cast<const torch::optim::LBFGSOptions*>(&options) != nullptr;
}

StateDict options_dict(torch::optim::OptimizerOptions& options) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  OptionsDict out;
  if (auto* adamw = dynamic_cast<AdamWOptions*>(&options)) {
    out.add_adam(*adamw);
  } else if (auto* adam = dynamic_cast<AdamOptions*>(&options)) {
    out.add_adam(*adam);
  } else if (auto* sgd = dynamic_cast<SGDOptions*>(&options)) {
    out.add("lr", sgd->lr())
        .add("momentum", sgd->momentum())
        .add("dampening", sgd->dampening())
        .add("weight_decay", sgd->weight_decay())
        .add("nesterov", sgd->nesterov());
  } else if (auto* rms = dynamic_cast<RMSpropOptions*>(&options)) {
    out.add("lr", rms->lr())
        .add("alpha", rms->alpha())
        .add("eps", rms->eps())
        .add("weight_decay", rms->weight_decay())
        .add("momentum", rms->momentum())
        .add("centered", rms->centered());
  } else if (auto* adagrad = dynamic_cast<AdagradOptions*>(&options)) {
    out.add("lr", adagrad->lr())
        .add("lr_decay", adagrad->lr_decay())
        .add("weight_decay", adagrad->weight_decay())
        .add("initial_accumulator_value", adagrad->initial_accumulator_value())
        .add("eps", adagrad->eps());
  } else if (auto* lbfgs = dynamic_cast<LBFGSOptions*>(&options)) {
    out.add("lr", lbfgs->lr())
        .add("max_iter", lbfgs->max_iter())
        .add("max_eval", lbfgs->max_eval())
        .add("tolerance_grad", lbfgs->tolerance_grad())
        .add("tolerance_change", lbfgs->tolerance_change())
        .add("history_size", lbfgs->history_size())
        .add("line_search_fn", lbfgs->line_search_fn());
  } else {
    throw_unknown(typeid(options));
  }
  return std::move(out.dict);
}

}  // namespace tessera::detail::inline checkpoint_layer
