// Where the ranks of a job meet, from the variables of its launcher.
#include "comm/engine/c10d/store/meeting_point.h"

#include <gtest/gtest.h>

#include <map>

#include "comm/expect_error.h"

namespace tessera::detail {
namespace {

using Variables = std::map<std::string, std::string>;

Environment from(const Variables& variables) {
  return [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
}

Launch launch_of(const std::string& source, int64_t rank, int64_t local_size) {
  return {
      .source = source,
      .rank = rank,
      .size = 4,
      .local_rank = 0,
      .local_size = local_size,
      .engine = "gloo"};
}

TEST(FirstHost, ReadsTheListsOfSlurm) {
  EXPECT_EQ(first_host("n[01-04,7]"), "n01");
  EXPECT_EQ(first_host("n[01-04,7],m2"), "n01");
  EXPECT_EQ(first_host("m2,n[01-04]"), "m2");
  EXPECT_EQ(first_host("rack[2-3]-n[5,6]"), "rack2-n5");
  EXPECT_EQ(first_host("n[12]-ib"), "n12-ib");
  EXPECT_EQ(first_host("alone"), "alone");
  expect_error<c10::ValueError>(
      [] { first_host("n[01-04"); }, {"SLURM_STEP_NODELIST", "n[01-04"});
}

TEST(PortOf, FollowsFromTheJobsId) {
  EXPECT_EQ(port_of("12.0"), 19283);
  EXPECT_NE(port_of("12.0"), port_of("12.1"));
  for (const char* id : {"", "1234567.3", "prterun-node-77@1"}) {
    EXPECT_GE(port_of(id), 10000);
    EXPECT_LT(port_of(id), 30000);
  }
}

TEST(FindMeetingPoint, TakesWhatTheLauncherNames) {
  const Environment get =
      from({{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "2345"}});
  const MeetingPoint point =
      find_meeting_point(launch_of("torchrun", 0, 2), get);
  EXPECT_EQ(point.address, "node7");
  EXPECT_EQ(point.port, 2345);
  EXPECT_TRUE(point.serves);
  EXPECT_FALSE(find_meeting_point(launch_of("torchrun", 1, 2), get).serves);
}

TEST(FindMeetingPoint, LeavesServingToTheAgentOfTorchrun) {
  const Environment get = from(
      {{"MASTER_ADDR", "node7"},
       {"MASTER_PORT", "2345"},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_FALSE(find_meeting_point(launch_of("torchrun", 0, 4), get).serves);
}

TEST(FindMeetingPoint, PrefersTheFolder) {
  const Environment get =
      from({{"TESSERA_STORE", "/tmp/x"}, {"MASTER_PORT", "no number"}});
  const MeetingPoint point =
      find_meeting_point(launch_of("tessera run", 0, 4), get);
  EXPECT_EQ(point.folder, "/tmp/x");
  EXPECT_FALSE(point.serves);
}

TEST(FindMeetingPoint, IsLoopbackOnOneHost) {
  const MeetingPoint point = find_meeting_point(
      launch_of("Open MPI", 2, 4), from({{"PMIX_NAMESPACE", "12.0"}}));
  EXPECT_EQ(point.address, "127.0.0.1");
  EXPECT_EQ(point.port, 19283);
}

TEST(FindMeetingPoint, IsTheFirstHostOfAStepOfSlurm) {
  const Variables slurm = {
      {"SLURM_JOB_ID", "12"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NODELIST", "n[03-04]"},
      {"PMIX_NAMESPACE", "other"}};
  const MeetingPoint point =
      find_meeting_point(launch_of("Slurm", 3, 2), from(slurm));
  EXPECT_EQ(point.address, "n03");
  EXPECT_EQ(point.port, 19283);
  // mpirun in an allocation starts rank 0 where it likes.
  expect_error<c10::ValueError>(
      [&] { find_meeting_point(launch_of("Open MPI", 3, 2), from(slurm)); },
      {"rank 3", "4 ranks, 2 of them on this host", "MASTER_ADDR",
       "TESSERA_STORE"});
}

TEST(FindMeetingPoint, SaysWhatToSet) {
  expect_error<c10::ValueError>(
      [] { find_meeting_point(launch_of("torchrun", 1, 4), from({})); },
      {"started by torchrun, rank 1", "set MASTER_PORT"});
  for (const char* port : {"0", "70000", "12a", "-1"}) {
    expect_error<c10::ValueError>(
        [&] {
          find_meeting_point(
              launch_of("torchrun", 1, 4), from({{"MASTER_PORT", port}}));
        },
        {"MASTER_PORT must be a port of 1 to 65535", port});
  }
}

TEST(GlooInterface, IsLoopbackOnOneHostAndNamedBetweenHosts) {
  EXPECT_EQ(gloo_interface(launch_of("torchrun", 1, 4), from({})), "");
  EXPECT_EQ(
      gloo_interface(
          launch_of("torchrun", 1, 2), from({{"GLOO_SOCKET_IFNAME", "ib0"}})),
      "ib0");
  EXPECT_EQ(
      gloo_interface(
          launch_of("torchrun", 1, 4),
          from({{"TESSERA_INTERFACE", "eth1"}, {"GLOO_SOCKET_IFNAME", "ib0"}})),
      "eth1");
  expect_error<c10::ValueError>(
      [] { gloo_interface(launch_of("torchrun", 1, 2), from({})); },
      {"2 of them on this host", "TESSERA_INTERFACE"});
}

}  // namespace
}  // namespace tessera::detail
