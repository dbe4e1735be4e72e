// The operators of a recommender: values and gradients of the plain program, no
// operator on whole values for want of a rule, and exactly the communication
// that the placements call for, which is derived by hand in each test.
#include <tensor/models/expect_model.h>

namespace tessera {
namespace {

using testing::counting;
using testing::expect_model;
using testing::expect_model_outside;
using testing::expect_trains_without_gathers;
using testing::i64;
using testing::mesh_of;
using testing::Model;
using testing::Pieces;
using testing::place;
using testing::small;
using testing::Tensors;

Pieces recommender_pieces() {
  Pieces p;
  p["input"] = {small({8, 6}, 0.1), "S(0)"};
  p["users"] = {counting({8}, i64()).mul(5).remainder(9), "R"};
  p["items"] = {counting({20}, i64()).mul(7).remainder(10), "R"};
  p["offsets"] = {at::tensor({0, 3, 3, 7, 9, 12, 17, 18}, i64()), "R"};
  p["user.table"] = {small({9, 4}, 0.1), "R"};
  p["item.table"] = {small({10, 4}, -0.1), "R"};
  p["up.weight"] = {small({6, 14}, 0.1), "R"};
  p["up.bias"] = {small({6}, 0.2), "R"};
  p["down.weight"] = {small({1, 6}, 0.1), "R"};
  p["down.bias"] = {small({1}, 0.2), "R"};
  p["targets"] = {counting({8}).remainder(2), "S(0)"};
  return p;
}

at::Tensor by_batch(const at::Tensor& x) {
  return is_dtensor(x) ? redistribute(x, {Shard(0)}) : x;
}

constexpr int64_t kSumMode = 0, kMeanMode = 1;

// Tables are cut, each rank looks up the whole batch in its part, and the rest
// runs on its part of the batch.
Model recommender(int64_t mode) {
  return [mode](Tensors& t) {
    const at::Tensor user =
        by_batch(at::embedding(t["user.table"], t["users"]));
    const at::Tensor item = by_batch(std::get<0>(at::embedding_bag(
        t["item.table"], t["items"], t["offsets"], false, mode)));
    at::Tensor x = at::cat({t["input"], user, item}, 1);
    x = at::relu(at::linear(x, t["up.weight"], t["up.bias"]));
    x = at::linear(x, t["down.weight"], t["down.bias"]).squeeze(1);
    return at::binary_cross_entropy_with_logits(x, t["targets"]);
  };
}

// Rows: what a rank does not hold it answers with zeros, and the sum goes to
// who has that part of the batch. Backward every rank needs all gradients of
// the batch for its rows; dense layers add up 4 gradients.
TEST(Recommender, OfTablesCutByRowsScattersSums) {
  for (const int64_t mode : {kSumMode, kMeanMode}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(mode);
      Pieces pieces = recommender_pieces();
      place(pieces, {{"user.table", "S(0)"}, {"item.table", "S(0)"}});
      expect_model(
          recommender(mode), pieces, mesh_of({2}),
          {.forward = {{"reduce_scatter by redistribute", 2}},
           .backward = {
               {"all_gather by gradient of redistribute", 2},
               {"all_reduce by gradient of a leaf", 4}}});
    });
  }
}

// Columns: every rank has some features of all, and they change places with
// the parts of the batch, there and back.
TEST(Recommender, OfTablesCutByColumnsExchangesFeatures) {
  for (const int64_t mode : {kSumMode, kMeanMode}) {
    run_ranks(2, [&] {
      SCOPED_TRACE(mode);
      Pieces pieces = recommender_pieces();
      place(pieces, {{"user.table", "S(1)"}, {"item.table", "S(1)"}});
      expect_model(
          recommender(mode), pieces, mesh_of({2}),
          {.forward = {{"all_to_all by redistribute", 2}},
           .backward = {
               {"all_to_all by gradient of redistribute", 2},
               {"all_reduce by gradient of a leaf", 4}}});
    });
  }
}

TEST(Recommender, TrainsWithGathersForbidden) {
  for (const int64_t mode : {kSumMode, kMeanMode}) {
    for (const char* tables : {"S(0)", "S(1)", "R"}) {
      run_ranks(2, [&] {
        SCOPED_TRACE(tables);
        Pieces pieces = recommender_pieces();
        place(pieces, {{"user.table", tables}, {"item.table", tables}});
        expect_trains_without_gathers(recommender(mode), pieces, mesh_of({2}));
      });
    }
  }
}

TEST(Recommender, HasTheSpecsOfMembersOutsideOfTheMesh) {
  for (const int64_t mode : {kSumMode, kMeanMode}) {
    for (const char* tables : {"S(0)", "S(1)"}) {
      SCOPED_TRACE(tables);
      Pieces pieces = recommender_pieces();
      place(pieces, {{"user.table", tables}, {"item.table", tables}});
      expect_model_outside(recommender(mode), pieces, {2});
      expect_model_outside(recommender(mode), pieces, {3});
    }
  }
}

}  // namespace
}  // namespace tessera
