#ifndef SOK_CC_DISK_TESTING_FILE_LIMIT_H_
#define SOK_CC_DISK_TESTING_FILE_LIMIT_H_

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

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

}  // namespace sok

#endif  // SOK_CC_DISK_TESTING_FILE_LIMIT_H_
