// What tests of whole models share: a model as a function of named tensors, run
// plain and on a mesh, and the collectives that it is expected to make.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <harness/sharded_test.h>
#include <harness/spec_trace.h>

namespace tessera::testing {

/// A tensor of a model and where it lies on the mesh.
struct Piece {
  at::Tensor value;
  std::string where;
};
using Pieces = std::map<std::string, Piece>;
using Tensors = std::map<std::string, at::Tensor>;
/// Computes a loss from parameters and inputs.
using Model = std::function<at::Tensor(Tensors&)>;

/// "2 all_reduce by redistribute": collectives by kind and cause.
using Counts = std::map<std::string, int>;

inline Counts counts_of(const CommLog& log) {
  Counts counts;
  for (const CommLogEntry& entry : log.entries()) {
    ++counts[entry.kind + " by " + entry.cause];
  }
  return counts;
}

/// Data, targets and statistics need no gradient.
inline bool is_parameter(const std::string& name, const at::Tensor& value) {
  return value.is_floating_point() && name != "input" && name != "targets" &&
         name.find(".mean") == name.npos && name.find(".var") == name.npos;
}

inline Tensors plain_tensors(const Pieces& pieces) {
  Tensors tensors;
  for (const auto& [name, piece] : pieces) {
    tensors[name] =
        piece.value.clone().set_requires_grad(is_parameter(name, piece.value));
  }
  return tensors;
}

inline Tensors cut_tensors(const Pieces& pieces, const DeviceMesh& mesh) {
  Tensors tensors;
  for (const auto& [name, piece] : pieces) {
    tensors[name] =
        distribute_tensor(piece.value, mesh, parse_placements(piece.where))
            .set_requires_grad(is_parameter(name, piece.value));
  }
  return tensors;
}

/// The collectives of one run.
struct Expected {
  Counts forward;
  Counts backward;
};

inline void expect_gradients(const Tensors& got, const Tensors& want) {
  for (const auto& [name, tensor] : want) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(close(got.at(name), tensor, 1e-9)) << "written statistics";
    ASSERT_EQ(got.at(name).grad().defined(), tensor.grad().defined());
    if (tensor.grad().defined()) {
      EXPECT_TRUE(close(got.at(name).grad(), tensor.grad(), 1e-9));
      EXPECT_EQ(placements(got.at(name).grad()), placements(got.at(name)));
    }
  }
}

/// Runs the model plain and on the mesh, twice, so that what is kept about the
/// first run serves the second.
inline void expect_model(
    const Model& model, const Pieces& pieces, const DeviceMesh& mesh,
    const Expected& expected) {
  for (int round = 0; round < 2; ++round) {
    Tensors plain = plain_tensors(pieces);
    const at::Tensor want = model(plain);
    want.backward();
    Tensors cut = cut_tensors(pieces, mesh);
    const StrictMode strict(
        {.communication = false,
         .fallbacks = true,
         .gathers = true,
         .leaf_gradients = false});
    at::Tensor got;
    {
      const CommLog log;
      ASSERT_EQ(error_of([&] { got = model(cut); }), "");
      EXPECT_EQ(counts_of(log), expected.forward) << "forward\n" << log;
    }
    {
      const CommLog log;
      ASSERT_EQ(error_of([&] { got.backward(); }), "");
      EXPECT_EQ(counts_of(log), expected.backward) << "backward\n" << log;
    }
    EXPECT_TRUE(close(got, want, 1e-9));
    expect_gradients(cut, plain);
  }
}

/// Trains the model for some steps, plain and on the mesh, with gathers and
/// fallbacks forbidden, gradients of leaves and the optimizer included.
inline void expect_trains_without_gathers(
    const Model& model, const Pieces& pieces, const DeviceMesh& mesh) {
  Tensors plain = plain_tensors(pieces);
  Tensors cut = cut_tensors(pieces, mesh);
  const auto step = [&](Tensors& tensors) {
    const at::Tensor loss = model(tensors);
    loss.backward();
    const at::NoGradGuard no_gradient;
    for (auto& [name, t] : tensors) {
      if (t.grad().defined()) {
        t.sub_(t.grad(), 0.1);
        t.mutable_grad() = at::Tensor();
      }
    }
    return loss.detach();
  };
  at::Tensor first;
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    const at::Tensor want = step(plain);
    first = first.defined() ? first : want;
    const StrictMode strict(
        {.communication = false, .fallbacks = true, .gathers = true});
    at::Tensor got;
    ASSERT_EQ(error_of([&] { got = step(cut); }), "");
    EXPECT_TRUE(close(got, want, 1e-9));
    EXPECT_EQ(at::equal(want, first), round == 0) << "parameters must move";
  }
  for (const auto& [name, tensor] : plain) {
    EXPECT_TRUE(close(cut.at(name).detach(), tensor.detach(), 1e-9)) << name;
  }
}

/// Runs the model and its derivatives on a mesh that leaves ranks out, and
/// expects that these make tensors of the specs that the members' have.
inline void expect_model_outside(
    const Model& model, const Pieces& pieces,
    const std::vector<int64_t>& shape) {
  expect_specs_of_members(
      shape, {}, [&](const DeviceMesh& mesh, SpecTrace& trace) {
        Tensors cut = cut_tensors(pieces, mesh);
        for (int round = 0; round < 2; ++round) {
          model(cut).backward();
          for (const auto& [name, tensor] : cut) {
            trace.note("gradient of " + name, tensor.grad());
          }
        }
      });
}

/// Distinct values of a size that keeps models tame.
inline at::Tensor small(at::IntArrayRef shape, double shift) {
  return distinct(shape).mul(0.2).add(shift);
}

inline at::Tensor replicated(const at::Tensor& x) {
  if (!is_dtensor(x)) {
    return x;
  }
  return redistribute(x, Placements(placements(x).size(), Replicate()));
}

/// Says where some of the pieces lie.
inline void place(
    Pieces& pieces, const std::map<std::string, std::string>& where) {
  for (const auto& [name, text] : where) {
    ASSERT_EQ(pieces.count(name), 1U) << name;
    pieces[name].where = text;
  }
}

}  // namespace tessera::testing
