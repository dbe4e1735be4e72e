#include <tensor/inspect/named_operators.h>

#include <algorithm>
#include <string_view>

namespace tessera::detail::inline tensor_layer {

namespace {

struct Named {
  std::string_view op;  // all its overloads and variants
  const char* reason;
};

// At most 60; tests/conformance/gathers_page_test.py holds the list against
// what the last run of OpInfo has seen to gather.
constexpr Named kNamed[] = {
    {"aten::sort", "where an element goes depends on all of its dim"},
    {"aten::median", "where an element goes depends on all of its dim"},
    {"aten::nanmedian", "where an element goes depends on all of its dim"},
    {"aten::kthvalue", "where an element goes depends on all of its dim"},
    {"aten::mode", "where an element goes depends on all of its dim"},
    {"aten::_unique", "where an element goes depends on all of its dim"},
    {"aten::_unique2", "where an element goes depends on all of its dim"},
    {"aten::unique_dim", "where an element goes depends on all of its dim"},
    {"aten::unique_consecutive",
     "where an element goes depends on all of its dim"},
    {"aten::_linalg_svd", "one matrix is factored as a whole"},
    {"aten::_linalg_eigh", "one matrix is factored as a whole"},
    {"aten::linalg_eig", "one matrix is factored as a whole"},
    {"aten::linalg_qr", "one matrix is factored as a whole"},
    {"aten::linalg_lu_factor_ex", "one matrix is factored as a whole"},
    {"aten::linalg_lu", "one matrix is factored as a whole"},
    {"aten::linalg_inv_ex", "one matrix is factored as a whole"},
    {"aten::linalg_cholesky_ex", "one matrix is factored as a whole"},
    {"aten::cholesky", "one matrix is factored as a whole"},
    {"aten::cholesky_inverse", "one matrix is factored as a whole"},
    {"aten::_linalg_det", "one matrix is factored as a whole"},
    {"aten::_linalg_slogdet", "one matrix is factored as a whole"},
    {"aten::linalg_ldl_factor_ex", "one matrix is factored as a whole"},
    {"aten::geqrf", "one matrix is factored as a whole"},
    {"aten::linalg_householder_product", "one matrix is factored as a whole"},
    {"aten::ormqr", "one matrix is factored as a whole"},
    {"aten::linalg_matrix_exp", "one matrix is factored as a whole"},
    {"aten::lu_unpack", "one matrix is factored as a whole"},
    {"aten::linalg_pinv", "one matrix is factored as a whole"},
    {"aten::_linalg_solve_ex", "a solution needs its whole matrix"},
    {"aten::linalg_lu_solve", "a solution needs its whole matrix"},
    {"aten::linalg_ldl_solve", "a solution needs its whole matrix"},
    {"aten::linalg_solve_triangular", "a solution needs its whole matrix"},
    {"aten::triangular_solve", "a solution needs its whole matrix"},
    {"aten::cholesky_solve", "a solution needs its whole matrix"},
    {"aten::linalg_lstsq", "a solution needs its whole matrix"},
    {"aten::_linalg_check_errors", "every rank must see a failure"},
    {"aten::_ctc_loss", "an alignment runs through a whole sequence"},
    {"aten::_ctc_loss_backward", "an alignment runs through a whole sequence"},
    {"aten::ctc_loss", "an alignment runs through a whole sequence"},
    {"aten::max_unpool2d", "an index may name any place of its plane"},
    {"aten::max_unpool3d", "an index may name any place of its plane"},
    {"aten::grid_sampler_2d", "a sample may lie anywhere in its image"},
    {"aten::grid_sampler_3d", "a sample may lie anywhere in its image"},
    {"aten::grid_sampler_2d_backward",
     "a sample may lie anywhere in its image"},
    {"aten::grid_sampler_3d_backward",
     "a sample may lie anywhere in its image"},
    {"aten::fractional_max_pool2d", "where windows lie is drawn at random"},
    {"aten::fractional_max_pool3d", "where windows lie is drawn at random"},
    {"aten::fractional_max_pool2d_backward",
     "where windows lie is drawn at random"},
    {"aten::fractional_max_pool3d_backward",
     "where windows lie is drawn at random"},
    {"aten::segment_reduce",
     "where a segment lies depends on the lengths given"},
    {"aten::_segment_reduce_backward",
     "where a segment lies depends on the lengths given"},
    {"aten::masked_scatter", "an element goes behind all that went before it"},
    {"aten::masked_scatter_backward",
     "an element goes behind all that went before it"},
    {"aten::unfold", "a view of windows that overlap needs one memory"},
    {"aten::unfold_copy", "a view of windows that overlap needs one memory"},
    {"aten::as_strided", "addresses in one memory are no cut of a tensor"},
    {"aten::as_strided_copy", "addresses in one memory are no cut of a tensor"},
    {"aten::as_strided_scatter",
     "addresses in one memory are no cut of a tensor"},
    {"aten::resize", "what is kept are the first elements of one memory"},
    {"aten::resize_as", "what is kept are the first elements of one memory"},
};

// "aten::sort.values_stable" and "aten::sort_" are variants of "aten::sort".
std::string_view base_of(std::string_view name) {
  name = name.substr(0, name.find('.'));
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

}  // namespace

const char* reason_to_replicate(const std::string& name) {
  const auto* found = std::find_if(
      std::begin(kNamed), std::end(kNamed),
      [&](const Named& n) { return n.op == base_of(name); });
  return found == std::end(kNamed) ? nullptr : found->reason;
}

}  // namespace tessera::detail::inline tensor_layer
