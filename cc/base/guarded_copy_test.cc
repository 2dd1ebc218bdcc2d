// Copies from a mapped file that cannot be read fail, and every other SIGBUS goes where it would go without
// them.
#include "cc/base/guarded_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace sok {
namespace {

// A map of some pages of a file, and the file.
class MappedFile {
 public:
  explicit MappedFile(int64_t pages) : bytes_(pages * kPage) {
    descriptor_ = open(testing::TempDir().c_str(), O_TMPFILE | O_RDWR, 0600);
    std::vector<char> bytes(bytes_);
    std::iota(bytes.begin(), bytes.end(), '\0');
    EXPECT_EQ(pwrite(descriptor_, bytes.data(), bytes_, 0), bytes_);
    map_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor_, 0));
  }
  ~MappedFile() {
    munmap(map_, bytes_);
    close(descriptor_);
  }
  const char* at(int64_t offset) const { return map_ + offset; }
  void EndAt(int64_t bytes) const { ASSERT_EQ(ftruncate(descriptor_, bytes), 0); }

  static constexpr int64_t kPage = 4096;

 private:
  const int64_t bytes_;
  int descriptor_;
  char* map_;
};

class GuardedCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!GuardedCopies::Exist()) GTEST_SKIP() << "no guarded copies on this processor";
  }
};

TEST_F(GuardedCopyTest, CopiesAnyBytes) {
  const MappedFile file(2);
  const GuardedCopies copies;
  for (int64_t bytes = 0; bytes < 200; ++bytes) {
    for (const int64_t from : {int64_t{0}, int64_t{3}, MappedFile::kPage - 70}) {
      std::string to(bytes + 2, 'x');
      ASSERT_TRUE(copies.Copy(file.at(from), bytes, to.data() + 1));
      ASSERT_EQ(std::memcmp(to.data() + 1, file.at(from), bytes), 0) << bytes;
      ASSERT_EQ(to.front(), 'x');
      ASSERT_EQ(to.back(), 'x');
    }
  }
}

TEST_F(GuardedCopyTest, PagesThatAreGoneAreAnError) {
  const MappedFile file(3);
  file.EndAt(MappedFile::kPage);
  const GuardedCopies copies;
  std::vector<char> to(MappedFile::kPage);
  for (int time = 0; time < 3; ++time) {
    for (const int64_t bytes : {1, 7, 8, 15, 16, 63, 64, 100, 2000}) {
      // At the begin of what is gone, in the middle, and from before it into it.
      EXPECT_FALSE(copies.Copy(file.at(MappedFile::kPage), bytes, to.data())) << bytes;
      EXPECT_FALSE(copies.Copy(file.at(2 * MappedFile::kPage - 3), bytes, to.data())) << bytes;
      EXPECT_FALSE(copies.Copy(file.at(MappedFile::kPage - bytes + 1), bytes, to.data())) << bytes;
      EXPECT_TRUE(copies.Copy(file.at(MappedFile::kPage - bytes), bytes, to.data())) << bytes;
    }
  }
}

TEST_F(GuardedCopyTest, ThreadsThatBlockTheSignalGetTheErrorToo) {
  const MappedFile file(2);
  file.EndAt(MappedFile::kPage);
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      sigset_t bus;
      sigemptyset(&bus);
      sigaddset(&bus, SIGBUS);
      pthread_sigmask(SIG_BLOCK, &bus, nullptr);
      for (int time = 0; time < 100; ++time) {
        const GuardedCopies copies;
        char byte;
        if (!copies.Copy(file.at(MappedFile::kPage + time), 1, &byte)) ++errors;
      }
      sigset_t now;
      pthread_sigmask(SIG_BLOCK, nullptr, &now);
      EXPECT_EQ(sigismember(&now, SIGBUS), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 400);
}

// Reads a page that is gone, in a way that the compiler cannot see.
void ReadWithoutGuard(const MappedFile& file) {
  const volatile char* const at = file.at(MappedFile::kPage);
  std::_Exit(*at == 'x' ? 1 : 2);
}

// As Python's faulthandler: says something, goes back to what was there before, and sends the signal again.
struct sigaction replaced;
void SayAndGoBack(int number) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, "said\n", 5);
  sigaction(SIGBUS, &replaced, nullptr);
  raise(number);
}
void PutInFront() {
  struct sigaction own = {};
  own.sa_handler = &SayAndGoBack;
  own.sa_flags = SA_NODEFER;
  sigaction(SIGBUS, &own, &replaced);
}

TEST_F(GuardedCopyTest, OtherErrorsGoOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const MappedFile file(2);
  file.EndAt(MappedFile::kPage);
  const auto copy = [&] {
    const GuardedCopies copies;
    char byte;
    if (copies.Copy(file.at(MappedFile::kPage), 1, &byte)) std::_Exit(3);
  };
  // Without another handler the process ends as it would. Sanitizers have handlers that end it otherwise.
  EXPECT_DEATH((signal(SIGBUS, SIG_DFL), copy(), ReadWithoutGuard(file)), "");
  EXPECT_EXIT((signal(SIGBUS, SIG_DFL), copy(), raise(SIGBUS)), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT((signal(SIGBUS, SIG_IGN), copy(), raise(SIGBUS), std::_Exit(4)), testing::ExitedWithCode(4),
              "");
  // A handler from before, and one that replaced this one and was put behind it.
  EXPECT_EXIT((signal(SIGBUS, SIG_DFL), PutInFront(), copy(), ReadWithoutGuard(file)),
              testing::KilledBySignal(SIGBUS), "^said\n$");
  EXPECT_EXIT((signal(SIGBUS, SIG_DFL), copy(), PutInFront(), copy(), copy(), ReadWithoutGuard(file)),
              testing::KilledBySignal(SIGBUS), "^said\n$");
  EXPECT_EXIT((signal(SIGBUS, SIG_DFL), copy(), PutInFront(), copy(), raise(SIGBUS)),
              testing::KilledBySignal(SIGBUS), "^said\n$");
}

}  // namespace
}  // namespace sok
