// Steps of a group over ranks that are objects of one process, and the same steps of one process, for tests.
#ifndef SOK_CC_CPU_SHARDED_TESTING_SHARDED_STEP_H_
#define SOK_CC_CPU_SHARDED_TESTING_SHARDED_STEP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/executor.h"
#include "cc/cpu/group/group_lookup.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/cpu/sharded/testing/in_process_ranks.h"

namespace sok {

// The lookups of one rank in a step.
struct Batch {
  std::vector<LookupBags> lookups;        // `first` and `count` filled in
  std::vector<std::vector<int64_t>> ids;  // by table
  bool training = true;

  // Adds a lookup of `lookup_ids`; `offsets` as in LookupBags, empty if it is not pooled.
  void Add(int table, const std::vector<int64_t>& lookup_ids, std::vector<int64_t> offsets,
           Combiner combiner = Combiner::kSum, std::vector<float> weights = {}) {
    if (static_cast<int>(ids.size()) <= table) ids.resize(table + 1);
    LookupBags lookup;
    lookup.table = table;
    lookup.pooled = !offsets.empty();
    lookup.combiner = combiner;
    lookup.offsets = std::move(offsets);
    lookup.weights = std::move(weights);
    lookup.first = static_cast<int64_t>(ids[table].size());
    lookup.count = static_cast<int64_t>(lookup_ids.size());
    ids[table].insert(ids[table].end(), lookup_ids.begin(), lookup_ids.end());
    lookups.push_back(std::move(lookup));
  }

  std::vector<Span<const int64_t>> views() const { return {ids.begin(), ids.end()}; }
};

using TableSet = std::vector<std::unique_ptr<Table>>;

inline std::vector<Table*> Pointers(const TableSet& tables) {
  std::vector<Table*> pointers;
  for (const auto& table : tables) pointers.push_back(table.get());
  return pointers;
}

// Outputs of a batch's lookups, and views of them.
struct Outputs {
  std::vector<std::vector<float>> values;  // by lookup
  std::vector<OutputRows> rows;

  void Resize(const std::vector<LookupBags>& lookups, const std::vector<Table*>& tables) {
    values.clear();
    rows.clear();
    for (const LookupBags& lookup : lookups) {
      const int64_t dim = tables[lookup.table]->options().dim;
      values.emplace_back(lookup.num_bags() * dim, -77.0f);
      rows.push_back({values.back().data(), dim});
    }
  }
};

inline std::vector<GradientRows> Views(const std::vector<std::vector<float>>& gradients,
                                       const std::vector<LookupBags>& lookups,
                                       const std::vector<Table*>& tables) {
  std::vector<GradientRows> views;
  for (size_t l = 0; l < lookups.size(); ++l) {
    views.push_back({gradients[l].data(), tables[lookups[l].table]->options().dim});
  }
  return views;
}

// Gradients of rows by id, of all tables of a group.
using GradientsById = std::vector<std::map<int64_t, std::vector<float>>>;

inline void AddById(const TablePart& part, const std::vector<float>& rows, int64_t dim,
                    std::map<int64_t, std::vector<float>>* by_id) {
  for (int64_t u = 0; u < part.trained; ++u) {
    (*by_id)[part.unique[u]].assign(rows.begin() + u * dim, rows.begin() + (u + 1) * dim);
  }
}

// One rank of a group.
struct Rank {
  TableSet tables;
  GroupScratch scratch;
  GradientScratch gradient_scratch;
  RoutePlan route;
  ServedPlan served;
  Outbox outbox;
  Arrived replies;
  ReceivedRows received;
  Outputs outputs;
  Status status;
};

// A group over ranks whose tables `make(t, rank, ranks)` makes.
class ShardedGroup {
 public:
  template <typename MakeTable>
  ShardedGroup(int ranks, std::vector<ExchangeMode> modes, Executor& executor, const MakeTable& make)
      : modes_(std::move(modes)), executor_(executor), ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      for (size_t t = 0; t < modes_.size(); ++t) {
        ranks_[r].tables.push_back(make(static_cast<int>(t), r, ranks));
      }
    }
  }

  Rank& rank(int r) { return ranks_[r]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // The forward pass of all ranks; each rank's outcome is in rank(r).status. errors[r], if given, is an error
  // in rank r's own batch.
  void Forward(const std::vector<Batch>& batches, const std::vector<Status>& errors = {}) {
    for (int r = 0; r < size(); ++r) Route(r, batches[r], errors.empty() ? OkStatus() : errors[r]);
    std::vector<Arrived> requests = Exchange(Outboxes());
    for (int r = 0; r < size(); ++r) Serve(r, requests[r].inbox);
    std::vector<Arrived> replies = Exchange(Outboxes());
    for (int r = 0; r < size(); ++r) Combine(r, std::move(replies[r]));
  }

  // The backward pass of all ranks; gradients[r][l] is that of lookup l on rank r. Each rank's outcome is in
  // rank(r).status.
  GradientsById Backward(const std::vector<std::vector<std::vector<float>>>& gradients,
                         GradientFormat format = GradientFormat::kFloat32) {
    const std::vector<Arrived> arrived = ReduceAndExchange(gradients, format);
    GradientsById result(modes_.size());
    for (int r = 0; r < size(); ++r) Sum(r, arrived[r].inbox, &result);
    return result;
  }

  // The same, with a step of all tables in the pass that sums. Divides the sums by `divisor`. hyper[r]
  // belongs to rank r.
  void BackwardAndTrain(const std::vector<std::vector<std::vector<float>>>& gradients, GradientFormat format,
                        float divisor, const std::string& optimizer,
                        const std::vector<std::vector<float>>& hyper) {
    const std::vector<Arrived> arrived = ReduceAndExchange(gradients, format);
    for (int r = 0; r < size(); ++r) Train(r, arrived[r].inbox, divisor, optimizer, hyper[r]);
  }

 private:
  std::vector<Arrived> ReduceAndExchange(const std::vector<std::vector<std::vector<float>>>& gradients,
                                         GradientFormat format) {
    for (int r = 0; r < size(); ++r) {
      Rank& rank = ranks_[r];
      const std::vector<LookupBags>& lookups = rank.route.group.lookups;
      rank.status = ReduceGroup(executor_, rank.route, Views(gradients[r], lookups, Pointers(rank.tables)),
                                rank.replies.inbox, format, Allocator(&rank));
    }
    return Exchange(Outboxes());
  }

  struct Allocation {
    Rank* rank;
    int64_t* operator()(Span<const int64_t> sizes) const { return rank->outbox.Allocate(sizes); }
  };
  static Allocation Allocator(Rank* rank) { return {rank}; }

  std::vector<Outbox> Outboxes() const {
    std::vector<Outbox> outboxes;
    for (const Rank& rank : ranks_) outboxes.push_back(rank.outbox);
    return outboxes;
  }

  void Route(int r, const Batch& batch, Status status) {
    Rank& rank = ranks_[r];
    const std::vector<Table*> tables = Pointers(rank.tables);
    rank.route = RoutePlan();
    rank.route.rank = r;
    rank.route.ranks = size();
    rank.route.modes = modes_;
    rank.route.group.training = batch.training;
    rank.route.group.lookups = batch.lookups;
    if (status.ok()) status = RouteGroup(executor_, tables, batch.views(), &rank.route, &rank.scratch);
    rank.status = WriteRequests(tables, status, rank.route, Allocator(&rank));
  }

  void Serve(int r, const Inbox& requests) {
    Rank& rank = ranks_[r];
    rank.served = ServedPlan();
    rank.status = ServeGroup(executor_, Pointers(rank.tables), modes_, r, requests, &rank.served,
                             &rank.scratch, Allocator(&rank));
  }

  void Combine(int r, Arrived replies) {
    Rank& rank = ranks_[r];
    const std::vector<Table*> tables = Pointers(rank.tables);
    rank.replies = std::move(replies);
    rank.status = ReadReplies(tables, rank.route, rank.replies.inbox, &rank.received);
    if (!rank.status.ok()) return;
    rank.outputs.Resize(rank.route.group.lookups, tables);
    rank.status = CombineGroup(executor_, rank.route, rank.received, rank.outputs.rows);
  }

  void Sum(int r, const Inbox& messages, GradientsById* result) {
    Rank& rank = ranks_[r];
    const std::vector<int64_t> dims = Dims(rank);
    ArrivedGradients arrived;
    rank.status = ReadGradients(rank.served, dims, messages, &arrived);
    if (!rank.status.ok()) return;
    std::vector<std::vector<float>> sums;
    std::vector<float*> pointers;
    for (size_t t = 0; t < dims.size(); ++t) {
      sums.emplace_back(rank.served.parts[t].merged.trained * dims[t] + 1);
    }
    for (auto& sum : sums) pointers.push_back(sum.data());
    rank.status = SumGradients(executor_, rank.served, arrived, dims, pointers, &rank.gradient_scratch);
    for (size_t t = 0; t < dims.size(); ++t) {
      AddById(rank.served.parts[t].merged, sums[t], dims[t], &(*result)[t]);
    }
  }

  void Train(int r, const Inbox& messages, float divisor, const std::string& optimizer,
             const std::vector<float>& hyper) {
    Rank& rank = ranks_[r];
    ArrivedGradients arrived;
    rank.status = ReadGradients(rank.served, Dims(rank), messages, &arrived);
    if (!rank.status.ok()) return;
    std::vector<EngineStep> steps;
    // In reverse order of the tables, since steps may come in any order.
    for (int t = static_cast<int>(rank.tables.size()) - 1; t >= 0; --t) {
      steps.push_back({t, rank.tables[t].get(), Span<const float>(hyper)});
    }
    rank.status =
        SumAndTrain(executor_, rank.served, arrived, divisor, optimizer, steps, &rank.gradient_scratch);
  }

  static std::vector<int64_t> Dims(const Rank& rank) {
    std::vector<int64_t> dims;
    for (const auto& table : rank.tables) dims.push_back(table->options().dim);
    return dims;
  }

  std::vector<ExchangeMode> modes_;
  Executor& executor_;
  std::vector<Rank> ranks_;
};

// The step of one process on the batches of all ranks, one after the other: outputs by rank and lookup, and
// the gradients of the rows.
struct OneProcess {
  TableSet tables;
  std::vector<Outputs> outputs;

  GradientsById Step(Executor& executor, const std::vector<Batch>& batches,
                     const std::vector<std::vector<std::vector<float>>>& gradients) {
    const std::vector<Table*> pointers = Pointers(tables);
    Batch all;
    all.training = batches[0].training;
    all.ids.resize(tables.size());
    std::vector<std::vector<float>> all_gradients;
    for (size_t r = 0; r < batches.size(); ++r) {
      for (const LookupBags& lookup : batches[r].lookups) {
        const std::vector<int64_t>& ids = batches[r].ids[lookup.table];
        all.Add(lookup.table, {ids.begin() + lookup.first, ids.begin() + lookup.first + lookup.count},
                lookup.offsets, lookup.combiner, lookup.weights);
      }
      all_gradients.insert(all_gradients.end(), gradients[r].begin(), gradients[r].end());
    }
    LookupPlan plan;
    plan.training = all.training;
    plan.lookups = all.lookups;
    Outputs flat;
    flat.Resize(plan.lookups, pointers);
    GroupScratch scratch;
    status = GroupForward(executor, pointers, all.views(), &plan, flat.rows, &scratch);
    outputs.assign(batches.size(), {});
    for (size_t r = 0, l = 0; r < batches.size(); ++r) {
      for (size_t i = 0; i < batches[r].lookups.size(); ++i) outputs[r].values.push_back(flat.values[l++]);
    }
    GradientsById result(tables.size());
    if (!status.ok() || !plan.training) return result;
    std::vector<std::vector<float>> sums;
    std::vector<float*> sum_pointers;
    std::vector<int64_t> dims;
    for (size_t t = 0; t < tables.size(); ++t) {
      dims.push_back(pointers[t]->options().dim);
      sums.emplace_back(plan.parts[t].trained * dims[t] + 1);
    }
    for (auto& sum : sums) sum_pointers.push_back(sum.data());
    GradientScratch gradient_scratch;
    status = GroupBackward(executor, plan, dims, Views(all_gradients, plan.lookups, pointers), sum_pointers,
                           &gradient_scratch);
    for (size_t t = 0; t < tables.size(); ++t) AddById(plan.parts[t], sums[t], dims[t], &result[t]);
    return result;
  }

  Status status;
};

}  // namespace sok

#endif  // SOK_CC_CPU_SHARDED_TESTING_SHARDED_STEP_H_
