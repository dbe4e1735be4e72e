// What `tessera demo` shows: progress while it trains, then curves, verdict,
// shards, communication and a line of text; or all of it as JSON.
#pragma once

#include <string>

#include "cli/text/terminal.h"
#include "demo.h"

namespace tessera::cli {

/// Reports steps: a bar that redraws itself on a terminal, else ten lines.
class DemoProgressReport {
 public:
  DemoProgressReport(const DemoOptions& options, const Terminal& terminal)
      : options_(options), terminal_(terminal) {}
  void operator()(const DemoStep& step) const;

 private:
  std::string bar_line(
      const std::string& name, const std::string& figures, int step) const;

  DemoOptions options_;
  Terminal terminal_;
};

/// Says what will be trained.
std::string demo_opening(const DemoOptions& options);

std::string demo_text_report(
    const DemoResult& result, const DemoOptions& options,
    const Terminal& terminal);
std::string demo_json(const DemoResult& result, const DemoOptions& options);

}  // namespace tessera::cli
