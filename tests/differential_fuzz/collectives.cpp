#include "differential_fuzz/collectives.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <ATen/ATen.h>
#include <tessera/comm/world.h>

namespace tessera::programs {
namespace {

// One collective: what goes in, what comes out, and what has to.
struct Exchange {
  std::string name;
  at::Tensor input;
  at::Tensor output;
  at::Tensor expected;
  std::function<void()> at_once;
  std::function<Communicator::Work()> start;
};

struct Group {
  Communicator members;
  std::string name;
};

Group choose_group(const Step& step, const DeviceMesh& mesh, size_t code) {
  const World world = init();
  switch (step.code(code, 5)) {
    case 0:
      return {world.communicator(), "the world"};
    case 1:
      return {
          world.communicator().split(world.rank() % 2, -world.rank()),
          "halves, backward"};
    case 2: {
      List ranks(static_cast<size_t>(world.size()));
      std::iota(ranks.rbegin(), ranks.rend(), int64_t{0});
      return {world.communicator(ranks), "the world, backward"};
    }
    default: {
      const int64_t dim = step.code(code + 1, mesh.ndim());
      return {mesh.communicator(dim), "mesh dim " + std::to_string(dim)};
    }
  }
}

// The definition: what every rank of a group holds, as all of them know it.
class Definition {
 public:
  Definition(const Step& step, const Communicator& group, c10::ScalarType dtype)
      : step_(step), group_(group), dtype_(dtype) {}

  int64_t size() const { return group_.size(); }
  int64_t me() const { return group_.rank(); }
  at::TensorOptions options() const { return at::TensorOptions(dtype_); }

  /// Returns how many elements place `i` has for place `j`; zero is common.
  int64_t count(int64_t i, int64_t j) const {
    return (i * 2 + j * 3 + step_.code(3, 64)) % 5;
  }
  List counts_of(int64_t i) const {
    List counts;
    for (int64_t j = 0; j < size(); ++j) {
      counts.push_back(count(i, j));
    }
    return counts;
  }
  /// Returns the data of a place, by its global rank.
  at::Tensor data(int64_t place, int64_t numel) const {
    const int64_t rank = group_.ranks()[static_cast<size_t>(place)];
    return distinct({numel}, dtype_, step_.id * 31 + rank);
  }
  /// The same values, with strides where the step says so.
  at::Tensor input(int64_t numel) const {
    const at::Tensor dense = data(me(), numel);
    return step_.code(4, 2) == 0 ? dense
                                 : at::stack({dense, dense}, 1).select(1, 0);
  }
  at::Tensor output(int64_t numel) const {
    return at::zeros({numel}, options());
  }
  at::Tensor reduced(int64_t numel, ReduceOp op) const {
    std::vector<at::Tensor> addends;
    for (int64_t place = 0; place < size(); ++place) {
      addends.push_back(data(place, numel));
    }
    return combine(addends, op);
  }
  int64_t root() const { return step_.code(5, size()); }
  /// Returns a length; now and then so long that reductions are cut.
  int64_t length() const {
    return step_.code(6, 12) == 0 ? 9000 + step_.code(3, 50)
                                  : step_.code(3, 30);
  }
  ReduceOp op() const {
    static const std::array ops{
        ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg};
    const int64_t usable = dtype_ == at::kBool   ? 1
                           : dtype_ == at::kLong ? 3
                                                 : 4;
    return ops[static_cast<size_t>(step_.code(7, usable))];
  }

 private:
  const Step& step_;
  const Communicator& group_;
  c10::ScalarType dtype_;
};

int64_t total(const List& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}
List begins(const List& counts) {
  List result{0};
  for (const int64_t count : counts) {
    result.push_back(result.back() + count);
  }
  return result;
}

Exchange all_gather(const Definition& is, const Communicator& group) {
  const List counts = is.counts_of(0);
  const int64_t mine = counts[static_cast<size_t>(is.me())];
  std::vector<at::Tensor> all;
  for (int64_t r = 0; r < is.size(); ++r) {
    all.push_back(is.data(r, counts[static_cast<size_t>(r)]));
  }
  Exchange e{"all_gather_v",
             is.input(mine),
             is.output(total(counts)),
             at::cat(all),
             {},
             {}};
  e.at_once = [=] { group.all_gather_v(e.output, e.input, counts); };
  e.start = [=] { return group.all_gather_async(e.output, e.input, counts); };
  return e;
}

Exchange all_reduce(const Definition& is, const Communicator& group) {
  const int64_t n = is.length();
  const ReduceOp op = is.op();
  Exchange e{
      std::string("all_reduce.") + to_string(op),
      is.input(n),
      is.output(n),
      is.reduced(n, op),
      {},
      {}};
  e.at_once = [=] { group.all_reduce(e.output, e.input, op); };
  e.start = [=] { return group.all_reduce_async(e.output, e.input, op); };
  return e;
}

Exchange reduce_scatter(const Definition& is, const Communicator& group) {
  const List counts = is.counts_of(1);
  const auto me = static_cast<size_t>(is.me());
  const int64_t n = total(counts);
  const ReduceOp op = is.op();
  Exchange e{
      std::string("reduce_scatter_v.") + to_string(op),
      is.input(n),
      is.output(counts[me]),
      is.reduced(n, op).narrow(0, begins(counts)[me], counts[me]),
      {},
      {}};
  e.at_once = [=] { group.reduce_scatter_v(e.output, e.input, counts, op); };
  e.start = [=] {
    return group.reduce_scatter_async(e.output, e.input, counts, op);
  };
  return e;
}

Exchange all_to_all(const Definition& is, const Communicator& group) {
  const List sent = is.counts_of(is.me());
  List received;
  std::vector<at::Tensor> parts{is.output(0)};
  for (int64_t r = 0; r < is.size(); ++r) {
    const List theirs = is.counts_of(r);
    received.push_back(theirs[static_cast<size_t>(is.me())]);
    parts.push_back(is.data(r, total(theirs))
                        .narrow(
                            0, begins(theirs)[static_cast<size_t>(is.me())],
                            received.back()));
  }
  Exchange e{
      "all_to_all_v",
      is.input(total(sent)),
      is.output(total(received)),
      at::cat(parts),
      {},
      {}};
  e.at_once = [=] { group.all_to_all_v(e.output, e.input, received, sent); };
  e.start = [=] {
    return group.all_to_all_async(e.output, e.input, received, sent);
  };
  return e;
}

Exchange broadcast(const Definition& is, const Communicator& group) {
  const int64_t n = is.length();
  const int64_t root = is.root();
  Exchange e{"broadcast", {}, is.data(is.me(), n), is.data(root, n), {}, {}};
  e.at_once = [=] { group.broadcast(e.output, root); };
  e.start = [=] { return group.broadcast_async(e.output, root); };
  return e;
}

Exchange scatter(const Definition& is, const Communicator& group) {
  const List counts = is.counts_of(2);
  const auto me = static_cast<size_t>(is.me());
  const int64_t root = is.root();
  const int64_t n = total(counts);
  Exchange e{
      "scatter_v",
      is.me() == root ? is.input(n) : at::Tensor(),
      is.output(counts[me]),
      is.data(root, n).narrow(0, begins(counts)[me], counts[me]),
      {},
      {}};
  e.at_once = [=] { group.scatter_v(e.output, e.input, counts, root); };
  e.start = [=] {
    return group.scatter_async(e.output, e.input, counts, root);
  };
  return e;
}

Exchange gather(const Definition& is, const Communicator& group) {
  const List counts = is.counts_of(3);
  const int64_t root = is.root();
  std::vector<at::Tensor> all;
  for (int64_t r = 0; r < is.size(); ++r) {
    all.push_back(is.data(r, counts[static_cast<size_t>(r)]));
  }
  const bool mine = is.me() == root;
  Exchange e{
      "gather_v",
      is.input(counts[static_cast<size_t>(is.me())]),
      mine ? is.output(total(counts)) : at::Tensor(),
      mine ? at::cat(all) : at::Tensor(),
      {},
      {}};
  e.at_once = [=] { group.gather_v(e.output, e.input, counts, root); };
  e.start = [=] { return group.gather_async(e.output, e.input, counts, root); };
  return e;
}

Exchange choose_exchange(
    const Step& step, const Communicator& group, c10::ScalarType dtype,
    int64_t code) {
  const Definition is(step, group, dtype);
  switch (code % 7) {
    case 0:
      return all_gather(is, group);
    case 1:
      return all_reduce(is, group);
    case 2:
      return reduce_scatter(is, group);
    case 3:
      return all_to_all(is, group);
    case 4:
      return broadcast(is, group);
    case 5:
      return scatter(is, group);
    default:
      return gather(is, group);
  }
}

void check(const Exchange& e, Hash& hash) {
  if (!e.output.defined()) {
    return;
  }
  hash.add_plain(e.output);
  TORCH_CHECK(
      at::equal(e.output, e.expected), e.name, ", rank ", rank(), ": got\n",
      e.output, "\nwant\n", e.expected);
}

std::string play_overlap(
    const Step& step, const DeviceMesh& mesh, Hash& hash,
    const std::function<void()>& between) {
  std::string text;
  std::vector<Exchange> exchanges;
  std::vector<Communicator::Work> works;
  const int64_t count = 2 + step.code(8, 3);
  for (int64_t i = 0; i < count; ++i) {
    const Group group = choose_group(step, mesh, static_cast<size_t>(i));
    exchanges.push_back(choose_exchange(
        step, group.members, step.source.dtype,
        step.code(1, 7) + i * (1 + step.code(2, 6))));
    works.push_back(exchanges.back().start());
    text +=
        (i == 0 ? "" : ", ") + exchanges.back().name + " over " + group.name;
  }
  between();
  const bool backward = step.code(5, 2) == 1;
  for (size_t i = 0; i < works.size(); ++i) {
    works[backward ? works.size() - 1 - i : i].wait();
  }
  for (const Exchange& e : exchanges) {
    check(e, hash);
  }
  return text;
}

// Around a ring, each rank to the next ones; tags and sizes differ.
std::string play_messages(const Step& step, Hash& hash) {
  const World world = init();
  const Communicator all = world.communicator();
  const Definition is(step, all, step.source.dtype);
  const int64_t n = all.size();
  const bool async = step.code(0, 2) == 0;
  for (int64_t hop = 1; hop < n; ++hop) {
    const int64_t to = (is.me() + hop) % n;
    const int64_t from = (is.me() + n - hop) % n;
    const int64_t tag = step.code(1, 5) + hop;
    Exchange e{
        "send, recv",
        is.input(is.count(is.me(), to) + hop),
        is.output(is.count(from, is.me()) + hop),
        is.data(from, is.count(from, is.me()) + hop),
        {},
        {}};
    if (async) {
      Communicator::Work receives = all.recv_async(e.output, from, tag);
      Communicator::Work sends = all.send_async(e.input, to, tag);
      sends.wait();
      receives.wait();
    } else if (is.me() < to) {
      all.send(e.input, to, tag);
      all.recv(e.output, from, tag);
    } else {
      all.recv(e.output, from, tag);
      all.send(e.input, to, tag);
    }
    check(e, hash);
  }
  return async ? "send_async, recv_async" : "send, recv";
}

}  // namespace

std::string play_communication(
    const Step& step, const DeviceMesh& mesh, Hash& hash,
    const std::function<void()>& between) {
  if (step.kind == Kind::kMessages) {
    return play_messages(step, hash);
  }
  if (step.kind == Kind::kOverlap) {
    return play_overlap(step, mesh, hash, between);
  }
  const Group group = choose_group(step, mesh, 0);
  const Exchange e =
      choose_exchange(step, group.members, step.source.dtype, step.code(2, 7));
  e.at_once();
  check(e, hash);
  if (step.code(8, 3) == 0) {
    group.members.barrier();
  }
  return e.name + " over " + group.name;
}

}  // namespace tessera::programs
