#include "comm/process_ranks.h"

#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <numeric>

#include <ATen/ops/empty.h>
#include <base/copy_bytes.h>
#include <c10/util/Exception.h>

#include "comm/call/rank_errors.h"
#include "comm/engine/c10d/c10d_transport.h"

namespace tessera::detail::inline comm_layer {
namespace {

std::string wanted_engine(Engine engine, const Launch& launch) {
  const std::string named = environment("TESSERA_ENGINE");
  switch (engine) {
    case Engine::kMpi:
      return "mpi";
    case Engine::kC10d:
      return "gloo";
    case Engine::kAuto:
    case Engine::kThreads:
    case Engine::kNccl:
    case Engine::kSimulated:
      break;
  }
  return named.empty() ? launch.engine : named;
}

// The file beside this library that holds an engine, and its factory.
using MakeTransport = Transport* (*)();

MakeTransport find_plugin(const std::string& engine) {
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&find_plugin), &here);
  const std::string path = here.dli_fname;
  const std::string file = path.substr(0, path.find_last_of('/') + 1) +
                           "libtessera_" + engine + ".so";
  // Global: MPI's own plugins look for its symbols.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  TORCH_CHECK_NOT_IMPLEMENTED(
      library != nullptr, "init: this build has no engine '", engine,
      "': ", dlerror());
  void* symbol = dlsym(library, ("tessera_" + engine + "_transport").c_str());
  TORCH_INTERNAL_ASSERT(symbol != nullptr, file, " is not an engine");
  return reinterpret_cast<MakeTransport>(symbol);
}

}  // namespace

std::unique_ptr<Transport> load_transport(
    const std::string& engine, const Launch& launch,
    std::chrono::milliseconds deadline) {
  if (engine == "gloo") {
    return open_gloo_transport(launch, deadline);
  }
  std::unique_ptr<Transport> transport(find_plugin(engine)());
  TORCH_CHECK_VALUE(
      transport->rank() == launch.rank && transport->size() == launch.size,
      "init: ", launch.source, " says rank ", launch.rank, " of ", launch.size,
      ", but ", engine, " says rank ", transport->rank(), " of ",
      transport->size());
  return transport;
}

std::shared_ptr<ProcessWorld> this_process(
    Engine engine, std::chrono::milliseconds deadline) {
  static std::mutex mutex;
  static std::shared_ptr<ProcessWorld> world;
  static bool looked = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (looked) {
    return world;
  }
  if (environment("TESSERA_ENGINE") != "threads" &&
      engine != Engine::kThreads) {
    if (const auto launch = find_launch()) {
      world = std::make_shared<ProcessWorld>(
          load_transport(wanted_engine(engine, *launch), *launch, deadline),
          deadline);
    }
  }
  looked = true;
  return world;
}

namespace {

// Some of a network's ranks as a network: a world inside the world.
class InnerTransport final : public Transport {
 public:
  InnerTransport(Transport& outer, int64_t size, uint64_t world)
      : outer_(outer), size_(size), world_(world) {}
  int64_t rank() const override { return outer_.rank(); }
  int64_t size() const override { return size_; }
  std::string name() const override { return outer_.name(); }
  std::unique_ptr<Channel> join(
      const std::vector<int64_t>& ranks, const std::string& key) override {
    return outer_.join(ranks, "world " + std::to_string(world_) + ", " + key);
  }
  void notify(const std::vector<int64_t>& ranks, const PeerEvent& what) noexcept
      override {
    PeerEvent mine = what;
    mine.world = world_;
    outer_.notify(ranks, mine);
  }
  std::vector<PeerEvent> poll_events(uint64_t /*world*/) override {
    return outer_.poll_events(world_);
  }

 private:
  Transport& outer_;
  int64_t size_;
  uint64_t world_;
};

std::shared_ptr<ProcessWorld>& inner_world() {
  static std::shared_ptr<ProcessWorld> world;
  return world;
}

// Gathers one text per process; "" where a process has none.
std::vector<std::string> gather_texts(
    const std::string& mine, const Communicator& all) {
  const auto bytes = [](const std::string& text) {
    at::Tensor t = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
    base::copy_bytes(t.mutable_data_ptr(), text.data(), text.size());
    return t;
  };
  const at::Tensor lengths = at::empty({all.size()}, at::kLong);
  const at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<int64_t>() = static_cast<int64_t>(mine.size());
  all.all_gather(lengths, length);
  const auto* counts = lengths.const_data_ptr<int64_t>();
  const std::vector<int64_t> list(counts, counts + all.size());
  const at::Tensor joined = at::empty(
      {std::accumulate(list.begin(), list.end(), int64_t{0})}, at::kByte);
  all.all_gather_v(joined, bytes(mine), list);
  std::vector<std::string> texts;
  const char* next = static_cast<const char*>(joined.const_data_ptr());
  for (const int64_t size : list) {
    texts.emplace_back(next, static_cast<size_t>(size));
    next += size;
  }
  return texts;
}

}  // namespace

std::shared_ptr<ProcessWorld> current_process_world() {
  return inner_world() != nullptr ? inner_world() : this_process();
}

void run_process_ranks(
    int64_t n, const std::function<void()>& body,
    std::chrono::milliseconds deadline) {
  static uint64_t worlds = 0;
  const auto outer = this_process();
  TORCH_CHECK_VALUE(
      n <= outer->size(), "run_ranks: ", n,
      " ranks were asked for, but the job "
      "has ",
      outer->size(), " processes");
  ++worlds;
  std::exception_ptr failure;
  bool heard = false;
  if (outer->rank() < n) {
    inner_world() = std::make_shared<ProcessWorld>(
        std::make_unique<InnerTransport>(outer->transport(), n, worlds),
        deadline);
    try {
      run_as_process(*inner_world(), body);
      inner_world()->leave("");
    } catch (...) {
      failure = std::current_exception();
      heard = inner_world()->heard_failure();
    }
    inner_world().reset();
  }
  // Ranks that only heard of a failure are not where it began.
  const std::string mine =
      failure ? (heard ? "0" : "1") + message_of(failure) : "";
  const auto texts = gather_texts(mine, World(outer).communicator());
  for (const char kind : {'1', '0'}) {
    for (size_t r = 0; r < texts.size(); ++r) {
      if (texts[r].empty() || texts[r][0] != kind) {
        continue;
      }
      const std::string who =
          "rank " + std::to_string(r) + " of " + std::to_string(n);
      if (static_cast<int64_t>(r) == outer->rank()) {
        rethrow_with_rank(failure, who);
      }
      TORCH_CHECK(false, texts[r].substr(1), " (", who, ")");
    }
  }
}

void run_as_process(ProcessWorld& world, const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    world.leave(message_of(std::current_exception()));
    world.logs()->flight->rank_failed(std::current_exception());
    throw;
  }
}

}  // namespace tessera::detail::inline comm_layer
