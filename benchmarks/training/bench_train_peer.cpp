#include "bench_train_peer.h"

#include "train_pytorch.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> arguments_of(const TrainBenchOptions& o) {
  std::vector<std::string> words;
  for (const int64_t number :
       {int64_t{o.dp}, int64_t{o.tp}, o.batch, o.vocabulary, o.length, o.width,
        o.heads, o.hidden, o.layers, int64_t{o.warm_up}, int64_t{o.steps}}) {
    words.push_back(std::to_string(number));
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace

TrainPeer::TrainPeer(const std::string& python, const TrainBenchOptions& bench)
    : peer_(
          python, train_pytorch, arguments_of(bench),
          "benchmarks/train_pytorch.py " + joined(arguments_of(bench))),
      hello_(ordered_json::parse(peer_.receive())) {}

double TrainPeer::round() {
  peer_.send("round");
  return ordered_json::parse(peer_.receive()).get<double>();
}

}  // namespace tessera::cli
