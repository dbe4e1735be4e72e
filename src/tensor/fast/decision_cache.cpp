#include <tensor/fast/decision_cache.h>

#include <pthread.h>

#include <cstring>

#include <c10/util/Exception.h>
#include <tensor/call/rule_operands.h>
#include <tensor/checks/replication_check.h>
#include <tensor/state/strides.h>

namespace tessera::detail {

CallKey::CallKey(const OpCall& call, const OpTraits& traits) {
  add(reinterpret_cast<uintptr_t>(&call.schema()));
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call.argument(i);
    switch (traits.arguments[i].kind) {
      case ArgumentTraits::Kind::kTensor:
        if (value.isTensor()) {
          add_tensor(value.toTensor());
        } else {
          add(kNone);
        }
        break;
      case ArgumentTraits::Kind::kTensors:
        if (value.isNone()) {
          add(kNone);
          break;
        }
        add(kList);
        add(value.toListRef().size());
        for (const c10::IValue& element : value.toListRef()) {
          element.isTensor() ? add_tensor(element.toTensor()) : add(kNone);
        }
        break;
      case ArgumentTraits::Kind::kStatic:
        if (traits.arguments[i].keyed) {
          add_static(value);
        }
        break;
    }
  }
}

void CallKey::add_other(const at::Tensor& t) {
  const auto is_compared = [&] {
    return !t.unsafeGetTensorImpl()->is_wrapped_number() &&
           checks_replication();
  };
  if (!t.defined()) {
    add(kUndefined);
  } else if (t.dim() == 0 && !is_compared()) {
    add(kNumber | static_cast<uint64_t>(t.scalar_type()) << 8 |
        uint64_t{t.unsafeGetTensorImpl()->is_wrapped_number()} << 16 |
        static_cast<uint64_t>(t.device().type()) << 24);
  } else {
    simple_ = false;
    add_plain(t);
  }
}

void CallKey::add_plain(const at::Tensor& t) {
  add(kPlain | static_cast<uint64_t>(t.scalar_type()) << 8 |
      static_cast<uint64_t>(t.dim()) << 16);
  for (int64_t d = 0; d < t.dim(); ++d) {
    add(static_cast<uint64_t>(t.size(d)));
    add(static_cast<uint64_t>(t.stride(d)));
  }
}

void CallKey::add_static(const c10::IValue& value) {
  if (value.isInt()) {
    add_typed(value.toInt());
  } else if (value.isDouble()) {
    add_typed(value.toDouble());
  } else if (value.isBool()) {
    add_typed(value.toBool());
  } else if (value.isNone()) {
    add_none();
  } else if (value.isList()) {
    const auto list = value.toListRef();
    begin_list(list.size());
    for (const c10::IValue& element : list) {
      add_static(element);
    }
  } else if (value.isString()) {
    add_typed(std::string_view(value.toStringRef()));
  } else if (value.isDevice()) {
    add(kOther);
    add(static_cast<uint64_t>(value.toDevice().type()) << 8 |
        static_cast<uint8_t>(value.toDevice().index()));
  } else {
    complete_ = false;
  }
}

void CallKey::add_scalar(const at::Scalar& value) {
  if (value.isSymbolic()) {
    complete_ = false;
  } else if (value.isFloatingPoint()) {
    add_typed(value.toDouble());
  } else if (value.isBoolean()) {
    add_typed(value.toBool());
  } else if (value.type() == at::kLong) {
    add_typed(value.toLong());
  } else {
    complete_ = false;
  }
}

void CallKey::add_typed(std::string_view text) {
  add(kText | text.size() << 8);
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    add(word);
  }
}

std::vector<SpecPtr> CallKey::specs(const OpCall& call) const {
  std::vector<SpecPtr> specs;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (is_sharded(t)) {
      specs.push_back(moving_meta_of(t).spec);
    }
  });
  return specs;
}

constinit thread_local ThreadDispatch* ThreadDispatch::mine = nullptr;

namespace {
thread_local bool is_over = false;
}  // namespace

struct ThreadDispatch::Owner {
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    owned.cache.clear();  // its wrappers give their memory back
    mine = nullptr;
    is_over = true;
  }
  ThreadDispatch owned;
};

ThreadDispatch& ThreadDispatch::make() {
  // On the heap: the thread's own block is small.
  if (is_over) {
    mine = &make_late_owner()->owned;
  } else {
    thread_local const auto owner = std::make_unique<Owner>();
    mine = &owner->owned;
  }
  return *mine;
}

// Tensors in other data of the thread may outlive its owner. They get a second
// one, which ends with the thread's keys: pthread calls those after the
// destructors of all thread_local data.
ThreadDispatch::Owner* ThreadDispatch::make_late_owner() {
  static const pthread_key_t key = [] {
    pthread_key_t made = 0;
    const int error = pthread_key_create(
        &made, [](void* late) { delete static_cast<Owner*>(late); });
    TORCH_CHECK(error == 0, "pthread_key_create: ", std::strerror(error));
    return made;
  }();
  auto owner = std::make_unique<Owner>();
  pthread_setspecific(key, owner.get());
  return owner.release();
}

void ThreadDispatch::forget() {
  generation_ = traits_generation();
  cache.clear();
  traits_.clear();
}

namespace {

// Few words: a call of memcmp() would cost more.
bool are_equal(c10::ArrayRef<uint64_t> a, c10::ArrayRef<uint64_t> b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

const DecisionPtr* DispatchCache::find(const CallKey& key) const {
  const uint64_t hash = key.hash();
  const Place* place = places_[hash % kPlaces].get();
  if (place == nullptr) {
    return nullptr;
  }
  for (size_t i = 0; i < kWays; ++i) {
    if (place->hashes[i] == hash && place->entries[i].decision &&
        are_equal(place->entries[i].words, key.words())) {
      return &place->entries[i].decision;
    }
  }
  return nullptr;
}

const DecisionPtr& DispatchCache::insert(
    const CallKey& key, DecisionPtr decision, std::vector<SpecPtr> specs) {
  auto& place = places_[key.hash() % kPlaces];
  if (!place) {
    place = std::make_unique<Place>();
  }
  Entry& entry = place->entries[place->oldest];
  place->hashes[place->oldest] = key.hash();
  place->oldest = static_cast<uint8_t>((place->oldest + 1) % kWays);
  size_ += entry.decision ? 0 : 1;
  push_out(entry);
  entry.words.assign(key.words().begin(), key.words().end());
  entry.decision = std::move(decision);
  entry.specs = std::move(specs);
  return entry.decision;
}

void DispatchCache::push_out(Entry& entry) {
  if (holds_ > 0 && entry.decision) {
    pushed_out_.push_back(std::move(entry.decision));
  }
}

void DispatchCache::clear() {
  for (const auto& place : places_) {
    if (place) {
      for (Entry& entry : place->entries) {
        push_out(entry);
      }
    }
  }
  places_.clear();
  places_.resize(kPlaces);
  size_ = 0;
}

}  // namespace tessera::detail
