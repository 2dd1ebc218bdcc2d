// An error on one rank is reported by all ranks, and inconsistent messages are refused.
#include <gtest/gtest.h>

#include <string>

#include "cc/cpu/sharded/testing/sharded_step.h"

namespace sok {
namespace {

std::unique_ptr<Table> MakeTable(TableOptions options, int rank, int ranks) {
  options.name = "users";
  if (options.dim == 0) options.dim = 4;
  options.rank = rank;
  options.ranks = ranks;
  InlineExecutor executor;
  return std::move(Table::Create(executor, options).value());
}

std::unique_ptr<Table> PlainTable(int /*t*/, int rank, int ranks) { return MakeTable({}, rank, ranks); }

std::vector<Batch> BatchesOf(const std::vector<std::vector<int64_t>>& ids) {
  std::vector<Batch> batches(ids.size());
  for (size_t r = 0; r < ids.size(); ++r) batches[r].Add(0, ids[r], {});
  return batches;
}

void ExpectOnAll(ShardedGroup& group, StatusCode code, const std::vector<std::string>& texts) {
  for (int r = 0; r < group.size(); ++r) {
    const Status& status = group.rank(r).status;
    EXPECT_EQ(status.code(), code) << "rank " << r;
    for (const std::string& text : texts) {
      EXPECT_NE(status.message().find(text), std::string::npos) << "rank " << r << ": " << status.message();
    }
  }
}

class ShardedErrorsTest : public testing::TestWithParam<int> {
 protected:
  InlineExecutor executor_;
};

TEST_P(ShardedErrorsTest, AnErrorInOneRanksBatchFailsOnEveryRank) {
  const int ranks = GetParam();
  ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_, PlainTable);
  std::vector<Status> errors(ranks);
  errors.back() = InvalidArgument("weight 3 is nan");
  const std::vector<Batch> batches = BatchesOf(std::vector<std::vector<int64_t>>(ranks, {1, 2, 3}));
  group.Forward(batches, errors);
  ExpectOnAll(group, StatusCode::kInvalidArgument,
              {"On rank " + std::to_string(ranks - 1) + ": weight 3 is nan"});
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(group.rank(r).tables[0]->size(), 0);
  // The next step succeeds.
  group.Forward(batches);
  for (int r = 0; r < ranks; ++r) EXPECT_TRUE(group.rank(r).status.ok());
}

TEST_P(ShardedErrorsTest, AFullTableFailsOnEveryRankAndIsUnchanged) {
  const int ranks = GetParam();
  TableOptions options;
  options.capacity = 2;
  ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_,
                     [&](int, int rank, int n) { return MakeTable(options, rank, n); });
  std::vector<std::vector<int64_t>> ids(ranks);
  for (int i = 0; i < 3; ++i) ids[0].push_back(int64_t{i} * ranks);  // three keys of rank 0
  group.Forward(BatchesOf(ids));
  ExpectOnAll(group, StatusCode::kResourceExhausted,
              {"On rank 0: Embedding variable 'users' is full", "at most 2"});
  EXPECT_EQ(group.rank(0).tables[0]->size(), 0);
}

TEST_P(ShardedErrorsTest, AKeyOutsideADirectTableIsNamedOnEveryRank) {
  const int ranks = GetParam();
  TableOptions options;
  options.capacity = 10;
  options.use_hashtable = false;
  ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_,
                     [&](int, int rank, int n) { return MakeTable(options, rank, n); });
  std::vector<std::vector<int64_t>> ids(ranks, {0, 1});
  ids.back().push_back(10 * ranks);
  group.Forward(BatchesOf(ids));
  ExpectOnAll(group, StatusCode::kInvalidArgument, {"key " + std::to_string(10 * ranks)});
}

TEST_P(ShardedErrorsTest, TheErrorDescribesBothOfTwoTablesThatDiffer) {
  const int ranks = GetParam();
  const auto expect = [&](const TableOptions& of_last, const std::string& text,
                          const std::string& text_of_last) {
    ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_, [&](int, int rank, int n) {
      return MakeTable(rank == n - 1 ? of_last : TableOptions(), rank, n);
    });
    group.Forward(BatchesOf(std::vector<std::vector<int64_t>>(ranks, {1, 2, 3})));
    ExpectOnAll(group, StatusCode::kFailedPrecondition,
                {"Ranks disagree about embedding variable 'users'", "; rank ", text, text_of_last});
  };
  TableOptions other;
  other.dim = 8;
  expect(other, "dim 4", "dim 8");
  other = {};
  other.key_dtype = "int32";
  expect(other, "hashed int64 keys", "hashed int32 keys");
  other = {};
  other.capacity = 77;
  expect(other, "no bound", "capacity 77");
  other = {};
  other.initializer.seed = 5;
  expect(other, "seed 0", "seed 5");
}

TEST_P(ShardedErrorsTest, TheErrorNamesBothOfTwoOptimizersThatDiffer) {
  const int ranks = GetParam();
  ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_, PlainTable);
  const std::vector<Batch> batches = BatchesOf(std::vector<std::vector<int64_t>>(ranks, {1, 2, 3}));
  const float rate[] = {0.1f};
  // A rank that has trained agrees with ranks that have not trained yet.
  ASSERT_TRUE(group.rank(0).tables[0]->ApplyGradients({executor_}, "sgd", {rate, 1}, {}, nullptr, true).ok());
  group.Forward(batches);
  for (int r = 0; r < ranks; ++r) ASSERT_TRUE(group.rank(r).status.ok());
  for (int r = 1; r < ranks; ++r) {
    const char* name = r == ranks - 1 ? "rowwise_adagrad" : "sgd";
    const float hyper[] = {0.1f, 0.1f, 1e-7f};
    const Span<const float> wanted(hyper, r == ranks - 1 ? 3 : 1);
    const Status status =
        group.rank(r).tables[0]->ApplyGradients({executor_}, name, wanted, {}, nullptr, true);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  group.Forward(batches);
  ExpectOnAll(group, StatusCode::kFailedPrecondition, {"trained by 'sgd'", "trained by 'rowwise_adagrad'"});
}

TEST_P(ShardedErrorsTest, GradientsOfAnotherStepAreRefused) {
  const int ranks = GetParam();
  ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_, PlainTable);
  const std::vector<Batch> batches = BatchesOf(std::vector<std::vector<int64_t>>(ranks, {1, 2, 3}));
  group.Forward(batches);
  const Arrived replies_before(group.rank(0).replies.words);
  group.Forward(batches);
  group.rank(0).replies = Arrived(replies_before.words);
  const std::vector<float> gradient(12, 1.0f);
  group.Backward(std::vector<std::vector<std::vector<float>>>(ranks, {gradient}));
  ExpectOnAll(group, StatusCode::kFailedPrecondition, {"rank 0 sent the gradients of another step"});
}

TEST_P(ShardedErrorsTest, MessagesOfTooFewRanksAreRefused) {
  const int ranks = GetParam();
  ShardedGroup group(ranks, {ExchangeMode::kRows}, executor_, PlainTable);
  group.Forward(BatchesOf(std::vector<std::vector<int64_t>>(ranks, {1, 2, 3})));
  Rank& rank = group.rank(0);
  Inbox too_few = rank.replies.inbox;
  too_few.pop_back();
  const std::vector<Table*> tables = Pointers(rank.tables);
  ReceivedRows rows;
  EXPECT_EQ(ReadReplies(tables, rank.route, too_few, &rows).code(), StatusCode::kInternal);
  const int64_t dims[] = {4};
  ArrivedGradients arrived;
  EXPECT_EQ(ReadGradients(rank.served, {dims, 1}, too_few, &arrived).code(), StatusCode::kInternal);
  const auto allocate = [&](Span<const int64_t> sizes) { return rank.outbox.Allocate(sizes); };
  EXPECT_EQ(ReduceGroup(executor_, rank.route, {}, too_few, GradientFormat::kFloat32, allocate).code(),
            StatusCode::kInternal);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedErrorsTest, testing::Values(2, 3));

// Words that are not a message, or whose sizes do not fit, are refused. Nothing beyond them is read.
TEST(ShardedErrors, DamagedMessages) {
  InlineExecutor executor;
  const auto serve = [&](const std::vector<int64_t>& words, ExchangeMode mode = ExchangeMode::kRows) {
    const std::unique_ptr<Table> table = PlainTable(0, 0, 1);
    Table* const tables[] = {table.get()};
    const ExchangeMode modes[] = {mode};
    const Inbox inbox = {words};
    ServedPlan plan;
    GroupScratch scratch;
    Outbox outbox;
    const auto allocate = [&](Span<const int64_t> sizes) { return outbox.Allocate(sizes); };
    EXPECT_TRUE(ServeGroup(executor, {tables, 1}, {modes, 1}, 0, inbox, &plan, &scratch, allocate).ok());
    EXPECT_EQ(table->size(), plan.status.ok() ? 2 : 0);
    return plan.status;
  };
  const std::unique_ptr<Table> table = PlainTable(0, 0, 1);
  const int64_t magic = 0x534f4b'0000'0101;
  const auto definition = static_cast<int64_t>(table->definition_fingerprint());
  const std::vector<int64_t> good = {magic, 0, 0, 1, definition, 0, 2, 0, 7, 8};
  EXPECT_TRUE(serve(good).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(serve({good.begin(), good.begin() + size}).code(), StatusCode::kInternal) << size;
  }
  const std::pair<int, int64_t> damages[] = {{0, magic + 1}, {1, -1}, {1, 99},        {2, -5},
                                             {2, INT64_MAX}, {6, -1}, {6, 3},         {6, INT64_MAX},
                                             {7, -1},        {7, 1},  {7, INT64_MAX}, {7, INT64_MIN}};
  for (const auto& [word, value] : damages) {
    std::vector<int64_t> words = good;
    words[word] = value;
    EXPECT_EQ(serve(words).code(), StatusCode::kInternal) << word << " " << value;
  }
  // Counts of the ids, and lengths of bags of them, two to a word: all are positive.
  const auto with_numbers = [&](int64_t entry, int64_t first, int64_t second, ExchangeMode mode) {
    std::vector<int64_t> words = good;
    words[4] ^= static_cast<int64_t>(mode);
    words[7] = entry;
    words.push_back(second * (int64_t{1} << 32) + first);
    return serve(words, mode).code();
  };
  const std::pair<int64_t, ExchangeMode> entries[] = {{int64_t{2} << 32, ExchangeMode::kRows},
                                                      {2, ExchangeMode::kSums}};
  for (const auto& [entry, mode] : entries) {
    EXPECT_EQ(with_numbers(entry, 1, 1, mode), StatusCode::kOk) << entry;
    EXPECT_EQ(with_numbers(entry, 2, 0, mode), StatusCode::kInternal) << entry;
    EXPECT_EQ(with_numbers(entry, 3, -1, mode), StatusCode::kInternal) << entry;
  }
}

}  // namespace
}  // namespace sok
