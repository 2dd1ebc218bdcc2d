// A predicted time is that of bandwidth or of latency, whichever is longer.
#include "cuda/programs/prediction.h"

#include <gtest/gtest.h>

namespace sok {
namespace {

constexpr DeviceModel kDevice = {"test", 100, 1e12, 0};

TEST(PredictionTest, MemoryServesOrderedBytesFasterThanShortRuns) {
  KernelWork work = {nullptr, 64, {60, 40}};
  EXPECT_DOUBLE_EQ(SecondsOfMemory(work, kDevice), 100 / (kOrderedShare * 1e12));
  work.random = 50;
  work.run = kRunOverhead;
  EXPECT_DOUBLE_EQ(SecondsOfMemory(work, kDevice), (50 + 50 * 2) / (kOrderedShare * 1e12));
}

TEST(PredictionTest, WaitsAreSharedByWhatIsResident) {
  KernelWork work = {nullptr, 32, {}};
  work.items = 0.5;
  work.threads = 16;
  work.waits = 2;
  work.cache_waits = 3;
  const double item = 2 * kWait + 3 * kCacheWait;
  // 100 multiprocessors with 32 warps hold 6400 groups of 16 lanes.
  EXPECT_DOUBLE_EQ(SecondsOfWaiting(work, kDevice), 0.5 * item / 6400);
}

TEST(PredictionTest, KernelsRunOneAfterTheOther) {
  KernelWork memory = {nullptr, 64, {920, 0}};
  KernelWork waiting = {nullptr, 64, {1, 0}};
  waiting.threads = 100 * 64 * 32;  // all that are resident
  waiting.waits = 1;
  const Prediction prediction = Predict({"both", 0, {memory, waiting}}, kDevice);
  const double seconds = 920 / (kOrderedShare * 1e12) + kWait;
  EXPECT_DOUBLE_EQ(prediction.ids_per_second, 1 / seconds);
  EXPECT_DOUBLE_EQ(prediction.bytes_per_second, 921 / seconds);
  EXPECT_DOUBLE_EQ(prediction.share, 921 / seconds / 1e12);
  EXPECT_DOUBLE_EQ(prediction.waiting_share, kWait / seconds);
}

TEST(PredictionTest, LanesReachAllColumns) {
  for (const int64_t dim : {1, 4, 5, 8, 12, 64, 100, 128, 129, 256, 1000}) {
    EXPECT_GE(4 * LanesOfRow(dim) * RoundsOfRow(dim), static_cast<double>(dim));
    EXPECT_LE(LanesOfRow(dim), 32);
  }
  EXPECT_EQ(LanesOfRow(64), 16);
  EXPECT_EQ(RoundsOfRow(256), 2);
}

TEST(PredictionTest, RandomBytesArePartOfTheTraffic) {
  for (const Operation& operation : OperationsOf(kA100)) {
    for (const KernelWork& work : operation.kernels) {
      SCOPED_TRACE(operation.name);
      EXPECT_GE(work.random, 0);
      EXPECT_LE(work.random, work.traffic.total());
      EXPECT_GT(work.run, 0);
    }
  }
}

}  // namespace
}  // namespace sok
