// The built-in operators: those whose results are sharded, or computed, as no
// general rule says.
#include <unordered_map>

#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ShardedTensor;
using sharded_tensor::Value;

namespace {

// The arguments of one call, by place.
class ArgumentReader {
 public:
  ArgumentReader(const char* op, const Values& arguments)
      : op_(op), arguments_(arguments) {}

  const ShardedTensor& sharded(size_t i) const {
    const ShardedTensor* tensor =
        i < arguments_.size() ? sharded_in(arguments_[i]) : nullptr;
    TORCH_CHECK_TYPE(
        tensor != nullptr, op_, ", rank ", rank(), ": argument ", i,
        " must be a sharded tensor");
    return *tensor;
  }
  Value value(size_t i) const {
    return i < arguments_.size() ? arguments_[i] : Value();
  }
  int64_t integer(size_t i, std::optional<int64_t> otherwise = {}) const {
    const c10::IValue given = plain(i);
    if (given.isNone() && otherwise) {
      return *otherwise;
    }
    check(given.isInt(), i, "an integer");
    return given.toInt();
  }
  double number(size_t i, double otherwise) const {
    const c10::IValue given = plain(i);
    if (given.isNone()) {
      return otherwise;
    }
    check(given.isScalar(), i, "a number");
    return given.toScalar().toDouble();
  }
  bool flag(size_t i, bool otherwise) const {
    const c10::IValue given = plain(i);
    check(given.isNone() || given.isBool(), i, "true or false");
    return given.isNone() ? otherwise : given.toBool();
  }
  std::vector<int64_t> integers(size_t i) const {
    const c10::IValue given = plain(i);
    check(given.isIntList(), i, "a list of integers");
    return given.toIntVector();
  }

 private:
  c10::IValue plain(size_t i) const {
    const Value given = value(i);
    check(sharded_in(given) == nullptr, i, "a value");
    return std::get<c10::IValue>(given);
  }
  void check(bool ok, size_t i, const char* what) const {
    TORCH_CHECK_TYPE(
        ok, op_, ", rank ", rank(), ": argument ", i, " must be ", what);
  }

  const char* op_;
  const Values& arguments_;
};

Values run_detach(const Values& arguments) {
  const ArgumentReader given("detach", arguments);
  return {map_shards(
      given.sharded(0), [](const at::Tensor& t) { return t.detach(); })};
}

Values run_copy(const Values& arguments) {
  const ArgumentReader given("copy_", arguments);
  return {copy_shards(given.sharded(0), given.sharded(1))};
}

Values run_equal(const Values& arguments) {
  const ArgumentReader given("equal", arguments);
  return {c10::IValue(all_equal(given.sharded(0), given.sharded(1)))};
}

Values run_allclose(const Values& arguments) {
  const ArgumentReader given("allclose", arguments);
  return {c10::IValue(all_close(
      given.sharded(0), given.sharded(1),
      {given.number(2, 1e-5), given.number(3, 1e-8), given.flag(4, false)}))};
}

Values run_dropout(const Values& arguments) {
  const ArgumentReader given("dropout", arguments);
  return {
      drop_out(given.sharded(0), given.number(1, 0.5), given.flag(2, true))};
}

Values run_linear(const Values& arguments) {
  const ArgumentReader given("linear", arguments);
  return {linear_on_mesh(given.value(0), given.sharded(1), given.value(2))};
}

Values run_bmm(const Values& arguments) {
  const ArgumentReader given("bmm", arguments);
  return {bmm_on_mesh(given.sharded(0), given.sharded(1))};
}

Values run_transpose(const Values& arguments) {
  const ArgumentReader given("transpose", arguments);
  return {
      transpose_on_mesh(given.sharded(0), given.integer(1), given.integer(2))};
}

Values run_view(const Values& arguments) {
  const ArgumentReader given("view", arguments);
  return {view_on_mesh(given.sharded(0), given.integers(1))};
}

Values run_chunk(const Values& arguments) {
  const ArgumentReader given("chunk", arguments);
  return chunk_on_mesh(given.sharded(0), given.integer(1), given.integer(2, 0));
}

}  // namespace

BuiltinOp find_builtin_op(const std::string& op) {
  static const std::unordered_map<std::string, BuiltinOp> ops = {
      {"aten::detach", run_detach},   {"aten::copy_", run_copy},
      {"aten::equal", run_equal},     {"aten::allclose", run_allclose},
      {"aten::dropout", run_dropout}, {"aten::linear", run_linear},
      {"aten::bmm", run_bmm},         {"aten::transpose", run_transpose},
      {"aten::view", run_view},       {"aten::chunk", run_chunk},
  };
  const auto it = ops.find(op);
  return it == ops.end() ? nullptr : it->second;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
