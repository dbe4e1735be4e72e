// A file system that counts its calls and lets any of them go wrong, as a disk,
// a kernel or a power supply would.
//
//   FaultyFileSystem files;
//   files.fail_at(7, ENOSPC);       // the 7th call fails, once
//   files.crash_at(7);              // the process dies there: no call from the
//                                   // 7th on has any effect
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
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

  void fail_at(int64_t call, int error) {
    at_ = call;
    fault_ = [error](int64_t) { return -error; };
  }
  /// The call is interrupted once, then goes on.
  void interrupt_at(int64_t call) { fail_at(call, EINTR); }
  /// A write at that call takes one byte, a read gives one.
  void shorten_at(int64_t call) {
    at_ = call;
    is_short_ = true;
  }
  void crash_at(int64_t call) {
    at_ = call;
    fault_ = [this](int64_t) -> int {
      is_dead_ = true;
      throw Crash();
    };
  }
  /// Calls a function at that call: to kill the process, say.
  void hook_at(int64_t call, std::function<void()> hook) {
    at_ = call;
    fault_ = [hook = std::move(hook)](int64_t) {
      hook();
      return 0;
    };
  }
  /// Behaves as a file system without renameat2's flags.
  void refuse_exchange() { has_exchange_ = false; }

  int open_at(int folder, const char* name, int flags, mode_t mode) override {
    const int fault = next("open", name);
    return fault < 0 ? fault : files_.open_at(folder, name, flags, mode);
  }
  int close(int file) override { return files_.close(file); }
  int64_t read_at(
      int file, void* bytes, size_t size, uint64_t offset) override {
    const int fault = next("read", "");
    return fault < 0 ? fault
                     : files_.read_at(file, bytes, shortened(size), offset);
  }
  int64_t write_at(
      int file, const void* bytes, size_t size, uint64_t offset) override {
    const int fault = next("write", "");
    return fault < 0 ? fault
                     : files_.write_at(file, bytes, shortened(size), offset);
  }
  int sync(int file) override {
    const int fault = next("sync", "");
    return fault < 0 ? fault : files_.sync(file);
  }
  int status(int file, io::FileStatus* status) override {
    return files_.status(file, status);
  }
  int make_folder_at(int folder, const char* name, mode_t mode) override {
    const int fault = next("mkdir", name);
    return fault < 0 ? fault : files_.make_folder_at(folder, name, mode);
  }
  int rename_at(
      int from_folder, const char* from, int to_folder, const char* to,
      unsigned flags) override {
    const int fault = next("rename", to);
    if (fault < 0 || (flags != 0 && !has_exchange_)) {
      return fault < 0 ? fault : -EINVAL;
    }
    return files_.rename_at(from_folder, from, to_folder, to, flags);
  }
  int remove_at(int folder, const char* name, int flags) override {
    const int fault = next("remove", name);
    return fault < 0 ? fault : files_.remove_at(folder, name, flags);
  }
  int list(int folder, std::vector<std::string>* names) override {
    const int fault = next("list", "");
    return fault < 0 ? fault : files_.list(folder, names);
  }
  int unlock(int file) override { return files_.unlock(file); }
  int lock(int file) override {
    const int fault = next("lock", "");
    return fault < 0 ? fault : files_.lock(file);
  }

 private:
  int next(const char* what, const char* name) {
    if (is_dead_) {
      throw Crash();
    }
    ++calls_;
    log_.push_back(std::string(what) + " " + name);
    is_here_ = calls_ == at_;
    return is_here_ && fault_ ? fault_(calls_) : 0;
  }
  size_t shortened(size_t size) const {
    return is_here_ && is_short_ ? std::min<size_t>(size, 1) : size;
  }

  io::FileSystem& files_;
  int64_t calls_ = 0;
  std::vector<std::string> log_;
  int64_t at_ = -1;
  bool is_here_ = false;
  bool is_short_ = false;
  bool is_dead_ = false;
  bool has_exchange_ = true;
  std::function<int(int64_t)> fault_;
};

}  // namespace tessera::io_test
