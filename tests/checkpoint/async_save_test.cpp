// A save beside the program: what it holds, what goes wrong, who waits when.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tessera/checkpoint/checkpoint.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include <checkpoint/calls/async_saves.h>
#include <checkpoint/scratch_folder.h>
#include <harness/sharded_test.h>
#include <io/files/faulty_file_system.h>
#include <tessera/sharded_tensor/create.h>

namespace tessera::testing {
namespace {

using checkpoint::Format;
using checkpoint::Handle;
using checkpoint::Progress;
using checkpoint::StateDict;

// Holds writing threads back in SaveOptions::progress.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return is_open_; });
  }
  auto callback() {
    return [this](const Progress&) { pass(); };
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

class OpenAtEnd {
 public:
  explicit OpenAtEnd(Gate& gate) : gate_(gate) {}
  ~OpenAtEnd() { gate_.open(); }

 private:
  Gate& gate_;
};

size_t count_names(const std::string& folder) {
  const std::filesystem::directory_iterator names(folder);
  return static_cast<size_t>(std::distance(begin(names), end(names)));
}

at::Tensor rows(const at::Tensor& value) {
  return distribute_tensor(value, mesh_of({world_size()}), {Shard(0)});
}

int64_t saved_step(const std::string& path) {
  StateDict dict{{"step", 0}};
  checkpoint::load(dict, path, {.strict = false});
  return dict.at("step").to_int();
}

TEST(AsyncSave, WhatChangesAfterTheCallIsNotSaved) {
  for (const Format format :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    const ScratchFolder folder;
    Gate gate;
    run_ranks(4, [&] {
      const OpenAtEnd opener(gate);
      const at::Tensor value = distinct({7, 6});
      const at::Tensor sharded = rows(value);
      const at::Tensor columns =
          distribute_tensor(value, mesh_of({4}), {Shard(1)});
      const at::Tensor copies =
          distribute_tensor(value, mesh_of({4}), {Replicate()});
      const at::Tensor plain_one = value.clone();
      const at::Tensor transposed = value.clone().t();
      StateDict state{
          {"first", rows(counting({4}))},
          {"w", sharded},
          {"c", columns},
          {"r", copies},
          {"p", plain_one},
          {"t", transposed},
          {"step", 5}};
      const Handle handle = checkpoint::save_async(
          state, folder / "a", {.format = format, .progress = gate.callback()});
      EXPECT_FALSE(handle.done());
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor t : {sharded, columns, copies, plain_one, transposed}) {
          t.fill_(std::nan(""));
        }
      }
      state.set("step", 6);
      init().communicator().barrier();
      gate.open();
      handle.wait();
      EXPECT_TRUE(handle.done());
      EXPECT_EQ(handle.progress().bytes, handle.progress().total);

      StateDict loaded{
          {"first", at::zeros({4}, f64())},
          {"w", at::zeros({7, 6}, f64())},
          {"c", rows(at::zeros({7, 6}, f64()))},
          {"r", at::zeros({7, 6}, f64())},
          {"p", at::zeros({7, 6}, f64())},
          {"t", at::zeros({6, 7}, f64())},
          {"step", 0}};
      checkpoint::load(loaded, folder / "a");
      for (const char* name : {"w", "c", "r", "p"}) {
        EXPECT_TRUE(same(loaded.at(name).to_tensor(), value)) << name;
      }
      EXPECT_TRUE(same(loaded.at("t").to_tensor(), value.t()));
      EXPECT_EQ(loaded.at("step").to_int(), 5);
    });
    EXPECT_EQ(count_names(folder.path()), 1);
  }
}

std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {
        std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

TEST(AsyncSave, FilesAreThoseOfSave) {
  namespace st = sharded_tensor;
  for (const Format format :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    const ScratchFolder folder;
    run_ranks(3, [&] {
      const st::ChunkShardingSpec spec(
          0, {"rank:0/cpu", "rank:1/cpu", "rank:2/cpu"});
      const at::Tensor complex =
          at::complex(distinct({3}), counting({3})).conj();
      StateDict state{
          {"uneven", rows(distinct({4, 3}))},  // the last rank has none
          {"empty", rows(at::zeros({0, 3}, f64()))},
          {"strided",
           distribute_tensor(
               distinct({7, 6}), mesh_of({3}), {StridedShard(0, 2)})},
          {"large", distribute_tensor(
                        distinct({3, 70000}), mesh_of({3}), {Replicate()})},
          {"table", st::full(spec, {5, 4}, 2.5, {.dtype = at::kDouble})},
          {"number", 3}};
      if (format != Format::kSafetensors) {
        state.set("conjugate", complex);
        state.set("list", checkpoint::StateValue::List{1, "a"});
      }
      checkpoint::save(state, folder / "a", {.format = format});
      checkpoint::save_async(state, folder / "b", {.format = format}).wait();
    });
    EXPECT_EQ(files_in(folder / "a"), files_in(folder / "b"));
  }
}

TEST(AsyncSave, TheProgramGoesOnWithCollectivesMeanwhile) {
  const ScratchFolder folder;
  Gate gate;
  run_ranks(4, [&] {
    const OpenAtEnd opener(gate);
    at::Tensor weight = rows(at::ones({8, 4}, f64()));
    const Handle handle = checkpoint::save_async(
        {{"w", weight}}, folder / "a", {.progress = gate.callback()});
    for (int step = 0; step < 20; ++step) {
      weight = weight + full_tensor(weight.sum()).item().toDouble();
    }
    EXPECT_FALSE(handle.done());
    gate.open();
    while (!handle.done()) {  // without a collective call
      std::this_thread::yield();
    }
    EXPECT_TRUE(std::filesystem::exists(folder / "a"));
    handle.wait();
    StateDict dict{{"w", at::zeros({8, 4}, f64())}};
    checkpoint::load(dict, folder / "a");
    EXPECT_TRUE(same(dict.at("w").to_tensor(), at::ones({8, 4}, f64())));
  });
}

TEST(AsyncSave, RanksMayBeProcesses) {
  const bool on_processes = harness::on_processes();
  const ScratchFolder folder;
  const std::string path = shared_path(folder) + "/a";
  run_ranks(static_cast<int>(on_processes ? world_size() : 3), [&] {
    const at::Tensor weight = rows(counting({6, 2}));
    for (int64_t step = 1; step <= 3; ++step) {
      const Handle handle = checkpoint::save_async(
          {{"w", weight}, {"step", step}}, path,
          {.overwrite = true, .progress = [&, me = rank()](const Progress&) {
             TORCH_CHECK(step != 2 || me != 1, "no power");
           }});
      for (int call = 0; call < 10; ++call) {
        init().communicator().barrier();
      }
      if (step == 2) {
        EXPECT_ERROR("on rank 1: no power", handle.wait());
      } else {
        handle.wait();
      }
      EXPECT_EQ(saved_step(path), step == 2 ? 1 : step);
    }
  });
}

TEST(AsyncSave, AnErrorOfOneRankIsThrownOnAllAndTheOldCheckpointStays) {
  const ScratchFolder folder;
  run_ranks(3, [&] {
    const at::Tensor weight = rows(counting({6, 2}));
    checkpoint::save({{"w", weight}, {"step", 1}}, folder / "a");
    for (int64_t bad = 0; bad < 3; ++bad) {
      const Handle handle = checkpoint::save_async(
          {{"w", weight}, {"step", 2}}, folder / "a",
          {.overwrite = true, .progress = [bad, me = rank()](const Progress&) {
             TORCH_CHECK(me != bad, "no power");
           }});
      const std::string want = "on rank " + std::to_string(bad) + ": no power";
      EXPECT_ERROR(want, handle.wait());
      EXPECT_ERROR(want, handle.wait());
      EXPECT_TRUE(handle.done());
      EXPECT_EQ(saved_step(folder / "a"), 1) << "wait() has told the error";
    }
    EXPECT_EQ(count_names(folder.path()), 1);
  });
}

TEST(AsyncSave, AnErrorThatNobodyWaitedForIsThrownByTheNextSave) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const at::Tensor weight = rows(counting({6, 2}));
    const auto fail = [&] {
      return checkpoint::save_async(
          {{"w", weight}}, folder / "bad",
          {.progress = [me = rank()](const Progress&) {
            TORCH_CHECK(me != 1, "no power");
          }});
    };
    const Handle handle = fail();
    EXPECT_ERROR(
        "on rank 1: no power",
        checkpoint::save({{"step", 1}}, folder / "good"));
    EXPECT_FALSE(std::filesystem::exists(folder / "good"));
    EXPECT_ERROR("on rank 1: no power", handle.wait());
    checkpoint::save({{"step", 1}}, folder / "good");
    fail();
    EXPECT_ERROR(
        "met by checkpoint::save_async(\"" + folder / "other",
        checkpoint::save_async({{"step", 1}}, folder / "other"));
    fail();
    StateDict dict{{"step", 0}};
    EXPECT_ERROR("no power", checkpoint::load(dict, folder / "good"));
    checkpoint::load(dict, folder / "good");
    EXPECT_EQ(dict.at("step").to_int(), 1);
  });
}

class NoWarnings : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Any call of the file system, in the call or on a writing thread of any rank.
TEST(AsyncSave, AFullDiskAtAnyCallIsAnErrorOnAllRanks) {
  const ScratchFolder folder;
  const std::string path = folder / "a";
  std::deque<io_test::FaultyFileSystem> all_files;  // outlive what is written
  run_ranks(3, [&] {
    const at::Tensor weight = rows(counting({7, 3}));
    const Communicator group = init().communicator();
    NoWarnings silent;  // of old files that could not be removed
    const c10::WarningUtils::WarningHandlerGuard no_warnings(&silent);
    bool is_end = false;
    int64_t old_ones = 0;
    for (int64_t n = 1; !is_end; ++n) {
      checkpoint::save({{"w", weight}, {"step", 1}}, path, {.overwrite = true});
      std::optional<io::SystemFilesReplaced> replaced;
      if (rank() == 0) {
        all_files.emplace_back().fail_at(n, ENOSPC);
        replaced.emplace(all_files.back());
      }
      group.barrier();
      const std::string error = error_of([&] {
        checkpoint::save_async(
            {{"w", weight}, {"step", 2}}, path, {.overwrite = true})
            .wait();
      });
      group.barrier();
      replaced.reset();
      is_end = all_files.back().calls() < n;
      group.barrier();
      const int64_t step = saved_step(path);
      old_ones += step == 1 ? 1 : 0;
      EXPECT_TRUE(step == 2 || !error.empty()) << "call " << n;
      EXPECT_TRUE(error.empty() || error.starts_with("on rank ")) << error;
      EXPECT_TRUE(error.empty() || error.find("(ENOSPC)") != error.npos)
          << error;
      EXPECT_TRUE(error.empty() || error.find(folder.path()) != error.npos)
          << error;
    }
    EXPECT_GT(old_ones, 30);
  });
  EXPECT_EQ(count_names(folder.path()), 1);
}

TEST(AsyncSave, BadInputIsThrownInTheCallOnEveryRank) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    checkpoint::save({{"step", 1}}, folder / "a");
    EXPECT_ERROR(
        "is there already",
        checkpoint::save_async({{"step", 2}}, folder / "a"));
    EXPECT_ERROR(
        "rank 0 has 'step' 0, rank 1 has 'step' 1",
        checkpoint::save_async({{"step", rank()}}, folder / "b"));
    EXPECT_ERROR(
        "holds partial values",
        checkpoint::save_async(
            {{"g",
              from_local(at::ones({2}, f64()), mesh_of({2}), {Partial()})}},
            folder / "b"));
    EXPECT_ERROR(
        "nowhere", checkpoint::save_async({{"step", 2}}, folder / "nowhere/b"));
    EXPECT_ERROR(
        "path", checkpoint::save_async(
                    {{"n", 1}}, folder / ("r" + std::to_string(rank()))));
  });
  EXPECT_EQ(count_names(folder.path()), 1);
}

TEST(AsyncSave, OneIsUnderWayAtATimeAndLaterOnesWait) {
  const ScratchFolder folder;
  Gate gate;
  std::atomic<bool> is_held = true;
  std::thread opens;
  run_ranks(3, [&] {
    const OpenAtEnd opener(gate);
    const at::Tensor weight = rows(counting({6, 2}));
    const Handle first = checkpoint::save_async(
        {{"w", weight}, {"step", 1}}, folder / "a",
        {.progress = gate.callback()});
    if (rank() == 0) {
      opens = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        is_held = false;
        gate.open();
      });
    }
    const Handle second = checkpoint::save_async(
        {{"w", weight}, {"step", 2}}, folder / "a", {.overwrite = true});
    EXPECT_FALSE(is_held) << "the second call waits for the first save";
    EXPECT_TRUE(first.done());
    const Handle third =
        checkpoint::save_async({{"w", weight}, {"step", 3}}, folder / "b");
    EXPECT_EQ(saved_step(folder / "a"), 2);
    EXPECT_EQ(saved_step(folder / "b"), 3) << "load waits too";
  });
  opens.join();
  EXPECT_EQ(count_names(folder.path()), 2);
}

TEST(AsyncSave, ADroppedHandleDropsNothing) {
  const ScratchFolder folder;
  Gate gate;
  run_ranks(3, [&] {
    checkpoint::save_async(
        {{"w", rows(counting({6, 2}))}, {"step", 4}}, folder / "a",
        {.progress = gate.callback()});
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  gate.open();  // its world has ended: the next call waits for the thread
  run_ranks(2, [&] { EXPECT_EQ(saved_step(folder / "a"), 4); });
}

TEST(AsyncSave, TheCopyIsOfTheRanksOwnBytesAndItsMemoryIsKept) {
  const ScratchFolder folder;
  run_ranks(4, [&] {
    const int64_t n = int64_t{1} << 20;
    const at::Tensor sharded = rows(at::zeros({n}, f64()));
    const at::Tensor copies =
        distribute_tensor(at::zeros({n}, f64()), mesh_of({4}), {Replicate()});
    const StateDict state{{"s", sharded}, {"r", copies}};
    const auto save = [&] {
      const Handle handle =
          checkpoint::save_async(state, folder / "a", {.overwrite = true});
      EXPECT_EQ(handle.progress().total, 2 * n * 8 / 4);
      handle.wait();
      return detail::snapshot_of(init()).memory();
    };
    const auto first = save();
    EXPECT_EQ(first.size, static_cast<size_t>(2 * n * 8 / 4));
    const auto second = save();
    EXPECT_EQ(second.memory, first.memory) << "the memory is reused";
    EXPECT_EQ(second.size, first.size);
  });
}

TEST(AsyncSave, StepsBecomeTheLatestAndOldOnesGo) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    Handle last;
    EXPECT_TRUE(last.done());
    last.wait();
    for (int64_t step = 10; step <= 40; step += 10) {
      last =
          checkpoint::save_step_async({{"step", step}}, folder.path(), step, 2);
    }
    last.wait();
    EXPECT_EQ(checkpoint::latest(folder.path()), last.path());
    EXPECT_EQ(saved_step(last.path()), 40);
    EXPECT_ERROR(
        "counted from 0",
        checkpoint::save_step_async({{"step", 1}}, folder.path(), -1));
  });
  EXPECT_EQ(count_names(folder.path()), 3);
}

TEST(AsyncSave, ProgressGoesUpToTheTotal) {
  const ScratchFolder folder;
  run_ranks(2, [&] {
    const at::Tensor weight = rows(at::zeros({7, 1 << 20}, f64()));
    for (const bool async : {false, true}) {
      std::vector<Progress> seen;
      const checkpoint::SaveOptions options{
          .overwrite = true,
          .progress = [&](const Progress& p) { seen.push_back(p); }};
      if (async) {
        checkpoint::save_async({{"w", weight}}, folder / "a", options).wait();
      } else {
        checkpoint::save({{"w", weight}}, folder / "a", options);
      }
      ASSERT_GE(seen.size(), 2U) << "at least every 16 MiB";
      for (size_t i = 1; i < seen.size(); ++i) {
        EXPECT_GT(seen[i].bytes, seen[i - 1].bytes);
      }
      EXPECT_EQ(seen.back().bytes, seen.back().total);
      EXPECT_EQ(seen.back().total, (rank() == 0 ? 4 : 3) * (int64_t{8} << 20));
    }
  });
}

TEST(AsyncSaveDeathTest, TheEndOfTheProgramWaits) {
  const ScratchFolder folder;
  const auto begin = [&](const std::string& name, bool fails) {
    checkpoint::save_async(
        {{"w", counting({6, 2})}}, folder / name,
        {.progress = [fails](const Progress&) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          TORCH_CHECK(!fails, "no power");
        }});
    EXPECT_FALSE(std::filesystem::exists(folder / name));
    std::exit(0);
  };
  EXPECT_EXIT(begin("good", false), ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(checkpoint::verify(folder / "good").empty());
  EXPECT_EXIT(begin("bad", true), ::testing::ExitedWithCode(0), "no power");
  EXPECT_EQ(count_names(folder.path()), 1);
}

// As loaders of data do: the child has the objects, but the save is not its.
TEST(AsyncSave, AForkedChildLeavesTheSaveAlone) {
  const ScratchFolder folder;
  Gate gate;
  const OpenAtEnd opener(gate);
  const Handle handle = checkpoint::save_async(
      {{"w", counting({6, 2})}, {"step", 3}}, folder / "a",
      {.progress = gate.callback()});
  const pid_t child = ::fork();
  if (child == 0) {
    std::exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "its end waits for nothing";
  gate.open();
  handle.wait();
  EXPECT_EQ(saved_step(folder / "a"), 3);
}

TEST(AsyncSave, AloneToo) {
  const ScratchFolder folder;
  const at::Tensor value = distinct({4, 3});
  const Handle handle = checkpoint::save_async(
      {{"w", value}}, folder / "a.safetensors",
      {.format = Format::kSafetensors});
  handle.wait();
  StateDict dict{{"w", at::zeros({4, 3}, f64())}};
  checkpoint::load(dict, folder / "a.safetensors");
  EXPECT_TRUE(same(dict.at("w").to_tensor(), value));
}

}  // namespace
}  // namespace tessera::testing
