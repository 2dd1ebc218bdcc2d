// Errors that users cause have the messages of the CPU engine, and memory that runs out leaves no table
// half-changed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/initializers/initializer.h"
#include "cuda/base/testing/device_array.h"
#include "cuda/base/testing/limited_allocator.h"
#include "cuda/engine/testing/twin_groups.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/device_table.h"

namespace sok {
namespace {

class GpuErrorsTest : public TwinGroupsTest {
 protected:
  // The error of a call, which must be the same on both engines.
  std::string ErrorOf(const std::function<Status(ContractGroup&)>& call) {
    const Status on_cpu = call(*cpu_);
    const Status on_gpu = call(*gpu_);
    EXPECT_FALSE(on_gpu.ok());
    EXPECT_EQ(on_gpu.code(), on_cpu.code());
    EXPECT_EQ(on_gpu.message(), on_cpu.message());
    EXPECT_NE(on_gpu.message().find("mbedding variable 'clicks'"), std::string::npos) << on_gpu.message();
    return on_gpu.message();
  }

  static TableOptions OfThreeRows() { return ContractOptions("clicks", 2, /*capacity=*/3); }
  static ContractBatch TwoIds() { return {SumOf(0, {{1, 2}})}; }
};

TEST_F(GpuErrorsTest, AssignedKeysThatRepeatOrDoNotFit) {
  Make({OfThreeRows()});
  const auto assign = [&](std::vector<int64_t> keys) {
    return ErrorOf([&](ContractGroup& group) {
      return group.Assign(0, keys, std::vector<float>(2 * keys.size(), 1.0f));
    });
  };
  EXPECT_NE(assign({5, 6, 5}).find("key 5 occurs twice"), std::string::npos);
  EXPECT_NE(assign({1, 2, 3, 4}).find("4 new keys"), std::string::npos);
}

TEST_F(GpuErrorsTest, MoreKeysThanRows) {
  TableOptions options = OfThreeRows();
  for (const OnFull on_full : {OnFull::kError, OnFull::kEvictLru}) {
    options.on_full = on_full;
    Make({options});
    ErrorOf([&](ContractGroup& group) { return group.Lookup({SumOf(0, {{1, 2, 3, 4}})}); });
  }
}

TEST_F(GpuErrorsTest, OptimizersAndTheirState) {
  Make({OfThreeRows()});
  ASSERT_NO_FATAL_FAILURE(Lookup(TwoIds(), true));
  const OutputValues gradients = gpu_->RandomGradients(TwoIds(), 1);
  const auto train = [&](const std::string& optimizer, const std::vector<float>& hyper) {
    return ErrorOf([&](ContractGroup& group) { return group.Train(gradients, optimizer, hyper); });
  };
  train("no_such", {});
  train("sgd", {});
  ASSERT_NO_FATAL_FAILURE(Train(gradients, "sgd", {0.5f}, /*fused=*/true));
  EXPECT_NE(train("adagrad", SampleHyperOf("adagrad")).find("is trained by 'sgd'"), std::string::npos);
  ErrorOf([&](ContractGroup& group) {
    return group.table(0).Hold(group.context()).value()->RestoreOptimizer({"sgd", 1, {0.5f}});
  });
}

TEST_F(GpuErrorsTest, ReferencesToNoRow) {
  Make({OfThreeRows()});
  ASSERT_NO_FATAL_FAILURE(Lookup(TwoIds(), true));
  const auto apply = [&](int64_t reference) {
    return ErrorOf([&](ContractGroup& group) {
      const EngineArray<int64_t> references(group.memory(), {reference});
      const EngineArray<float> grads(group.memory(), {1.0f, 1.0f});
      return group.table(0).ApplyGradients(group.context(), "sgd", std::vector<float>{0.5f},
                                           {references.data(), 1}, grads.data(), /*distinct=*/true);
    });
  };
  EXPECT_NE(apply(7).find("no row number 7"), std::string::npos);
  EXPECT_NE(apply(-1).find("no row number -1"), std::string::npos);
}

TEST_F(GpuErrorsTest, GradientsOfWeightsAfterAnEviction) {
  TableOptions options = OfThreeRows();
  options.on_full = OnFull::kEvictLru;
  Make({options});
  ContractBatch weighted = TwoIds();
  weighted[0].spec.weighted = true;
  weighted[0].bags[0].weights = {0.5f, 2.0f};
  ASSERT_NO_FATAL_FAILURE(Lookup(weighted, true));
  const OutputValues gradients = gpu_->RandomGradients(weighted, 1);
  ASSERT_NO_FATAL_FAILURE(Erase(0, {2}));
  const std::string evicted = ErrorOf([&](ContractGroup& group) {
    OutputValues weight_gradients;
    return group.WeightGradients(gradients, &weight_gradients);
  });
  EXPECT_NE(evicted.find("key 2 was evicted"), std::string::npos);
}

TEST_F(GpuErrorsTest, TablesWithoutHashing) {
  TableOptions options = OfThreeRows();
  options.use_hashtable = false;
  Make({options});
  ErrorOf([&](ContractGroup& group) { return group.Lookup({SumOf(0, {{1, 3}})}); });
  ErrorOf([&](ContractGroup& group) {
    int64_t erased = 0;
    return group.Erase(0, {1}, &erased);
  });
  ErrorOf([&](ContractGroup& group) {
    const float value = 0.0f;
    const auto count = int64_t{1} << 31;
    return group.table(0).Assign(group.context(), {nullptr, count}, &value);
  });
}

TEST_F(GpuErrorsTest, TablesOfAForkedProcess) {
  Make({OfThreeRows()});
  const pid_t forked = fork();
  ASSERT_GE(forked, 0);
  if (forked == 0) {
    const auto made = GpuCase().engine->MakeTable(gpu_->context(), OfThreeRows());
    const bool is_clear =
        made.status().code() == StatusCode::kFailedPrecondition &&
        made.status().message() == "Embedding variable 'clicks' needs a CUDA device: initialization error";
    _exit(is_clear ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(forked, &status, 0), forked);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Scratch of which the allocation number `fails` fails.
class FailingMemory final : public StreamMemory {
 public:
  explicit FailingMemory(int64_t fails) : left_(fails) {}
  StatusOr<void*> Allocate(void* stream, int64_t bytes) override {
    if (left_-- == 0) return ResourceExhausted("no ", bytes, " bytes for the test");
    return allocator_.Allocate(static_cast<cudaStream_t>(stream), bytes);
  }
  void Free(void* stream, void* memory) override {
    allocator_.Free(static_cast<cudaStream_t>(stream), memory);
  }

 private:
  AsyncAllocator allocator_;
  int64_t left_;
};

// A training lookup in this context. Each lookup of the batch has one bag, of two floats.
Status LookupIn(const EngineContext& context, ContractGroup* group, const ContractBatch& batch) {
  Engine* const engine = GpuCase().engine;
  BatchArrays arrays(group->memory(), batch);
  const auto plan = engine->NewPlan();
  const auto scratch = engine->NewScratch();
  EngineArray<float> values(group->memory(), std::vector<float>(2 * batch.size()));
  std::vector<OutputRows> outputs;
  for (size_t l = 0; l < batch.size(); ++l) outputs.push_back({values.data() + 2 * l, 2});
  const GroupBatch of_engine = {group->tables(), arrays.specs(), arrays.inputs(), /*training=*/true};
  return engine->Lookup(context, of_engine, plan.get(), outputs, scratch.get());
}

// Calls call(&group, context) on new groups, made by make(): once for each of its allocations of scratch,
// which fails, and then without a failure. Then calls check(&group, failed).
void FailEachAllocation(const std::function<std::unique_ptr<ContractGroup>()>& make,
                        const std::function<Status(ContractGroup*, const EngineContext&)>& call,
                        const std::function<void(ContractGroup*, bool failed)>& check) {
  int64_t failures = 0;
  for (bool failed = true; failed; ++failures) {
    SCOPED_TRACE(testing::Message() << "allocation " << failures);
    const std::unique_ptr<ContractGroup> group = make();
    FailingMemory memory(failures);
    EngineContext context = group->context();
    context.memory = &memory;
    const Status status = call(group.get(), context);
    failed = !status.ok();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted) << status.message();
    check(group.get(), failed);
    ASSERT_LT(failures, 200);
  }
  EXPECT_GT(failures, 3);
}

TEST_F(GpuErrorsTest, ALookupEvictsRowsOnlyForTheRowsThatItInserts) {
  TableOptions full = ContractOptions("full", 2, /*capacity=*/3);
  full.on_full = OnFull::kEvictLru;
  TableOptions other = full;
  other.name = "other";
  const auto make = [&] {
    auto group =
        std::make_unique<ContractGroup>(gpu_case_, executor_, std::vector<TableOptions>{full, other});
    EXPECT_TRUE(group->Lookup({SumOf(0, {{1, 2, 3}}), SumOf(1, {{4, 5, 6}})}).ok());
    return group;
  };
  const auto look_up = [](ContractGroup* group, const EngineContext& context) {
    return LookupIn(context, group, {SumOf(0, {{3, 7}}), SumOf(1, {{8, 9}})});
  };
  FailEachAllocation(make, look_up, [](ContractGroup* group, bool failed) {
    const std::vector<int64_t> in_full = ContentsOf(&group->table(0), group->context()).keys;
    const std::vector<int64_t> in_other = ContentsOf(&group->table(1), group->context()).keys;
    const bool nothing_changed =
        in_full == std::vector<int64_t>{1, 2, 3} && in_other == std::vector<int64_t>{4, 5, 6};
    const bool rows_were_inserted =
        in_full == std::vector<int64_t>{7, 2, 3} && in_other == std::vector<int64_t>{9, 8, 6};
    EXPECT_TRUE(rows_were_inserted || (failed && nothing_changed));
  });
}

// Numbers by id.
using ById = std::map<int64_t, int64_t>;

// Two tables with admission: ids that have rows, with their frequencies, and ids that wait, with their
// counts.
class WaitingIdsTest : public GpuErrorsTest {
 protected:
  struct Ids {
    ById rows;
    ById waiting;
    bool operator==(const Ids& other) const { return rows == other.rows && waiting == other.waiting; }
  };

  std::unique_ptr<ContractGroup> MakeGroup() {
    TableOptions twice = ContractOptions("twice", 2);
    twice.admission.kind = Admission::Kind::kCounter;
    twice.admission.filter_freq = 2;
    TableOptions thrice = twice;
    thrice.name = "thrice";
    thrice.admission.filter_freq = 3;
    auto group =
        std::make_unique<ContractGroup>(gpu_case_, executor_, std::vector<TableOptions>{twice, thrice});
    EXPECT_TRUE(group->Lookup({SumOf(0, {{1, 2, 7, 7}}), SumOf(1, {{1, 1}})}).ok());
    return group;
  }
  const std::vector<Ids> before_ = {{{{7, 2}}, {{1, 1}, {2, 1}}}, {{}, {{1, 2}}}};

  static Ids IdsOf(EngineTable* table, const EngineContext& context) {
    Ids ids;
    const auto held = table->Hold(context);
    RowsToRead what;
    what.parts.frequency = true;
    const Status rows = held.value()->ReadRows(what, [&](const RowPiece& piece) {
      for (int64_t i = 0; i < piece.keys.size(); ++i) ids.rows[piece.keys[i]] = piece.frequency[i];
      return OkStatus();
    });
    EXPECT_TRUE(rows.ok()) << rows.message();
    const Status waiting = held.value()->ReadWaiting(RowSet::kAll, [&](const WaitingPiece& piece) {
      for (int64_t i = 0; i < piece.ids.size(); ++i) ids.waiting[piece.ids[i]] = piece.counts[i];
      return OkStatus();
    });
    EXPECT_TRUE(waiting.ok()) << waiting.message();
    return ids;
  }

  // However many allocations succeed, either all of the call has happened, or nothing.
  void ExpectAllOrNothing(const std::vector<Ids>& after,
                          const std::function<Status(ContractGroup*, const EngineContext&)>& call) {
    FailEachAllocation([&] { return MakeGroup(); }, call,
                       [&](ContractGroup* group, bool failed) {
                         std::vector<Ids> ids;
                         for (EngineTable* table : group->tables())
                           ids.push_back(IdsOf(table, group->context()));
                         EXPECT_TRUE(ids == after || (failed && ids == before_));
                       });
  }
};

TEST_F(WaitingIdsTest, ALookupCountsAllOfItsIdsOrNone) {
  const std::vector<Ids> after = {{{{1, 2}, {3, 2}, {7, 2}}, {{2, 1}, {4, 1}}}, {{{1, 3}}, {{5, 1}}}};
  ExpectAllOrNothing(after, [](ContractGroup* group, const EngineContext& context) {
    return LookupIn(context, group, {SumOf(0, {{1, 3, 3, 4}}), SumOf(1, {{1, 5}})});
  });
}

TEST_F(WaitingIdsTest, AnAssignedIdNoLongerWaits) {
  const std::vector<Ids> after = {{{{1, 0}, {7, 2}, {9, 0}}, {{2, 1}}}, before_[1]};
  ExpectAllOrNothing(after, [](ContractGroup* group, const EngineContext& context) {
    const EngineArray<int64_t> keys(group->memory(), {1, 9});
    const EngineArray<float> values(group->memory(), {1.0f, 1.0f, 9.0f, 9.0f});
    return group->table(0).Assign(context, {keys.data(), 2}, values.data());
  });
}

TEST_F(WaitingIdsTest, AnErasedIdHasNoRowAndDoesNotWait) {
  const std::vector<Ids> after = {{{}, {{2, 1}}}, before_[1]};
  ExpectAllOrNothing(after, [](ContractGroup* group, const EngineContext& context) {
    const EngineArray<int64_t> keys(group->memory(), {1, 7});
    int64_t erased = 0;
    return group->table(0).Erase(context, {keys.data(), 2}, &erased);
  });
}

// A table in memory that is limited, filled by FindOrMake.
class LimitedTableTest : public testing::Test {
 protected:
  void Make(const TableOptions& options) {
    auto made = DeviceTable::Create(nullptr, {&memory_, &memory_}, options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    table_ = std::move(made.value());
  }
  Status FindOrMake(int64_t first, int64_t n) {
    std::vector<int64_t> keys;
    for (int64_t i = 0; i < n; ++i) keys.push_back(first + i);
    DeviceArray<int64_t> device_keys(keys);
    DeviceArray<int64_t> rows(keys);
    const Status status =
        table_->FindOrMake(nullptr, &scratch_, device_keys.data(), n, /*own=*/false, rows.data());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return status;
  }
  Status Mark(const std::vector<int64_t>& rows) {
    DeviceArray<int64_t> device_rows(rows);
    const Status status =
        table_->changes().MarkChanged(nullptr, device_rows.data(), static_cast<int64_t>(rows.size()));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return status;
  }

  LimitedAllocator memory_;
  AsyncAllocator scratch_;
  std::unique_ptr<DeviceTable> table_;
};

TEST_F(LimitedTableTest, ChangesAreNotTrackedIfThereIsNoMemoryForIt) {
  TableOptions options = ContractOptions("clicks", 2);
  options.admission.kind = Admission::Kind::kCounter;
  options.admission.filter_freq = 2;
  Make(options);
  ASSERT_TRUE(FindOrMake(0, 100).ok());
  memory_.limit = memory_.in_use;
  const Status status = table_->TrackChanges(nullptr);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("'clicks'"), std::string::npos) << status.message();
  EXPECT_FALSE(table_->changes().tracks());
  EXPECT_TRUE(Mark({0, 99}).ok());
  memory_.limit = INT64_MAX;
  EXPECT_TRUE(table_->TrackChanges(nullptr).ok());
  EXPECT_TRUE(table_->changes().tracks());
  EXPECT_TRUE(table_->waiting()->changes().tracks());
  EXPECT_TRUE(Mark({0, 99}).ok());
}

TEST_F(LimitedTableTest, ATableGrowsByLessWhereMemoryIsShort) {
  // A row is a slab of its own. Rows are only counted, not written.
  Make(ContractOptions("clicks", 5 << 20));
  ASSERT_TRUE(table_->Reserve(nullptr, 3).ok());
  ASSERT_TRUE(table_->StartUse(nullptr, nullptr, 3).ok());
  memory_.limit = memory_.in_use + (21 << 20);
  const Status one = table_->Reserve(nullptr, 1);
  ASSERT_TRUE(one.ok()) << "twice the rows do not fit, but one does: " << one.message();
  ASSERT_TRUE(table_->StartUse(nullptr, nullptr, 1).ok());
  const Status another = table_->Reserve(nullptr, 1);
  EXPECT_EQ(another.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(another.message().find("'clicks' with 4 rows"), std::string::npos) << another.message();
}

TEST_F(LimitedTableTest, ATableThatNoMemoryHoldsAllocatesNothing) {
  memory_.limit = 0;
  TableOptions options = ContractOptions("vast", 64, /*capacity=*/int64_t{1} << 50);
  options.use_hashtable = false;
  for (const RowMemory memory : {RowMemory::kDevice, RowMemory::kHost}) {
    options.memory = memory;
    const Status status = DeviceTable::Create(nullptr, {&memory_, &memory_}, options).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("'vast'"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("do not fit into"), std::string::npos) << status.message();
  }
}

TEST_F(LimitedTableTest, ATableWithoutHashingNeedsLittleBesidesItsRows) {
  constexpr int64_t kRows = 140000;
  TableOptions options = ContractOptions("clicks", 1, /*capacity=*/kRows);
  options.use_hashtable = false;
  const int64_t bytes_of_rows = kRows * 16;  // records are aligned to that
  memory_.limit = bytes_of_rows + (3 << 19);
  ASSERT_NO_FATAL_FAILURE(Make(options));
  EXPECT_LE(memory_.in_use, bytes_of_rows + 4096);
  const std::vector<int64_t> some = {0, 65535, 65536, 131071, 131072, kRows - 1};
  const auto n = static_cast<int64_t>(some.size());
  DeviceArray<int64_t> rows(some);
  DeviceArray<float> weights(std::vector<float>(some.size(), -1.0f));
  ASSERT_TRUE(GatherRows(nullptr, table_->rows(), {rows.data(), 0, n}, 0, 1, weights.data()).ok());
  std::vector<float> expected(some.size());
  for (int64_t i = 0; i < n; ++i) FillRow(options.initializer, some[i], Span<float>(&expected[i], 1));
  EXPECT_EQ(weights.Fetch(), expected);
}

}  // namespace
}  // namespace sok
