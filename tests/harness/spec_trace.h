// What ranks outside of a mesh make of a program: the same tensors as its
// members, without data.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/record_function.h>
#include <harness/sharded_test.h>

namespace tessera::testing {

/// Notes the sharded results of this thread's operators while it lives, those
/// of derivatives included: "aten::mm -> f64[4, 8] S(0) @ mesh(2)". Operators
/// that run inside of another one are left out, since ranks outside of a mesh
/// need not run them.
class SpecTrace {
 public:
  SpecTrace()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(begin, end)
                .needsOutputs(true)
                .scopes({at::RecordScope::FUNCTION}))) {
    current() = this;
  }
  ~SpecTrace() {
    current() = nullptr;
    at::removeCallback(handle_);
  }
  SpecTrace(const SpecTrace&) = delete;
  SpecTrace& operator=(const SpecTrace&) = delete;

  const std::vector<std::string>& lines() const { return lines_; }
  /// Adds a line of the program's own.
  void note(const std::string& what, const at::Tensor& t) {
    if (t.defined() && is_dtensor(t)) {
      lines_.push_back(what + " -> " + to_string(spec(t)));
    }
  }

 private:
  static SpecTrace*& current() {
    thread_local SpecTrace* trace = nullptr;
    return trace;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) {
    if (SpecTrace* trace = current()) {
      ++trace->depth_;
    }
    return nullptr;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext*) {
    SpecTrace* trace = current();
    if (trace == nullptr || --trace->depth_ > 0) {
      return;
    }
    for (const c10::IValue& output : call.outputs()) {
      trace->note(call.name(), output);
    }
  }
  void note(const char* name, const c10::IValue& value) {
    if (value.isTensor()) {
      note(std::string(name), value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) {
        note(std::string(name), t);
      }
    }
  }

  int depth_ = 0;
  std::vector<std::string> lines_;
  at::CallbackHandle handle_;
};

/// Runs a program on a mesh that leaves the first and the last rank of the
/// world out, and expects that all ranks make tensors of the same specs.
inline void expect_specs_of_members(
    const std::vector<int64_t>& shape, const std::vector<std::string>& names,
    const std::function<void(const DeviceMesh&, SpecTrace&)>& program) {
  const int64_t members = c10::multiply_integers(shape);
  std::vector<std::vector<std::string>> seen(static_cast<size_t>(members + 2));
  run_ranks(static_cast<int>(members + 2), [&] {
    const at::Tensor ranks = at::arange(1, members + 1, at::kLong).view(shape);
    SpecTrace trace;
    program(DeviceMesh(device(), ranks, names), trace);
    seen[static_cast<size_t>(rank())] = trace.lines();
  });
  ASSERT_FALSE(seen[1].empty());
  for (size_t r = 0; r < seen.size(); ++r) {
    const auto [mine, first] = std::mismatch(
        seen[r].begin(), seen[r].end(), seen[1].begin(), seen[1].end());
    EXPECT_TRUE(mine == seen[r].end() && first == seen[1].end())
        << "rank " << r << " of " << seen.size() << " has "
        << (mine == seen[r].end() ? "nothing" : *mine) << ", a member has "
        << (first == seen[1].end() ? "nothing" : *first) << " as tensor "
        << mine - seen[r].begin();
  }
}

}  // namespace tessera::testing
