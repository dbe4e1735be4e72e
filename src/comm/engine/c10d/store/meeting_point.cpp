#include "comm/engine/c10d/store/meeting_point.h"

#include <charconv>

#include <c10/util/Exception.h>

namespace tessera::detail::inline comm_layer {
namespace {

constexpr uint32_t kFirstPort = 10000;
constexpr uint32_t kPorts = 20000;

// mpirun in an allocation sees other steps of Slurm on other hosts: only what
// the launcher itself says is equal on all ranks.
bool is_slurm(const Launch& launch) {
  return launch.source == "Slurm";
}

std::string job_id(const Launch& launch, const Environment& get) {
  if (is_slurm(launch)) {
    return get("SLURM_JOB_ID") + "." + get("SLURM_STEP_ID");
  }
  for (const char* name :
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "TORCHELASTIC_RUN_ID"}) {
    if (!get(name).empty()) {
      return get(name);
    }
  }
  return "";
}

uint16_t port_number(const std::string& text) {
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  TORCH_CHECK_VALUE(
      error == std::errc() && stop == end && port > 0,
      "init: MASTER_PORT must be a port of 1 to 65535; got '", text, "'");
  return port;
}

uint16_t find_port(const Launch& launch, const Environment& get) {
  const std::string port = get("MASTER_PORT");
  if (!port.empty()) {
    return port_number(port);
  }
  const std::string id = job_id(launch, get);
  TORCH_CHECK_VALUE(
      !id.empty(), "init: gloo, started by ", launch.source, ", rank ",
      launch.rank,
      ": the ranks need a port to meet at; set MASTER_PORT to a free one, or "
      "use 'tessera run'");
  return port_of(id);
}

std::string find_address(const Launch& launch, const Environment& get) {
  const std::string address = get("MASTER_ADDR");
  if (!address.empty()) {
    return address;
  }
  if (launch.local_size == launch.size) {
    return "127.0.0.1";
  }
  const std::string nodes = is_slurm(launch) ? get("SLURM_STEP_NODELIST") : "";
  TORCH_CHECK_VALUE(
      !nodes.empty(), "init: gloo, started by ", launch.source, ", rank ",
      launch.rank, ": ", launch.size, " ranks, ", launch.local_size,
      " of them on this host, need a place to meet; set MASTER_ADDR to the "
      "host of rank 0 and MASTER_PORT to a free port there, or TESSERA_STORE "
      "to a new folder that all hosts see, or use the engine mpi");
  return first_host(nodes);
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t end = list.find(']', i);
    TORCH_CHECK_VALUE(
        end != std::string::npos, "init: SLURM_STEP_NODELIST must close its [",
        "; got '", list, "'");
    const size_t stop = list.find_first_of("-,]", i);
    host += list.substr(i + 1, stop - i - 1);
    i = end;
  }
  return host;
}

uint16_t port_of(const std::string& job_id) {
  uint32_t hash = 0;
  for (const char c : job_id) {
    hash = hash * 31 + static_cast<unsigned char>(c);
  }
  return static_cast<uint16_t>(kFirstPort + hash % kPorts);
}

MeetingPoint find_meeting_point(const Launch& launch, const Environment& get) {
  MeetingPoint point;
  point.folder = get("TESSERA_STORE");
  if (point.folder.empty()) {
    point.address = find_address(launch, get);
    point.port = find_port(launch, get);
    point.serves =
        launch.rank == 0 && get("TORCHELASTIC_USE_AGENT_STORE") != "True";
  }
  return point;
}

std::string gloo_interface(const Launch& launch, const Environment& get) {
  for (const char* name : {"TESSERA_INTERFACE", "GLOO_SOCKET_IFNAME"}) {
    if (!get(name).empty()) {
      return get(name);
    }
  }
  TORCH_CHECK_VALUE(
      launch.local_size == launch.size, "init: gloo, started by ",
      launch.source, ", rank ", launch.rank, ": ", launch.size, " ranks, ",
      launch.local_size,
      " of them on this host, need a network; set TESSERA_INTERFACE to the "
      "interface that the hosts share (eth0, ib0, ...)");
  return "";
}

}  // namespace tessera::detail::inline comm_layer
