// Plays random programs and writes what each step came to on each rank.
//
//   programs_probe --out DIR --seeds A:B          seeds A to before B
//   programs_probe --out DIR --play "S:0,3;S:1"   chosen steps of a seed
//   programs_probe --seed S [--steps 0,3]         one program, as text
//
// Start it on any engine; the file DIR/RANK has a line per step, "seed step
// rank hash job kind", and "error" with a text where a rank threw.
// TESSERA_PLANT=seed:step makes a difference on purpose.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

#include "differential_fuzz/player.h"

namespace tessera::programs {
namespace {

using Arguments = std::map<std::string, std::string>;

struct Job {
  uint64_t seed = 0;
  bool whole = true;
  List steps;
};

Arguments read_arguments(int argc, char** argv) {
  Arguments result;
  for (int i = 1; i + 1 < argc; i += 2) {
    result[argv[i]] = argv[i + 1];
  }
  TORCH_CHECK_VALUE(
      argc % 2 == 1 && !result.empty(),
      "programs_probe: arguments come in pairs: --out DIR with --seeds A:B or "
      "--play \"S:0,3;S:1\", or --seed S with --steps 0,3");
  return result;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

Job job_of(const std::string& seed, const std::string& steps) {
  Job job{std::stoull(seed), steps.empty(), {}};
  for (const std::string& step : split(steps, ',')) {
    job.steps.push_back(std::stoll(step));
  }
  return job;
}

std::vector<Job> jobs_of(const Arguments& arguments) {
  std::vector<Job> jobs;
  for (const auto& [name, text] : arguments) {
    if (name == "--seed") {
      const auto steps = arguments.find("--steps");
      jobs.push_back(
          job_of(text, steps == arguments.end() ? "" : steps->second));
    } else if (name == "--seeds") {
      const auto range = split(text, ':');
      for (uint64_t s = std::stoull(range.at(0)); s < std::stoull(range.at(1));
           ++s) {
        jobs.push_back({s, true, {}});
      }
    } else if (name == "--play") {
      for (const std::string& part : split(text, ';')) {
        const auto fields = split(part, ':');
        jobs.push_back(
            job_of(fields.at(0), fields.size() > 1 ? fields[1] : ""));
      }
    }
  }
  return jobs;
}

Plant planted() {
  const char* text = std::getenv("TESSERA_PLANT");
  if (text == nullptr) {
    return {};
  }
  const auto fields = split(text, ':');
  return {std::stoull(fields.at(0)), std::stoll(fields.at(1))};
}

Program program_of(const Job& job) {
  Program program = draw_program(job.seed, world_size());
  if (!job.whole) {
    std::erase_if(program.steps, [&](const Step& step) {
      return std::find(job.steps.begin(), job.steps.end(), step.id) ==
             job.steps.end();
    });
  }
  return program;
}

std::string line_of(const Outcome& outcome, uint64_t seed, size_t job) {
  char hash[17];
  std::snprintf(
      hash, sizeof(hash), "%016llx",
      static_cast<unsigned long long>(outcome.hash));
  std::ostringstream line;
  line << seed << ' ' << outcome.step << ' ' << rank() << ' ' << hash << ' '
       << job << ' ' << outcome.kind;
  return line.str();
}

void play_jobs(const Arguments& arguments) {
  // One order of additions inside matrix products, whatever the engine.
  at::set_num_threads(1);
  const auto out = arguments.find("--out");
  std::ofstream file;
  if (out != arguments.end()) {
    file.open(out->second + "/" + std::to_string(rank()));
  }
  const auto jobs = jobs_of(arguments);
  for (size_t job = 0; job < jobs.size(); ++job) {
    const auto report = [&](const Outcome& outcome) {
      if (file.is_open()) {
        file << line_of(outcome, jobs[job].seed, job) << std::endl;
      } else if (rank() == 0) {
        std::cout << outcome.step << ": " << outcome.kind << outcome.text
                  << std::endl;
      }
    };
    try {
      Player(program_of(jobs[job]), planted(), report).play();
    } catch (const std::exception& error) {
      const auto* ours = dynamic_cast<const c10::Error*>(&error);
      std::string text = ours ? ours->what_without_backtrace() : error.what();
      std::replace(text.begin(), text.end(), '\n', ' ');
      if (file.is_open()) {
        file << "error " << jobs[job].seed << ' ' << job << ' ' << text
             << std::endl;
      }
      throw;
    }
  }
}

}  // namespace
}  // namespace tessera::programs

int main(int argc, char** argv) {
  try {
    const auto arguments = tessera::programs::read_arguments(argc, argv);
    tessera::run([&] { tessera::programs::play_jobs(arguments); });
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
