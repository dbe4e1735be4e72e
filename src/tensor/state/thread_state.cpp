#include <tensor/state/thread_state.h>

#include <pthread.h>

#include <cstring>

#include <c10/util/Exception.h>

namespace tessera::detail::inline tensor_layer {

constinit thread_local ThreadState* ThreadState::mine = nullptr;

std::atomic<uint64_t> state_generation{0};

void forget_all_decisions() {
  ++state_generation;
}

namespace {
thread_local bool is_over = false;
}  // namespace

struct ThreadState::Owner {
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    owned->clear_decisions();  // its wrappers give their memory back
    mine = nullptr;
    is_over = true;
  }
  const std::unique_ptr<ThreadState> owned = make_thread_state();
};

ThreadState& ThreadState::make() {
  // On the heap: the thread's own block is small.
  if (is_over) {
    mine = make_late_owner()->owned.get();
  } else {
    thread_local const auto owner = std::make_unique<Owner>();
    mine = owner->owned.get();
  }
  return *mine;
}

// Tensors in other data of the thread may outlive its owner. They get a second
// one, which ends with the thread's keys: pthread calls those after the
// destructors of all thread_local data.
ThreadState::Owner* ThreadState::make_late_owner() {
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

}  // namespace tessera::detail::inline tensor_layer
