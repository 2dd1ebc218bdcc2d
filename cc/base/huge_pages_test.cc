#include "cc/base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace sok {
namespace {

constexpr int64_t kHuge = PageBuffer::kHugePageBytes;

TEST(PageBufferTest, IsZeroedWritableAndAligned) {
  for (const int64_t bytes : {int64_t{1}, int64_t{100}, kHuge - 1, kHuge, kHuge + 1, 3 * kHuge + 5}) {
    StatusOr<PageBuffer> buffer = PageBuffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status().message();
    ASSERT_EQ(buffer.value().size(), bytes);
    char* data = static_cast<char*>(buffer.value().data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (bytes >= kHuge ? kHuge : 64), 0u) << bytes;
    for (const int64_t at : {int64_t{0}, bytes / 2, bytes - 1}) EXPECT_EQ(data[at], 0) << bytes;
    std::memset(data, 7, bytes);
    EXPECT_EQ(data[bytes - 1], 7);
  }
}

TEST(PageBufferTest, NoBytesHaveNoData) {
  const StatusOr<PageBuffer> buffer = PageBuffer::Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer.value().data(), nullptr);
  EXPECT_EQ(buffer.value().size(), 0);
}

TEST(PageBufferTest, ReservedAddressesCanBeUsedBeforeAndAfterAdvice) {
  StatusOr<PageBuffer> reserved = PageBuffer::ReserveAddresses(5 * kHuge);
  ASSERT_TRUE(reserved.ok());
  PageBuffer& buffer = reserved.value();
  char* data = static_cast<char*>(buffer.data());
  data[10] = 1;
  buffer.AdviseHugePages(3 * kHuge + 1);
  data[4 * kHuge - 1] = 2;
  buffer.AdviseHugePages(100 * kHuge);
  EXPECT_EQ(data[10], 1);
  EXPECT_EQ(data[4 * kHuge - 1], 2);
  EXPECT_EQ(data[5 * kHuge - 1], 0);
}

TEST(PageBufferTest, MovesItsMemory) {
  StatusOr<PageBuffer> made = PageBuffer::Allocate(128);
  ASSERT_TRUE(made.ok());
  PageBuffer a = std::move(made.value());
  static_cast<char*>(a.data())[5] = 9;
  const void* data = a.data();
  PageBuffer b(std::move(a));
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(b.data(), data);
  PageBuffer c;
  c = std::move(b);
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(static_cast<char*>(c.data())[5], 9);
}

TEST(PageBufferTest, RefusalNamesTheBytes) {
  for (const int64_t bytes :
       {int64_t{1} << 50, int64_t{1} << 60, std::numeric_limits<int64_t>::max(), int64_t{-1}}) {
    const StatusOr<PageBuffer> buffer = PageBuffer::Allocate(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(buffer.status().message().find(std::to_string(bytes)), std::string::npos)
        << buffer.status().message();
  }
}

}  // namespace
}  // namespace sok
