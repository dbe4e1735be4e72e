// What a rank of many computes for a save and a load: its own shards, and one
// pass over the names of all.
//
// The ranks are simulated; the checkpoint that they load is real: sparse files,
// of which every byte is 0.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <checkpoint/held_boxes.h>
#include <checkpoint/leaves.h>
#include <checkpoint/scratch_folder.h>
#include <harness/sharded_test.h>
#include <io/checksum/xxh3.h>
#include <io/model/records.h>
#include <io/tessera_format/tessera_writer.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;

constexpr int64_t kTensors = 1024;
constexpr int64_t kColumns = 16;
constexpr uint64_t kBytes = kColumns * sizeof(float);  // of a rank's row

// Instrumented code takes many times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlower = 30;
#else
constexpr double kSlower = 1;
#endif

std::string name_of(int64_t tensor) {
  return "model.layers." + std::to_string(tensor) + ".weight";
}

double cpu_seconds(const std::function<void()>& body) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double begin = now();
  body();
  return now() - begin;
}

// 1,024 tensors, each with a row on every rank.
StateDict make_state(int64_t ranks) {
  const DeviceMesh mesh = mesh_of({ranks});
  StateDict state;
  for (int64_t i = 0; i < kTensors; ++i) {
    state.set(
        name_of(i),
        from_local(at::ones({1, kColumns}, f32()), mesh, {Shard(0)}));
  }
  return state;
}

// What a rank finds out before it writes, without a word to others.
double plan_save(int64_t ranks) {
  double best = 1e9;
  run_simulated({.rank = ranks / 3, .size = ranks}, [&] {
    StateDict state = make_state(ranks);
    for (int round = 0; round < 3; ++round) {
      size_t boxes = 0;
      best = std::min(
          best, cpu_seconds([&] {
            int64_t turn = 0;
            for (const auto& leaf : detail::leaves_of("c", state)) {
              detail::tensor_meta("c", *leaf.value);
              boxes +=
                  detail::written_boxes(*leaf.value, {true, turn++}).size();
            }
          }));
      EXPECT_EQ(boxes, static_cast<size_t>(kTensors));
    }
  });
  return best;
}

// What a rank tells the first one, when it has written.
std::string records_of(int64_t rank, int64_t ranks) {
  detail::RankRecords records{std::string(16, '0'), rank, {}};
  records.contents.files.push_back(
      {"rank_" + std::to_string(100000 + rank).substr(1) + ".0.bin",
       kTensors * kBytes});
  const uint64_t checksum = detail::xxh3(std::string(kBytes, '\0'));
  for (int64_t i = 0; i < kTensors; ++i) {
    io::Entry entry;
    entry.name = name_of(i);
    entry.path = {entry.name};
    entry.dtype = io::Dtype::kFloat32;
    entry.shape = {ranks, kColumns};
    entry.chunks.push_back(
        {{{rank, 0}, {1, kColumns}},
         {0,
          static_cast<uint64_t>(i) * kBytes,
          kBytes,
          uint64_t{1} << 20,
          {checksum}}});
    records.contents.entries.push_back(std::move(entry));
  }
  return detail::encode_records(records);
}

// Makes a checkpoint of so many ranks; returns the seconds that its first rank
// takes to put the records of all together.
double make_checkpoint(const std::string& path, int64_t ranks) {
  std::filesystem::create_directory(path);
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    records.push_back(records_of(rank, ranks));
  }
  io::SaveTicket ticket;
  ticket.path = path;
  ticket.token = std::string(16, '0');
  ticket.ranks = ranks;
  const double seconds = cpu_seconds([&] {
    detail::write_tessera_manifest(
        detail::Folder::open(io::system_files(), path),
        detail::merge_records(ticket, records));
  });
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string file =
        path + "/rank_" + std::to_string(100000 + rank).substr(1) + ".0.bin";
    std::ofstream{file};
    std::filesystem::resize_file(file, kTensors * kBytes);
  }
  return seconds;
}

// All of checkpoint::load() on one of the ranks, its reads too.
double load_all(const std::string& path, int64_t ranks) {
  double best = 1e9;
  run_simulated({.rank = ranks / 3, .size = ranks}, [&] {
    StateDict state = make_state(ranks);
    for (int round = 0; round < 3; ++round) {
      best =
          std::min(best, cpu_seconds([&] { checkpoint::load(state, path); }));
    }
    for (const auto& [name, value] : state) {
      EXPECT_EQ(to_local(value.to_tensor()).abs().max().item<float>(), 0);
    }
  });
  return best;
}

TEST(Scale, ASaveIsPlannedFromOwnShardsAlone) {
  const double some = plan_save(256), many = plan_save(1024);
  std::cout << "save, 1,024 tensors, CPU of a rank: of 256 " << some * 1e3
            << " ms, of 1,024 " << many * 1e3 << " ms\n";
  EXPECT_LT(many, 0.2 * kSlower);
  EXPECT_LT(many, 2 * some + 0.01) << "it grows with the ranks";
}

TEST(Scale, ALoadAndACommitTakeUnderASecondOfARank) {
  const char* is_long = std::getenv("TESSERA_LONG");
  const bool all = is_long != nullptr && *is_long != '\0' && *is_long != '0';
  const ScratchFolder folder;
  for (const int64_t ranks : {256, 1024}) {
    const std::string path = folder / std::to_string(ranks);
    const double commit = make_checkpoint(path, ranks);
    std::cout << "1,024 tensors, " << ranks
              << " ranks, CPU: the first one puts all together in " << commit
              << " s\n";
    EXPECT_LT(commit, kSlower) << ranks << " ranks";
    if (ranks == 256 || all) {
      const double load = load_all(path, ranks);
      std::cout << "  a rank loads in " << load << " s\n";
      EXPECT_LT(load, kSlower) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace tessera::testing
