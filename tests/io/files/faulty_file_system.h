// A file system that counts its calls and lets any of them go wrong, as a disk,
// a kernel or a power supply would.
//
//   FaultyFileSystem files;
//   files.fail_at(7, ENOSPC);       // the 7th call fails, once
//   files.crash_at(7);              // the process dies there: no call from the
//                                   // 7th on has any effect
//   files.kill_at(7);               // and this ends the process indeed
//
// Several threads may call it: io::SystemFilesReplaced puts it below
// checkpoint::save(), and count_if() says whose calls are meant.
#pragma once

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <io/files/file_system.h>

namespace tessera::io_test {

/// Thrown where a test lets a process die.
struct Crash : std::runtime_error {
  Crash() : std::runtime_error("crash") {}
};

class FaultyFileSystem : public io::FileSystem {
 public:
  explicit FaultyFileSystem(io::FileSystem& files = io::system_files())
      : files_(files) {}

  /// Returns how many calls there were; closing and asking for a status, which
  /// change nothing, are not counted.
  int64_t calls() const { return calls_; }
  const std::vector<std::string>& log() const { return log_; }

  void fail_at(int64_t call, int error) { set(call, Kind::kError, error); }
  /// The call is interrupted once, then goes on.
  void interrupt_at(int64_t call) { fail_at(call, EINTR); }
  /// A write at that call takes one byte, a read gives one.
  void shorten_at(int64_t call) { set(call, Kind::kShort); }
  void crash_at(int64_t call) { set(call, Kind::kCrash); }
  /// The process ends before that call; where it writes, after half of that.
  void kill_at(int64_t call) { set(call, Kind::kKill); }
  /// Behaves as a file system without renameat2's flags.
  void refuse_exchange() { has_exchange_ = false; }
  /// Counts, and lets fail, the calls for which this holds.
  void count_if(std::function<bool()> is_meant) {
    is_meant_ = std::move(is_meant);
  }

  int open_at(int folder, const char* name, int flags, mode_t mode) override {
    const Fault fault = next("open", name);
    return fault.error < 0 ? fault.error
                           : files_.open_at(folder, name, flags, mode);
  }
  int close(int file) override {
    {
      const std::lock_guard lock(mutex_);
      std::erase(refused_, file);
    }
    return files_.close(file);
  }
  int64_t read_at(
      int file, void* bytes, size_t size, uint64_t offset) override {
    const Fault fault = next("read", "");
    return fault.error < 0
               ? fault.error
               : files_.read_at(file, bytes, fault.shortened(size), offset);
  }
  int64_t write_at(
      int file, const void* bytes, size_t size, uint64_t offset) override {
    const Fault fault = next("write", "");
    if (fault.kind == Kind::kKill) {
      files_.write_at(file, bytes, size / 2, offset);
      ::raise(SIGKILL);
    }
    return fault.error < 0
               ? fault.error
               : files_.write_at(file, bytes, fault.shortened(size), offset);
  }
  int sync(int file) override {
    const Fault fault = next("sync", "");
    return fault.error < 0 ? fault.error : files_.sync(file);
  }
  int status(int file, io::FileStatus* status) override {
    return files_.status(file, status);
  }
  int make_folder_at(int folder, const char* name, mode_t mode) override {
    const Fault fault = next("mkdir", name);
    return fault.error < 0 ? fault.error
                           : files_.make_folder_at(folder, name, mode);
  }
  int rename_at(
      int from_folder, const char* from, int to_folder, const char* to,
      unsigned flags) override {
    const Fault fault = next("rename", to);
    if (fault.error < 0 || (flags != 0 && !has_exchange_)) {
      return fault.error < 0 ? fault.error : -EINVAL;
    }
    return files_.rename_at(from_folder, from, to_folder, to, flags);
  }
  int remove_at(int folder, const char* name, int flags) override {
    const Fault fault = next("remove", name);
    return fault.error < 0 ? fault.error
                           : files_.remove_at(folder, name, flags);
  }
  int list(int folder, std::vector<std::string>* names) override {
    const Fault fault = next("list", "");
    return fault.error < 0 ? fault.error : files_.list(folder, names);
  }
  int unlock(int file) override { return files_.unlock(file); }
  int lock(int file) override {
    if (tries_again(file)) {
      return files_.lock(file);
    }
    const Fault fault = next("lock", "");
    return fault.error < 0 ? fault.error : refused(file, files_.lock(file));
  }

 private:
  enum class Kind { kNone, kError, kShort, kCrash, kKill };

  // What happens in one call.
  struct Fault {
    Kind kind = Kind::kNone;
    int error = 0;
    size_t shortened(size_t size) const {
      return kind == Kind::kShort ? std::min<size_t>(size, 1) : size;
    }
  };

  void set(int64_t call, Kind kind, int error = 0) {
    at_ = call;
    fault_ = {kind, -error};
  }

  // Who waits for a lock asks for it as often as it takes: one call.
  bool tries_again(int file) {
    const std::lock_guard lock(mutex_);
    return std::find(refused_.begin(), refused_.end(), file) != refused_.end();
  }
  int refused(int file, int result) {
    const std::lock_guard lock(mutex_);
    if (result == -EWOULDBLOCK) {
      refused_.push_back(file);
    }
    return result;
  }

  Fault next(const std::string& what, const char* name) {
    if (is_meant_ && !is_meant_()) {
      return {};
    }
    const std::lock_guard lock(mutex_);
    if (is_dead_) {
      throw Crash();
    }
    log_.push_back(what + " " + name);
    if (++calls_ != at_) {
      return {};
    }
    if (fault_.kind == Kind::kCrash) {
      is_dead_ = true;
      throw Crash();
    }
    if (fault_.kind == Kind::kKill && what != "write") {
      ::raise(SIGKILL);
    }
    return fault_;
  }

  io::FileSystem& files_;
  std::mutex mutex_;
  int64_t calls_ = 0;
  std::vector<std::string> log_;
  std::vector<int> refused_;  // files of which somebody else has the lock
  std::function<bool()> is_meant_;
  int64_t at_ = -1;
  Fault fault_;
  bool is_dead_ = false;
  bool has_exchange_ = true;
};

}  // namespace tessera::io_test
