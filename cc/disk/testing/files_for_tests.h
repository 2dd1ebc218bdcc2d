#ifndef SOK_CC_DISK_TESTING_FILES_FOR_TESTS_H_
#define SOK_CC_DISK_TESTING_FILES_FOR_TESTS_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <vector>

namespace sok {

// While it lives, no file of the process can be larger than `bytes`: a write beyond fails as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  const sighandler_t handler_;
};

// How many of the first `pages` pages of a file the system has in memory.
inline int64_t PagesInMemory(int descriptor, int64_t pages) {
  void* const map = mmap(nullptr, pages << 12, PROT_READ, MAP_SHARED, descriptor, 0);
  std::vector<unsigned char> in_memory(pages);
  EXPECT_EQ(mincore(map, pages << 12, in_memory.data()), 0);
  munmap(map, pages << 12);
  return std::count_if(in_memory.begin(), in_memory.end(),
                       [](unsigned char page) { return (page & 1) != 0; });
}

}  // namespace sok

#endif  // SOK_CC_DISK_TESTING_FILES_FOR_TESTS_H_
