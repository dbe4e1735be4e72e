// Who started this process, told from its environment.
#include "comm/engine/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "comm/expect_error.h"

namespace tessera {
namespace {

using detail::find_launch;
using detail::Launch;
using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_of(const Variables& variables) {
  return find_launch([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  });
}

Variables joined(Variables one, const Variables& other) {
  one.insert(other.begin(), other.end());
  return one;
}

// A launcher's variables for one rank; numbers are its own, so that a field of
// another source shows.
struct Source {
  std::string name;
  std::string engine;
  std::string rank_variable;
  std::string size_variable;
  Variables local;
  int64_t rank;
  int64_t size;
  int64_t local_rank;
  int64_t local_size;
  Variables also = {};  // without these it does not count

  Variables set(
      const std::string& rank_text, const std::string& size_text) const {
    Variables all = also;
    all[rank_variable] = rank_text;
    all[size_variable] = size_text;
    return all;
  }
  Variables whole() const {
    return joined(set(std::to_string(rank), std::to_string(size)), local);
  }
};

// In the order in which they are asked.
const std::vector<Source>& sources() {
  static const std::vector<Source> all = {
      {"tessera run",
       "gloo",
       "TESSERA_RANK",
       "TESSERA_WORLD_SIZE",
       {{"TESSERA_LOCAL_RANK", "2"}, {"TESSERA_LOCAL_SIZE", "4"}},
       6,
       8,
       2,
       4},
      {"torchrun",
       "gloo",
       "RANK",
       "WORLD_SIZE",
       {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "5"}},
       13,
       15,
       3,
       5},
      {"Open MPI",
       "mpi",
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "6"}},
       19,
       24,
       1,
       6},
      {"PMI",
       "mpi",
       "PMI_RANK",
       "PMI_SIZE",
       {{"MPI_LOCALRANKID", "5"}, {"MPI_LOCALNRANKS", "7"}},
       26,
       28,
       5,
       7},
      {"Slurm",
       "mpi",
       "SLURM_PROCID",
       "SLURM_STEP_NUM_TASKS",
       {{"SLURM_LOCALID", "4"},
        {"SLURM_STEP_TASKS_PER_NODE", "9(x4)"},
        {"SLURM_NODEID", "3"}},
       31,
       36,
       4,
       9,
       {{"SLURM_STEP_ID", "0"}}},
  };
  return all;
}

void expect_source(const std::optional<Launch>& launch, const Source& source) {
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->source, source.name);
  EXPECT_EQ(launch->engine, source.engine);
  EXPECT_EQ(launch->rank, source.rank);
  EXPECT_EQ(launch->size, source.size);
  EXPECT_EQ(launch->local_rank, source.local_rank);
  EXPECT_EQ(launch->local_size, source.local_size);
}

TEST(FindLaunch, NobodyMeansALoneProcess) {
  EXPECT_FALSE(launch_of({}).has_value());
  EXPECT_FALSE(launch_of({{"LOCAL_RANK", "0"}, {"MASTER_PORT", "1"}}));
}

TEST(FindLaunch, EverySourceCountsAlone) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    expect_source(launch_of(source.whole()), source);
  }
}

TEST(FindLaunch, OfTwoSourcesTheFirstCountsWithAllItsFields) {
  for (size_t i = 0; i < sources().size(); ++i) {
    for (size_t j = i + 1; j < sources().size(); ++j) {
      const Source& first = sources()[i];
      const Source& other = sources()[j];
      SCOPED_TRACE(first.name + " before " + other.name);
      const auto both = joined(first.whole(), other.whole());
      expect_source(launch_of(both), first);
      // Nor does a source that is not asked matter where it is wrong.
      expect_source(
          launch_of(joined(first.whole(), other.set("9", "x"))), first);
    }
    SCOPED_TRACE(sources()[i].name + " before PMIx");
    expect_source(
        launch_of(joined(sources()[i].whole(), {{"PMIX_RANK", "3"}})),
        sources()[i]);
  }
}

TEST(FindLaunch, LocalFieldsDoNotComeFromAnotherSource) {
  for (size_t i = 0; i < 4; ++i) {
    const Source& source = sources()[i];
    SCOPED_TRACE(source.name);
    Variables variables = source.set("2", "3");
    for (const Source& other : sources()) {
      if (other.name != source.name) {
        variables = joined(variables, other.local);
      }
    }
    const auto launch = launch_of(variables);
    ASSERT_TRUE(launch.has_value());
    EXPECT_EQ(launch->local_rank, 2) << "as if on one host";
    EXPECT_EQ(launch->local_size, 3);
  }
}

TEST(FindLaunch, ASourceThatIsSetByHalfIsAnError) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    expect_error<c10::ValueError>(
        [&] { launch_of(source.set("1", "")); },
        {"init: " + source.name + " is set by half",
         source.rank_variable + "='1'", source.size_variable + "=''",
         "set both or neither"});
    expect_error<c10::ValueError>(
        [&] { launch_of(source.set("", "4")); },
        {source.name + " is set by half", source.rank_variable + "=''",
         source.size_variable + "='4'"});
  }
  // A whole one behind it does not help.
  expect_error<c10::ValueError>(
      [] {
        launch_of(joined({{"RANK", "1"}}, sources()[2].whole()));
      },
      {"torchrun is set by half", "RANK='1'", "WORLD_SIZE=''"});
}

TEST(FindLaunch, ARankMustBeLessThanTheSize) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    for (const char* rank : {"4", "5"}) {
      expect_error<c10::ValueError>(
          [&] { launch_of(source.set(rank, "4")); },
          {"init: " + source.rank_variable + "=" + rank +
           " must be less than " + source.size_variable + "=4"});
    }
    EXPECT_EQ(launch_of(source.set("3", "4"))->rank, 3);
    expect_error<c10::ValueError>(
        [&] { launch_of(source.set("0", "0")); },
        {source.rank_variable + "=0 must be less than", "=0"});
  }
}

TEST(FindLaunch, NumbersAreCheckedAndNamed) {
  for (const Source& source : sources()) {
    SCOPED_TRACE(source.name);
    for (const char* wrong :
         {"-1", "x", "1x", " 1", "1.5", "+1", "99999999999999999999"}) {
      const std::string got =
          " must be a number of at least 0; got '" + std::string(wrong) + "'";
      expect_error<c10::ValueError>(
          [&] { launch_of(source.set(wrong, "4")); },
          {"init: " + source.rank_variable + got});
      expect_error<c10::ValueError>(
          [&] { launch_of(source.set("1", wrong)); },
          {"init: " + source.size_variable + got});
      for (const auto& [name, value] : source.local) {
        Variables variables = source.whole();
        variables[name] = wrong;
        expect_error<c10::ValueError>(
            [&] { launch_of(variables); }, {"init: " + name + got});
      }
    }
  }
}

TEST(FindLaunch, SlurmOutsideOfAStepIsALoneProcess) {
  const Variables batch = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "12"}};
  EXPECT_FALSE(launch_of(batch).has_value());
  const auto launch = launch_of(joined(batch, {{"SLURM_STEP_ID", "0"}}));
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->source, "Slurm");
  EXPECT_EQ(launch->size, 8);
}

TEST(FindLaunch, ASlurmStepIsAskedBeforeItsJob) {
  Variables step = {
      {"SLURM_STEP_ID", "1"},
      {"SLURM_PROCID", "2"},
      {"SLURM_NTASKS", "8"},
      {"SLURM_STEP_NUM_TASKS", "3"}};
  EXPECT_EQ(launch_of(step)->size, 3);
  step["SLURM_PROCID"] = "5";
  expect_error<c10::ValueError>(
      [&] { launch_of(step); },
      {"SLURM_PROCID=5 must be less than SLURM_STEP_NUM_TASKS=3"});
}

struct Nodes {
  const char* tasks;  // SLURM_STEP_TASKS_PER_NODE
  const char* node;   // SLURM_NODEID
  const char* size;
  int64_t local_size;
};

std::optional<Launch> on_nodes(const Nodes& nodes, const char* variable) {
  return launch_of(
      {{"SLURM_STEP_ID", "0"},
       {"SLURM_PROCID", "0"},
       {"SLURM_STEP_NUM_TASKS", nodes.size},
       {"SLURM_NODEID", nodes.node},
       {variable, nodes.tasks}});
}

TEST(FindLaunch, SlurmTellsTheTasksOfThisNode) {
  for (const Nodes& nodes : std::vector<Nodes>{
           {"2,1", "0", "3", 2},
           {"2,1", "1", "3", 1},
           {"4(x2),3", "0", "11", 4},
           {"4(x2),3", "1", "11", 4},
           {"4(x2),3", "2", "11", 3},
           {"1,2(x3),5(x2)", "3", "17", 2},
           {"1,2(x3),5(x2)", "4", "17", 5},
           {"4(x2)", "", "8", 4},  // the same on all nodes
           {"4", "", "4", 4},
           {"4(x2),3", "", "11", 0},  // which node?
           {"4(x2),3", "3", "11", 0},
           {"8", "0", "4", 0},  // of the job: the step has fewer
           {"2,2", "0", "3", 0},
           {"3(x9223372036854775807)", "0", "3", 0},
           {"", "0", "4", 0}}) {
    SCOPED_TRACE(
        std::string(nodes.tasks) + " on node " + nodes.node + " of " +
        nodes.size);
    for (const char* variable :
         {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
      EXPECT_EQ(on_nodes(nodes, variable)->local_size, nodes.local_size)
          << variable;
    }
  }
}

TEST(FindLaunch, TheTasksOfASlurmStepGoBeforeThoseOfItsJob) {
  const auto launch = launch_of(
      {{"SLURM_STEP_ID", "0"},
       {"SLURM_PROCID", "0"},
       {"SLURM_STEP_NUM_TASKS", "4"},
       {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
       {"SLURM_TASKS_PER_NODE", "4"}});
  EXPECT_EQ(launch->local_size, 2);
}

TEST(FindLaunch, TasksPerNodeThatCannotBeReadAreAnError) {
  for (const char* tasks :
       {"x", "4(x", "4(x2", "4(xa)", "(x2)", "4,,4", "-4"}) {
    SCOPED_TRACE(tasks);
    expect_error<c10::ValueError>(
        [&] {
          on_nodes({tasks, "0", "8", 0}, "SLURM_STEP_TASKS_PER_NODE");
        },
        {"init: SLURM_STEP_TASKS_PER_NODE must"});
  }
}

TEST(FindLaunch, APmixRankWithoutASizeIsAnErrorUnlessItMayBeAlone) {
  EXPECT_FALSE(launch_of({{"PMIX_RANK", "0"}}).has_value());
  expect_error<c10::ValueError>(
      [] {
        launch_of({{"PMIX_RANK", "2"}});
      },
      {"init: PMIX_RANK=2", "nothing says of how many",
       "set RANK and WORLD_SIZE"});
  // A batch script of Slurm says nothing about its processes either.
  expect_error<c10::ValueError>(
      [] {
        launch_of(
            {{"PMIX_RANK", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
      },
      {"init: PMIX_RANK=1"});
}

TEST(Environment, AVariableThatIsNotSetIsEmpty) {
  EXPECT_EQ(detail::environment("TESSERA_NO_SUCH_VARIABLE"), "");
  EXPECT_NE(detail::environment("PATH"), "");
}

}  // namespace
}  // namespace tessera
