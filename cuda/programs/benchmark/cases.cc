#include "cuda/programs/benchmark/cases.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <memory>
#include <numeric>
#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/dedup/dedup.h"
#include "cuda/index/key_index.h"
#include "cuda/programs/benchmark/bandwidth.h"
#include "cuda/programs/benchmark/filled_table.h"
#include "cuda/store/row_pieces.h"

namespace sok {

int64_t KeysFor(const BenchmarkOptions& options, double bytes) {
  return std::min(options.keys, static_cast<int64_t>(static_cast<double>(options.table_bytes) / bytes));
}

BatchShape RecordOf(const BenchmarkDevice& device, int64_t dim, const std::string& optimizer) {
  BatchShape shape;
  shape.dim = dim;
  shape.slots = optimizer == "lazy_adam" || optimizer == "adam"         ? 2
                : optimizer == "adagrad" || optimizer == "rowwise_adam" ? 1
                                                                        : 0;
  shape.row_slots = optimizer == "rowwise_adam" ? 1 : 0;
  shape.record = device.record;
  shape.catches_up = optimizer == "adam";
  return shape;
}

BatchShape ShapeOf(const BenchmarkDevice& device, const LookupIds& ids, int64_t dim,
                   const std::string& optimizer, double load) {
  BatchShape shape = RecordOf(device, dim, optimizer);
  shape.ids = static_cast<double>(ids.size());
  shape.unique = ids.unique();
  shape.hotness = ids.hotness();
  shape.load = load;
  shape.cache_bytes = static_cast<double>(device.cache_bytes);
  return shape;
}

Case CaseOf(const std::string& what, const IdsDrawn& drawn, const LookupIds& ids, const BatchShape& shape) {
  Case made;
  made.what = what;
  made.ids_drawn = drawn.name();
  made.dim = shape.dim;
  made.load = shape.load;
  made.hotness = ids.pooled() ? ids.hotness() : 0;
  made.ids = shape.ids;
  made.unique = ids.unique();
  return made;
}

StatusOr<RoundsWithBounds> RoundsWithBounds::Make(BenchmarkDevice* device, const BenchmarkOptions& options) {
  RoundsWithBounds made(Rounds(device->stream, &device->memory, options.scrubbed_bytes));
  const int64_t floats = options.copied_bytes / static_cast<int64_t>(sizeof(float)) / 4 * 4;
  for (DeviceBuffer<float>* buffer : {&made.from_, &made.to_}) {
    SOK_ASSIGN_OR_RETURN(*buffer, DeviceBuffer<float>::Allocate(&device->memory, device->stream, floats));
  }
  SOK_ASSIGN_OR_RETURN(made.found_, DeviceBuffer<int32_t>::Allocate(&device->memory, device->stream, 1));
  float* const from = made.from_.data();
  float* const to = made.to_.data();
  int32_t* const word = made.found_.data();
  const cudaStream_t stream = device->stream;
  const auto bytes = static_cast<size_t>(floats) * sizeof(float);
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(from, 0, bytes, stream), "cannot clear memory");
  SOK_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(word, 0, sizeof(int32_t), stream), "cannot clear memory");

  Case copy;
  copy.what = kCopy;
  copy.bytes = 2 * static_cast<double>(bytes);
  copy.run = [=] {
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cannot copy");
  };
  made.Add(std::move(copy));
  Case read;
  read.what = kRead;
  read.bytes = static_cast<double>(bytes);
  read.run = [=] { return ReadAll(stream, from, floats, word); };
  made.Add(std::move(read));
  return StatusOr<RoundsWithBounds>(std::move(made));
}

Status RoundsWithBounds::Run(int rounds, std::vector<Case>* cases) {
  SOK_RETURN_IF_ERROR(rounds_.Run(rounds));
  for (Case& measured : rounds_.cases()) {
    measured.prepare = nullptr;
    measured.run = nullptr;
    cases->push_back(std::move(measured));
  }
  return OkStatus();
}

std::vector<IdsDrawn> Distributions(const BenchmarkOptions& options) { return {{0}, {options.zipf}}; }

namespace {

constexpr double kLoad = 0.75;  // of the index, unless the load is what is measured

template <typename T>
StatusOr<T*> Keep(StatusOr<T> made, std::list<T>* kept) {
  SOK_RETURN_IF_ERROR(made.status());
  kept->push_back(std::move(made.value()));
  return &kept->back();
}

// What the cases of one table use while they are measured.
struct Kept {
  std::list<LookupIds> ids;
  std::list<FilledTable> tables;
  std::list<DeviceBuffer<int64_t>> rows;
  std::list<DeviceBuffer<int32_t>> numbers;
  std::list<DeviceBuffer<float>> floats;
  std::list<std::unique_ptr<GroupCalls>> calls;
};

StatusOr<LookupIds*> KeepIds(BenchmarkDevice* device, const IdsDrawn& drawn, int64_t n, int64_t keys,
                             double hotness, Kept* kept, uint64_t seed = 1) {
  return Keep(LookupIds::Make(device->stream, &device->memory, DrawIds(drawn, n, keys, seed), hotness, 2),
              &kept->ids);
}

StatusOr<GroupCalls*> KeepCalls(BenchmarkDevice* device, std::vector<const FilledTable*> tables,
                                const std::vector<const LookupIds*>& ids, Kept* kept) {
  SOK_ASSIGN_OR_RETURN(std::unique_ptr<GroupCalls> made, GroupCalls::Make(device, std::move(tables), ids));
  kept->calls.push_back(std::move(made));
  return kept->calls.back().get();
}

template <typename T>
StatusOr<T*> KeepArray(BenchmarkDevice* device, int64_t n, std::list<DeviceBuffer<T>>* kept) {
  SOK_ASSIGN_OR_RETURN(auto array, Keep(DeviceBuffer<T>::Allocate(&device->memory, device->stream, n), kept));
  return array->data();
}

// --- The index ---

// Inserts the keys [0, n) into an index.
Status Fill(BenchmarkDevice* device, int64_t n, KeyIndex* index) {
  SOK_RETURN_IF_ERROR(index->Reserve(device->stream, n));
  constexpr int64_t kPiece = 1 << 22;
  for (int64_t first = 0; first < n; first += kPiece) {
    std::vector<int64_t> keys(static_cast<size_t>(std::min(kPiece, n - first)));
    std::iota(keys.begin(), keys.end(), first);
    SOK_ASSIGN_OR_RETURN(const DeviceBuffer<int64_t> piece, OnDevice(device->stream, &device->memory, keys));
    SOK_RETURN_IF_ERROR(InsertKeys(device->stream, index->view(), piece.data(), piece.data(), piece.size()));
    index->CountInserted(piece.size());
  }
  return OkStatus();
}

// A search for ids in [0, keys), or beyond that range for absent ones.
Status AddSearch(BenchmarkDevice* device, const KeyIndex& index, const IdsDrawn& drawn, int64_t n,
                 int64_t keys, bool absent, Kept* kept, RoundsWithBounds* rounds) {
  std::vector<int64_t> keys_sought = DrawIds(drawn, n, keys, 1);
  if (absent) {
    for (int64_t& key : keys_sought) key += keys;
  }
  SOK_ASSIGN_OR_RETURN(
      const auto made,
      Keep(LookupIds::Make(device->stream, &device->memory, keys_sought, /*hotness=*/0, 2), &kept->ids));
  const LookupIds& ids = *made;
  SOK_ASSIGN_OR_RETURN(int64_t* const rows, KeepArray(device, n, &kept->rows));
  const double load = static_cast<double>(index.size()) / static_cast<double>(index.places());
  const BatchShape shape = ShapeOf(*device, ids, /*dim=*/0, /*optimizer=*/"", load);
  Case search = CaseOf(absent ? "find absent key" : "find key", drawn, ids, shape);
  search.bytes = search.ids * FindTraffic(shape.load, absent ? 1 : 0, ids.unique()).total();
  search.run = [=, view = index.view(), &ids] {
    return FindKeys(device->stream, view, ids.ids(), ids.size(), rows);
  };
  rounds->Add(std::move(search));
  return OkStatus();
}

// --- Rows ---

// Finds and copies the rows of keys that may repeat: the operation of hash tables without pooling.
Status AddFindRows(BenchmarkDevice* device, const FilledTable& table, const IdsDrawn& drawn,
                   const LookupIds& ids, const BatchShape& shape, Kept* kept, RoundsWithBounds* rounds) {
  SOK_ASSIGN_OR_RETURN(int64_t* const rows, KeepArray(device, ids.size(), &kept->rows));
  SOK_ASSIGN_OR_RETURN(float* const out, KeepArray(device, ids.size() * shape.dim, &kept->floats));
  Case find = CaseOf("find rows", drawn, ids, shape);
  find.bytes = find.ids * (FindTraffic(shape.load, 0, shape.unique) + RowsTraffic(shape)).total();
  find.run = [=, &table, &ids, dim = shape.dim] {
    const DeviceTable& device_table = table.device_table();
    SOK_RETURN_IF_ERROR(FindKeys(device->stream, device_table.finder().index, ids.ids(), ids.size(), rows));
    return GatherRows(device->stream, device_table.rows(), RowList{rows, 0, ids.size()}, 0, dim, out);
  };
  rounds->Add(std::move(find));
  return OkStatus();
}

// The kernel that writes outputs after a lookup that only reads, and after one for training, which merges
// equal ids; and both lookups as a whole.
Status AddLookups(BenchmarkDevice* device, const FilledTable& table, const IdsDrawn& drawn,
                  const LookupIds& ids, const BatchShape& shape, Kept* kept, RoundsWithBounds* rounds) {
  const StatusOr<GroupCalls*> made = KeepCalls(device, {&table}, {&ids}, kept);
  SOK_RETURN_IF_ERROR(made.status());
  GroupCalls* const calls = made.value();
  Case outputs = CaseOf(ids.pooled() ? "pool" : "gather", drawn, ids, shape);
  outputs.bytes = outputs.ids * (ids.pooled() ? PoolTraffic(shape) : GatherTraffic(shape)).total();
  outputs.prepare = [=] { return calls->Lookup(/*training=*/false); };
  outputs.run = [=] { return calls->WriteOutputs(); };
  Case merged = outputs;
  merged.what += " merged";
  merged.prepare = [=] { return calls->Lookup(/*training=*/true); };
  rounds->Add(std::move(outputs));
  rounds->Add(std::move(merged));

  Case lookup = CaseOf("lookup", drawn, ids, shape);
  lookup.bytes =
      lookup.ids * LookupTraffic(shape, ids.pooled() ? BagsFrom::kSplits : BagsFrom::kNothing).total();
  lookup.run = [=] { return calls->Lookup(/*training=*/false); };
  Case training = lookup;
  training.what = "lookup to train";
  training.run = [=] { return calls->Lookup(/*training=*/true); };
  rounds->Add(std::move(lookup));
  rounds->Add(std::move(training));
  return OkStatus();
}

// Only the search for distinct ids.
Status AddDedup(BenchmarkDevice* device, const IdsDrawn& drawn, const LookupIds& ids, const BatchShape& shape,
                Kept* kept, RoundsWithBounds* rounds) {
  const int64_t n = ids.size();
  const auto begins =
      Keep(OnDevice(device->stream, &device->memory, std::vector<int64_t>{0, n, 0, 0}), &kept->rows);
  SOK_RETURN_IF_ERROR(begins.status());
  SOK_ASSIGN_OR_RETURN(int64_t* const keys, KeepArray(device, n, &kept->rows));
  SOK_ASSIGN_OR_RETURN(int32_t* const numbers, KeepArray(device, 2 * n, &kept->numbers));
  int64_t* const begin = begins.value()->data();
  const Occurrences occurrences = {ids.ids(), begin, 1, n, nullptr};
  const UniqueIds unique = {begin + 2, numbers, numbers + n, keys, nullptr};
  Case dedup = CaseOf("distinct ids", drawn, ids, shape);
  dedup.bytes = dedup.ids * DedupTraffic(shape).total();
  dedup.run = [=] { return Dedup(device->stream, &device->memory, occurrences, unique); };
  rounds->Add(std::move(dedup));
  return OkStatus();
}

// Keys that all have rows, and keys that have none; these are erased again before the next round.
Status AddFindOrInsert(BenchmarkDevice* device, const FilledTable& table, int64_t n, Kept* kept,
                       RoundsWithBounds* rounds) {
  for (const bool absent : {false, true}) {
    std::vector<int64_t> keys(static_cast<size_t>(std::min(n, table.keys())));
    std::iota(keys.begin(), keys.end(), absent ? table.keys() : 0);
    SOK_ASSIGN_OR_RETURN(
        const auto made,
        Keep(LookupIds::Make(device->stream, &device->memory, keys, /*hotness=*/0, 2), &kept->ids));
    const LookupIds& ids = *made;
    SOK_ASSIGN_OR_RETURN(int64_t* const rows, KeepArray(device, ids.size(), &kept->rows));
    BatchShape shape = ShapeOf(*device, ids, table.get()->options().dim, "", table.load());
    shape.absent = absent ? 1 : 0;
    Case made_rows = CaseOf(absent ? "insert" : "find or insert", IdsDrawn{0}, ids, shape);
    made_rows.bytes = made_rows.ids * FindOrInsertTraffic(shape).total();
    if (absent) {
      made_rows.prepare = [=, &table, &ids] { return table.Erase(device, ids.ids(), ids.size()); };
    }
    made_rows.run = [=, &table, &ids] { return table.FindOrMake(device, ids.ids(), ids.size(), rows); };
    rounds->Add(std::move(made_rows));
  }
  return OkStatus();
}

// --- Training ---

Status AddSteps(BenchmarkDevice* device, const FilledTable& table, const std::string& optimizer,
                const IdsDrawn& drawn, const LookupIds& ids, const BatchShape& shape, Kept* kept,
                RoundsWithBounds* rounds) {
  const StatusOr<GroupCalls*> made = KeepCalls(device, {&table}, {&ids}, kept);
  SOK_RETURN_IF_ERROR(made.status());
  GroupCalls* const calls = made.value();
  Case update = CaseOf("update", drawn, ids, shape);
  update.optimizer = optimizer;
  update.bytes = update.ids * UpdateTraffic(shape).total();
  update.prepare = [=] {
    SOK_RETURN_IF_ERROR(calls->Lookup(/*training=*/true));
    return calls->PrepareUpdate();
  };
  update.run = [=] { return calls->Update(optimizer); };
  rounds->Add(std::move(update));

  Case backward = CaseOf("backward", drawn, ids, shape);
  backward.optimizer = optimizer;
  backward.bytes = backward.ids * BackwardTraffic(shape).total();
  backward.prepare = [=] { return calls->Lookup(/*training=*/true); };
  backward.run = [=] { return calls->Train(optimizer); };
  rounds->Add(std::move(backward));
  return OkStatus();
}

// A lookup in each table, and a step.
Status AddGroupStep(BenchmarkDevice* device, const BenchmarkOptions& options,
                    const std::vector<const FilledTable*>& tables, const std::string& optimizer,
                    double hotness, Kept* kept, RoundsWithBounds* rounds) {
  const IdsDrawn drawn = {options.zipf};
  const auto ids_of_table =
      static_cast<int64_t>(static_cast<double>(options.group_bags) * std::max(hotness, 1.0));
  std::vector<const LookupIds*> ids;
  for (const FilledTable* table : tables) {
    SOK_ASSIGN_OR_RETURN(LookupIds* const batch,
                         KeepIds(device, drawn, ids_of_table, table->keys(), hotness, kept));
    ids.push_back(batch);
  }
  SOK_ASSIGN_OR_RETURN(GroupCalls* const made, KeepCalls(device, tables, ids, kept));
  // The tables are alike.
  const int64_t dim = tables[0]->get()->options().dim;
  BatchShape shape = ShapeOf(*device, *ids[0], dim, optimizer, tables[0]->load());
  shape.ids *= static_cast<double>(tables.size());
  Case step = CaseOf("group step", drawn, *ids[0], shape);
  step.optimizer = optimizer;
  step.bytes =
      step.ids * StepTraffic(shape, ids[0]->pooled() ? BagsFrom::kSplits : BagsFrom::kNothing).total();
  step.run = [calls = made, optimizer] {
    SOK_RETURN_IF_ERROR(calls->Lookup(/*training=*/true));
    return calls->Train(optimizer);
  };
  rounds->Add(std::move(step));
  return OkStatus();
}

// Steps with one batch after the other, so that each has other rows, once all have been there once.
Status AddTieredSteps(BenchmarkDevice* device, const BenchmarkOptions& options,
                      const std::vector<const FilledTable*>& tables, double share, Kept* kept,
                      RoundsWithBounds* rounds) {
  constexpr int kBatches = 32;
  const std::string optimizer = "lazy_adam";
  const IdsDrawn drawn = {options.zipf};
  std::vector<GroupCalls*> batches;
  const LookupIds* first = nullptr;
  for (int i = 0; i < kBatches; ++i) {
    std::vector<const LookupIds*> ids;
    for (const FilledTable* table : tables) {
      SOK_ASSIGN_OR_RETURN(LookupIds* const batch, KeepIds(device, drawn, options.group_bags, table->keys(),
                                                           /*hotness=*/0, kept, i + 1));
      ids.push_back(batch);
    }
    if (first == nullptr) first = ids[0];
    SOK_ASSIGN_OR_RETURN(GroupCalls* const made, KeepCalls(device, tables, ids, kept));
    batches.push_back(made);
  }
  const auto run = [=](GroupCalls* calls) -> Status {
    SOK_RETURN_IF_ERROR(calls->Lookup(/*training=*/true));
    return calls->Train(optimizer);
  };
  for (GroupCalls* calls : batches) SOK_RETURN_IF_ERROR(run(calls));
  BatchShape shape = ShapeOf(*device, *first, tables[0]->get()->options().dim, optimizer, tables[0]->load());
  shape.ids *= static_cast<double>(tables.size());
  Case step = CaseOf(StrCat("step, ", std::lround(100 * share), " % on the device"), drawn, *first, shape);
  step.optimizer = optimizer;
  step.bytes = step.ids * StepTraffic(shape, BagsFrom::kNothing).total();
  step.run = [=, next = 0]() mutable { return run(batches[static_cast<size_t>(next++ % kBatches)]); };
  rounds->Add(std::move(step));
  return OkStatus();
}

}  // namespace

Status MeasureIndex(BenchmarkDevice* device, const BenchmarkOptions& options, double load,
                    std::vector<Case>* cases) {
  Kept kept;
  KeyIndex index(&device->memory, load);
  SOK_RETURN_IF_ERROR(Fill(device, options.keys, &index));
  SOK_ASSIGN_OR_RETURN(RoundsWithBounds rounds, RoundsWithBounds::Make(device, options));
  for (const IdsDrawn& drawn : Distributions(options)) {
    SOK_RETURN_IF_ERROR(AddSearch(device, index, drawn, options.ids, options.keys, false, &kept, &rounds));
  }
  SOK_RETURN_IF_ERROR(
      AddSearch(device, index, IdsDrawn{0}, options.ids, options.keys, /*absent=*/true, &kept, &rounds));
  return rounds.Run(options.rounds, cases);
}

Status MeasureRows(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim, int64_t ids,
                   std::vector<Case>* cases) {
  Kept kept;
  // Two tables, because rows of one are erased.
  const int64_t keys = KeysFor(options, 8.0 * static_cast<double>(dim));
  for (int t = 0; t < 2; ++t) {
    SOK_RETURN_IF_ERROR(Keep(FilledTable::Make(device, dim, "", keys, kLoad), &kept.tables).status());
  }
  SOK_ASSIGN_OR_RETURN(RoundsWithBounds rounds, RoundsWithBounds::Make(device, options));
  const FilledTable& table = kept.tables.front();
  for (const IdsDrawn& drawn : Distributions(options)) {
    for (const double hotness : {0.0, options.hotness}) {
      SOK_ASSIGN_OR_RETURN(LookupIds* const batch, KeepIds(device, drawn, ids, keys, hotness, &kept));
      const BatchShape shape = ShapeOf(*device, *batch, dim, "", table.load());
      if (hotness == 0) {
        SOK_RETURN_IF_ERROR(AddFindRows(device, table, drawn, *batch, shape, &kept, &rounds));
        SOK_RETURN_IF_ERROR(AddDedup(device, drawn, *batch, shape, &kept, &rounds));
      }
      SOK_RETURN_IF_ERROR(AddLookups(device, table, drawn, *batch, shape, &kept, &rounds));
    }
  }
  SOK_RETURN_IF_ERROR(AddFindOrInsert(device, kept.tables.back(), ids, &kept, &rounds));
  return rounds.Run(options.rounds, cases);
}

Status MeasureTraining(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim,
                       const std::string& optimizer, std::vector<Case>* cases) {
  Kept kept;
  // As many as with LazyAdam.
  const BatchShape record = RecordOf(*device, dim, "lazy_adam");
  const int64_t keys = KeysFor(options, static_cast<double>(RecordStride(record)));
  SOK_ASSIGN_OR_RETURN(const auto table,
                       Keep(FilledTable::Make(device, dim, optimizer, keys, kLoad), &kept.tables));
  SOK_ASSIGN_OR_RETURN(RoundsWithBounds rounds, RoundsWithBounds::Make(device, options));
  for (const IdsDrawn& drawn : Distributions(options)) {
    for (const double hotness : {0.0, options.hotness}) {
      SOK_ASSIGN_OR_RETURN(LookupIds* const batch, KeepIds(device, drawn, options.ids, keys, hotness, &kept));
      const BatchShape shape = ShapeOf(*device, *batch, dim, optimizer, table->load());
      SOK_RETURN_IF_ERROR(AddSteps(device, *table, optimizer, drawn, *batch, shape, &kept, &rounds));
    }
  }
  return rounds.Run(options.rounds, cases);
}

Status MeasureGroup(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim,
                    const std::string& optimizer, std::vector<Case>* cases) {
  Kept kept;
  // As many as with LazyAdam.
  const BatchShape record = RecordOf(*device, dim, "lazy_adam");
  const int64_t keys = KeysFor(options, static_cast<double>(RecordStride(record) * options.group_tables));
  std::vector<const FilledTable*> tables;
  for (int64_t t = 0; t < options.group_tables; ++t) {
    SOK_ASSIGN_OR_RETURN(const auto table,
                         Keep(FilledTable::Make(device, dim, optimizer, keys, kLoad), &kept.tables));
    tables.push_back(table);
  }
  SOK_ASSIGN_OR_RETURN(RoundsWithBounds rounds, RoundsWithBounds::Make(device, options));
  for (const double hotness : {0.0, options.hotness}) {
    SOK_RETURN_IF_ERROR(AddGroupStep(device, options, tables, optimizer, hotness, &kept, &rounds));
  }
  return rounds.Run(options.rounds, cases);
}

Status MeasureTiers(BenchmarkDevice* device, const BenchmarkOptions& options, int64_t dim,
                    std::vector<Case>* cases) {
  Kept kept;
  const BatchShape record = RecordOf(*device, dim, "lazy_adam");
  const int64_t keys = KeysFor(options, static_cast<double>(RecordStride(record) * options.group_tables));
  SOK_ASSIGN_OR_RETURN(RoundsWithBounds rounds, RoundsWithBounds::Make(device, options));
  std::vector<double> shares = options.shares;
  shares.insert(shares.begin(), 1);
  for (const double share : shares) {
    std::vector<const FilledTable*> tables;
    for (int64_t t = 0; t < options.group_tables; ++t) {
      SOK_ASSIGN_OR_RETURN(
          const auto table,
          Keep(FilledTable::Make(device, dim, "lazy_adam", keys, kLoad, share), &kept.tables));
      tables.push_back(table);
    }
    SOK_RETURN_IF_ERROR(AddTieredSteps(device, options, tables, share, &kept, &rounds));
  }
  return rounds.Run(options.rounds, cases);
}

}  // namespace sok
