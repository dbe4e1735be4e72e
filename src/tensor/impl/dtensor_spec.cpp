#include <tessera/tensor/dtensor_spec.h>

#include <mutex>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <comm/call/call.h>
#include <tensor/state/strides.h>
#include <tessera/layout/notation.h>

namespace tessera {

namespace {

size_t combine(size_t seed, size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

struct SpecKey {
  const DeviceMesh& mesh;
  const Layout& layout;
  const std::vector<int64_t>& strides;
  c10::ScalarType dtype;

  size_t hash() const {
    size_t h = combine(mesh.hash(), layout.hash());
    h = combine(h, static_cast<size_t>(mesh.world().rank()));
    for (int64_t s : strides) {
      h = combine(h, static_cast<size_t>(s));
    }
    return combine(h, static_cast<size_t>(dtype));
  }
  // Ranks that are threads share this table, and a spec answers for one rank.
  bool fits(const DTensorSpec& spec) const {
    return spec.dtype() == dtype && spec.strides() == strides &&
           spec.layout() == layout && spec.mesh() == mesh &&
           spec.mesh().world().rank() == mesh.world().rank();
  }
};

// The table of live specs. Entries leave with the last pointer to their spec.
class SpecTable {
 public:
  static SpecTable& instance() {
    static auto* table = new SpecTable();  // outlives every tensor
    return *table;
  }

  template <class Make>
  SpecPtr find_or_make(const SpecKey& key, Make make) {
    const size_t hash = key.hash();
    std::lock_guard<std::mutex> lock(mutex_);
    auto [begin, end] = specs_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (!key.fits(*it->second.address)) {
        continue;
      }
      if (SpecPtr spec = it->second.spec.lock()) {
        return spec;
      }
    }
    SpecPtr made(make(), [this, hash](const DTensorSpec* spec) {
      forget(hash, spec);
      delete spec;
    });
    specs_.emplace(hash, Entry{made.get(), made});
    return made;
  }

  size_t size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return specs_.size();
  }

 private:
  struct Entry {
    const DTensorSpec* address;  // valid while the entry exists
    std::weak_ptr<const DTensorSpec> spec;
  };

  void forget(size_t hash, const DTensorSpec* spec) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto [begin, end] = specs_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (it->second.address == spec) {
        specs_.erase(it);
        return;
      }
    }
  }

  std::mutex mutex_;
  std::unordered_multimap<size_t, Entry> specs_;
};

}  // namespace

DTensorSpec::DTensorSpec(
    DeviceMesh mesh, Layout layout, std::vector<int64_t> strides,
    c10::ScalarType dtype)
    : mesh_(std::move(mesh)),
      layout_(std::move(layout)),
      strides_(std::move(strides)),
      dtype_(dtype),
      replicated_(layout_.is_replicated()),
      local_shape_(
          mesh_.coordinate() ? layout_.local_shape(*mesh_.coordinate())
                             : std::vector<int64_t>{0}) {}

SpecPtr DTensorSpec::make(
    const DeviceMesh& mesh, const Placements& placements,
    const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
    c10::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      strides.size() == shape.size(),
      "DTensorSpec: shape and strides must have equal length; got ",
      shape_to_string(shape), " and ", shape_to_string(strides));
  Layout layout(shape, mesh.mesh_shape(), placements);
  for (const Placement& p : layout.placements()) {
    TORCH_CHECK_TYPE(
        !p.is_partial() || p.reduce_op() != ReduceOp::kAvg ||
            c10::isFloatingType(dtype) || c10::isComplexType(dtype),
        "DTensorSpec(", dtype_name(dtype), shape_to_string(shape), " ",
        to_string(placements), "): an average of ", dtype_name(dtype),
        " values has no exact value; use P(sum), or convert first");
  }
  return SpecTable::instance().find_or_make(
      SpecKey{mesh, layout, strides, dtype},
      [&] { return new DTensorSpec(mesh, layout, strides, dtype); });
}

SpecPtr DTensorSpec::make(
    const DeviceMesh& mesh, const Placements& placements,
    const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  return make(
      mesh, placements, shape, detail::contiguous_strides(shape), dtype);
}

SpecPtr DTensorSpec::with_placements(const Placements& placements) const {
  return make(mesh_, placements, shape(), strides_, dtype_);
}

SpecPtr DTensorSpec::with_dtype(c10::ScalarType dtype) const {
  return make(mesh_, placements(), shape(), strides_, dtype);
}

SpecPtr DTensorSpec::with_shape(
    const std::vector<int64_t>& shape,
    const std::vector<int64_t>& strides) const {
  return make(mesh_, placements(), shape, strides, dtype_);
}

SpecPtr DTensorSpec::contiguous(
    const Placements& placements, c10::ScalarType dtype) const {
  return make(mesh_, placements, shape(), dtype);
}

size_t DTensorSpec::live_count() {
  return SpecTable::instance().size();
}

std::string to_string(const DTensorSpec& spec) {
  return dtype_name(spec.dtype()) + shape_to_string(spec.shape()) + " " +
         to_string(spec.placements()) + " @ " + to_string(spec.mesh());
}

std::string dtype_name(c10::ScalarType dtype) {
  return detail::dtype_name(dtype);
}

}  // namespace tessera
