#include <tensor/checks/replicas.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include <ATen/ops/abs.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <base/hash.h>
#include <base/text.h>
#include <comm/agreement.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// What one rank says of one replica.
struct Digest {
  int64_t mesh_dims = 0;  // bit m: copies along mesh dim m
  int64_t kind = 0;       // hash of dtype and shape; 0 where there is none
  int64_t content = 0;    // hash of the bytes
};

// What one rank says of the elements that differ from the first copy.
struct Distance {
  double count = 0;
  double largest = 0;
  double index = 0;
  double first = 0;
  double mine = 0;
};

uint64_t hash_bytes(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.cpu().contiguous();
  const auto* bytes = static_cast<const char*>(flat.const_data_ptr());
  const size_t size = flat.nbytes();
  size_t hash = size;
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof(word), size - i));
    hash = base::hash_combine(hash, word);
  }
  return hash;
}

std::vector<int64_t> replicated_dims(const DTensorSpec& spec) {
  std::vector<int64_t> dims;
  for (int64_t m = 0; m < spec.mesh().ndim(); ++m) {
    if (spec.placements()[static_cast<size_t>(m)].is_replicate()) {
      dims.push_back(m);
    }
  }
  return dims;
}

Digest digest_of(const Replica& replica) {
  Digest digest;
  for (int64_t m : replicated_dims(*replica.spec)) {
    digest.mesh_dims |= int64_t{1} << m;
  }
  if (replica.local.defined()) {
    const auto kind = base::hash_combine(
        base::hash_combine(
            static_cast<size_t>(replica.local.scalar_type()),
            replica.local.sizes().vec()),
        replica.spec->shape());
    digest.kind = static_cast<int64_t>(kind | 1);
    digest.content = static_cast<int64_t>(hash_bytes(replica.local));
  }
  return digest;
}

// The place, in the mesh's row-major order, of the first copy of what place
// `mesh_index` holds: coordinate 0 along every mesh dim of copies.
size_t first_copy(
    size_t mesh_index, int64_t mesh_dims,
    const std::vector<int64_t>& mesh_shape) {
  size_t first = mesh_index;
  size_t stride = 1;
  for (size_t m = mesh_shape.size(); m-- > 0;) {
    const auto size = static_cast<size_t>(mesh_shape[m]);
    if ((mesh_dims >> m & 1) != 0) {
      first -= mesh_index / stride % size * stride;
    }
    stride *= size;
  }
  return first;
}

at::Tensor as_doubles(const at::Tensor& t) {
  const at::Tensor real =
      t.is_complex() ? at::view_as_real(t.resolve_conj()) : t.resolve_neg();
  return real.to(at::kCPU, at::kDouble).contiguous().flatten();
}

Distance distance_of(
    const at::Tensor& local, const at::Tensor& first, double tolerance) {
  const at::Tensor a = as_doubles(first);
  const at::Tensor b = as_doubles(local);
  const at::Tensor both_nan = at::isnan(a).logical_and(at::isnan(b));
  const at::Tensor bound = at::maximum(a.abs(), b.abs()).mul(tolerance);
  // Equal infinities have the distance NaN: compare before subtracting.
  at::Tensor distance = a.sub(b).abs();
  distance.masked_fill_(a.eq(b).logical_or(both_nan), 0.0);
  distance.masked_fill_(at::isnan(distance), INFINITY);
  if (c10::isIntegralType(local.scalar_type(), /*includeBool=*/true)) {
    // Neighbours beyond 2^53 are one double.
    const at::Tensor unequal = first.ne(local).cpu().flatten();
    distance.masked_fill_(unequal.logical_and(distance.eq(0)), 1.0);
  }
  const at::Tensor differs = distance.gt(0).logical_and(
      distance.gt(bound).logical_or(distance.eq(INFINITY)));
  Distance result;
  result.count = static_cast<double>(differs.sum().item<int64_t>());
  if (result.count == 0) {
    return result;
  }
  const int64_t at = distance.masked_fill(differs.logical_not(), -1.0)
                         .argmax()
                         .item<int64_t>();
  result.largest = distance[at].item<double>();
  result.first = a[at].item<double>();
  result.mine = b[at].item<double>();
  result.index = static_cast<double>(local.is_complex() ? at / 2 : at);
  return result;
}

std::vector<int64_t> unflatten_index(int64_t flat, at::IntArrayRef shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

// One replica after the digests of all ranks are known.
class Comparison {
 public:
  Comparison(
      const Replica& replica, const DeviceMesh& mesh,
      std::vector<Digest> digests)
      : replica_(replica),
        mesh_(mesh),
        all_(mesh.whole()),
        digests_(std::move(digests)) {}

  bool equal_bytes() const {
    return all_like_first([](const Digest& a, const Digest& b) {
      return a.kind == b.kind && a.content == b.content;
    });
  }

  /// Returns the line of the difference, "" where the values are equal.
  std::string explain(double tolerance) const {
    // All ranks must come to the same decision before the next gather.
    const bool comparable =
        all_like_first([](const Digest& a, const Digest& b) {
          return a.kind == b.kind && a.kind != 0;
        });
    if (!comparable) {
      return replica_.what + ": " + kinds();
    }
    return explain(gather_records<Distance>(all_, {distance(tolerance)}));
  }

 private:
  const std::vector<int64_t>& ranks() const { return all_.ranks(); }
  size_t first_of(size_t mesh_index) const {
    return first_copy(mesh_index, digests_[0].mesh_dims, mesh_.shape());
  }
  template <class Same>
  bool all_like_first(Same same) const {
    for (size_t r = 0; r < digests_.size(); ++r) {
      if (digests_[r].mesh_dims != digests_[0].mesh_dims ||
          !same(digests_[r], digests_[first_of(r)])) {
        return false;
      }
    }
    return true;
  }

  std::string kinds() const {
    std::vector<int64_t> without;
    for (size_t r = 0; r < digests_.size(); ++r) {
      if (digests_[r].kind == 0) {
        without.push_back(ranks()[r]);
      }
    }
    return without.empty() || without.size() == digests_.size()
               ? "the ranks hold it in different shapes, dtypes or placements"
               : "missing on rank " + base::join(without, ", rank ") +
                     ", present on others";
  }

  Distance distance(double tolerance) const {
    const auto dims = replicated_dims(*replica_.spec);
    at::Tensor first = replica_.local.clone(at::MemoryFormat::Contiguous);
    mesh_.communicator_over(dims).broadcast(first, 0);
    return distance_of(replica_.local, first, tolerance);
  }

  std::string explain(const std::vector<Distance>& distances) const {
    std::vector<int64_t> differing;
    size_t worst = 0;
    for (size_t r = 0; r < distances.size(); ++r) {
      if (distances[r].count > 0) {
        differing.push_back(ranks()[r]);
        worst = distances[r].largest > distances[worst].largest ? r : worst;
      }
    }
    if (differing.empty()) {
      return "";
    }
    const Distance& d = distances[worst];
    const std::vector<int64_t> shape = replica_.spec->layout().local_shape(
        mesh_.mesh_shape().coordinate_of(ranks()[worst]).value());
    std::ostringstream line;
    line << replica_.what << (differing.size() == 1 ? ": rank " : ": ranks ")
         << base::join(differing, ", ")
         << (differing.size() == 1 ? " differs" : " differ")
         << " from the first copy; most on rank " << ranks()[worst]
         << " against rank " << ranks()[first_of(worst)] << ", by " << d.largest
         << " at local index "
         << shape_to_string(
                unflatten_index(static_cast<int64_t>(d.index), shape))
         << " (" << d.mine << " and " << d.first << "), in " << d.count
         << " of " << c10::multiply_integers(shape) << " elements";
    return line.str();
  }

  const Replica& replica_;
  const DeviceMesh& mesh_;
  const Communicator all_;
  const std::vector<Digest> digests_;
};

}  // namespace

bool has_replicas(const DTensorSpec& spec) {
  if (!spec.has_shard()) {
    return false;
  }
  for (int64_t m : replicated_dims(spec)) {
    if (spec.mesh().size(m) > 1) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> replica_differences(
    const std::vector<Replica>& replicas, const DeviceMesh& mesh,
    double tolerance) {
  std::vector<Digest> mine;
  for (const Replica& replica : replicas) {
    mine.push_back(digest_of(replica));
  }
  const std::vector<Digest> all = gather_records(mesh.whole(), mine);
  std::vector<std::string> lines;
  for (size_t i = 0; i < replicas.size(); ++i) {
    std::vector<Digest> digests;
    for (size_t r = 0; r * replicas.size() < all.size(); ++r) {
      digests.push_back(all[r * replicas.size() + i]);
    }
    const Comparison comparison(replicas[i], mesh, std::move(digests));
    if (!comparison.equal_bytes()) {
      std::string line = comparison.explain(tolerance);
      if (!line.empty()) {
        lines.push_back(std::move(line));
      }
    }
  }
  return lines;
}

}  // namespace tessera::detail::inline tensor_layer
