// The time of a step and the memory per row, for several optimizers and lengths of rows: shows the effect of
// the record layout. Rows are distinct and scattered over a table larger than any cache; every run takes the
// next of several batches.
//
//   records_benchmark [DIM]...     lengths of rows; by default 16, 32, 64 and 100
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/engine/comparison.h"
#include "cc/base/hash.h"
#include "cc/base/thread_pool.h"
#include "cc/optimizers/optimizer.h"
#include "cc/store/row_store.h"

namespace sok {
namespace {

constexpr int kRounds = 21;
constexpr int64_t kBatches = 8;
constexpr int64_t kRowsPerBatch = 40'000;
constexpr int64_t kWeightBytes = int64_t{192} << 20;  // per table, at most

struct Contender {
  const char* optimizer;
  std::vector<float> hyper;
};

const Contender kContenders[] = {{"sgd", {1e-3f}},
                                 {"rowwise_adagrad", {1e-3f, 0.1f, 1e-7f}},
                                 {"adagrad", {1e-3f, 0.1f, 1e-7f}},
                                 {"lazy_adam", {1e-3f, 0.9f, 0.999f, 1e-8f}},
                                 {"adam", {1e-3f, 0.9f, 0.999f, 1e-8f}}};

void ExitUnless(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// Rows and their optimizer.
struct Table {
  Table(const Contender& contender, int64_t rows, int64_t dim)
      : hyper(contender.hyper), store(dim), optimizer(std::move(MakeOptimizer(contender.optimizer).value())) {
    ExitUnless(store.SetSlots(optimizer->Slots(dim, hyper)));
    ExitUnless(store.Reserve(rows));
    ExitUnless(optimizer->Reserve(rows));
    for (int64_t row = 0; row < rows; ++row) {
      optimizer->OnNewRow(row);
      store.weights(row)[0] = 1.0f;
      store.FillSlots(row);
    }
  }

  std::vector<float> hyper;
  RowStore store;
  std::unique_ptr<Optimizer> optimizer;
};

// Distinct rows of each batch: multiplying by an odd number permutes the numbers below a power of two.
std::vector<std::vector<int64_t>> MakeBatches(int64_t rows) {
  std::vector<std::vector<int64_t>> batches(kBatches);
  int64_t next = 0;
  for (std::vector<int64_t>& batch : batches) {
    while (batch.size() < static_cast<size_t>(std::min(kRowsPerBatch, rows))) {
      batch.push_back(static_cast<int64_t>((static_cast<uint64_t>(next++) * 0x9E3779B97F4A7C15u) &
                                           static_cast<uint64_t>(rows - 1)));
    }
  }
  return batches;
}

void Compare(int64_t dim) {
  int64_t rows = 1;
  while (2 * rows * dim * 4 <= kWeightBytes) rows *= 2;
  rows = std::min(rows, int64_t{1} << 22);
  const std::vector<std::vector<int64_t>> batches = MakeBatches(rows);
  std::vector<float> grads(static_cast<size_t>(kRowsPerBatch * dim));
  for (size_t i = 0; i < grads.size(); ++i) grads[i] = 1e-3f * static_cast<float>(i % 97) - 0.04f;

  std::vector<std::unique_ptr<Table>> tables;
  InlineExecutor one;
  ThreadPool two(2);
  Comparison comparison("rows of " + std::to_string(dim) + ", " + std::to_string(rows) + " of them, " +
                            std::to_string(batches[0].size()) + " in a step",
                        static_cast<int64_t>(batches[0].size()));
  std::vector<int64_t> turns(2 * std::size(kContenders));
  for (const Contender& contender : kContenders) {
    tables.push_back(std::make_unique<Table>(contender, rows, dim));
    for (Executor* executor : {static_cast<Executor*>(&one), static_cast<Executor*>(&two)}) {
      const size_t turn = 2 * tables.size() - (executor == &one ? 2 : 1);
      const std::string name = std::string(contender.optimizer) + (executor == &one ? ", 1" : ", 2") +
                               " threads, " + std::to_string(tables.back()->store.bytes() / rows) +
                               " bytes per row";
      comparison.Add(name, [&, executor, turn, table = tables.back().get()] {
        const std::vector<int64_t>& batch = batches[static_cast<size_t>(turns[turn]++ % kBatches)];
        ExitUnless(table->optimizer->Apply(*executor, table->hyper, batch,
                                           StoredRowGradients(grads.data(), dim), &table->store));
      });
    }
  }
  comparison.Run(kRounds);
}

}  // namespace
}  // namespace sok

int main(int argc, char** argv) {
  std::vector<int64_t> dims;
  for (int i = 1; i < argc; ++i) dims.push_back(std::atoll(argv[i]));
  if (dims.empty()) dims = {16, 32, 64, 100};
  for (const int64_t dim : dims) {
    if (dim < 1) {
      std::fprintf(stderr, "records_benchmark: the length of a row must be at least 1, not %lld\n",
                   static_cast<long long>(dim));
      return 1;
    }
    sok::Compare(dim);
  }
  return 0;
}
