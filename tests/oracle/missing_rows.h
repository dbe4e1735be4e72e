// Rows that a rule could list and does not.
#pragma once

#include <string>
#include <vector>

#include <oracle/oracle.h>

namespace tessera::oracle {

/// Tries every placement of one or two operands on two ranks, and returns the
/// rows that gave the right result for all data and sizes tried, and that the
/// rule does not list: "S(0), R -> S(0)".
std::vector<std::string> missing_rows(const Ruled& ruled);

}  // namespace tessera::oracle
