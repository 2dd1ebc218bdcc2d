#include "cc/checkpoint/written_tables.h"

#include <utility>

#include "cc/cpu/table/bloom_counters.h"

namespace sok {
namespace {

SavedTable DescriptionOf(const TableOptions& options, const TableClock& clock, const std::string& name) {
  SavedTable saved;
  saved.options = options;
  saved.options.name = name;
  saved.counts_global_steps = clock.counts_global_steps;
  const Admission& admission = options.admission;
  if (admission.kind == Admission::Kind::kBloom) {
    const BloomShape shape = BloomShape::Of(admission.max_element_size, admission.false_positive_probability);
    saved.hashes = shape.hashes;
    saved.counters = shape.counters;
    saved.counters_in_blocks = BloomShape::IsInBlocks(shape, admission.counter_bits);
  }
  return saved;
}

}  // namespace

Status WriteTable(Executor& executor, HeldTable* table, const TableOptions& described,
                  const std::string& name, const std::vector<ChainLink>& chain, bool apart,
                  PartWriter* part) {
  const bool delta = !chain.empty();
  const int rank = table->options().rank;
  SOK_ASSIGN_OR_RETURN(const auto shard, WriteShard(executor, part, name, table, delta, apart));
  SOK_RETURN_IF_ERROR(part->AddString(ShardEntry(name, rank), EncodeShard(shard)));
  if (rank != 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(auto optimizer, SavedOptimizerOf(table, /*history=*/delta && !apart));
  const TableClock clock = table->state().clock;
  Manifest manifest;
  manifest.delta = delta;
  manifest.table = DescriptionOf(described, clock, name);
  manifest.steps = clock.steps;
  manifest.uses = clock.uses;
  manifest.apart = apart;
  manifest.optimizer = std::move(optimizer);
  manifest.chain = chain;
  return part->AddString(name, EncodeTable(manifest));
}

Status WriteConverted(const Manifest& source, int64_t rows, std::map<std::string, PlacedArray> arrays,
                      int64_t filter_freq, PartWriter* part) {
  Manifest manifest;
  manifest.table = source.table;
  manifest.steps = source.steps;
  manifest.optimizer = source.optimizer;
  TableOptions& options = manifest.table.options;
  options.ranks = 1;
  if (filter_freq > 0) {
    options.admission.kind = Admission::Kind::kCounter;
    options.admission.filter_freq = filter_freq;
  }
  SavedShard shard;
  shard.rows = shard.table_rows = rows;
  shard.steps = manifest.steps;
  shard.arrays = std::move(arrays);
  SOK_RETURN_IF_ERROR(part->AddString(ShardEntry(options.name, 0), EncodeShard(shard)));
  return part->AddString(options.name, EncodeTable(manifest));
}

std::vector<std::string> OtherEntries(const SavedCheckpoint& from, const std::vector<std::string>& tables) {
  std::vector<std::string> others;
  for (const auto& [name, entry] : from.index().entries) {
    if (!IsOfTables(name, tables)) others.push_back(name);
  }
  return others;
}

Status CopyEntries(SavedCheckpoint& from, const std::vector<std::string>& entries, PartWriter* part) {
  for (const std::string& name : entries) {
    SOK_ASSIGN_OR_RETURN(const auto place, from.Find(name));
    SOK_ASSIGN_OR_RETURN(const auto data, from.Data(place.shard));
    SOK_RETURN_IF_ERROR(part->CopyTensor(name, from.index().entries.at(name), place, data.get()));
  }
  return OkStatus();
}

Status WriteFacts(const CheckpointFacts& facts, const std::string& counted_by, PartWriter* part) {
  SOK_RETURN_IF_ERROR(part->AddString(kCheckpointEntry, EncodeFacts(facts)));
  return counted_by.empty() ? OkStatus() : part->AddString(kCountedByEntry, counted_by);
}

}  // namespace sok
